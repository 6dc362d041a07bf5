"""Checks of sinks that write files: the embedded log and JSON lines. They lock nothing for longer than a look."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from efo_service.log.catalog import read_catalog
from efo_service.log.consistency import check_topic
from efo_service.log.disk import DiskFiles, topic_directory
from efo_service.operations.doctor.machine import directory_problem, in_thread
from efo_service.operations.doctor.running import Check, Outcome, failed, passed
from efo_service.relay.errors import TopicNotFoundError
from efo_service.relay.plugins import load_sink

_LOCKS: Final = Path("/proc/locks")
"""The locks of all processes that this one can see (Linux: proc(5))."""
_LOCK: Final = re.compile(r"\d+: FLOCK +\S+ +WRITE +(\d+) +[0-9a-f]+:[0-9a-f]+:(\d+) ")

Holder = int | None
"""The process that holds a lock; None if this one cannot see it."""


def retention_check(*, is_limited: bool) -> Check:
    """Return the check of how long a log keeps its records."""
    everything = (
        "the log keeps every record forever: set [relay] retention_hours or retention_bytes, unless something else"
        " removes its oldest segments"
    )

    def look() -> Outcome:
        return passed("expired segments are removed when all readers have read them" if is_limited else everything)

    return Check("log retention", in_thread(look), "set [relay] retention_hours or retention_bytes")


def log_checks(root: Path, topics: Mapping[str, str], stream: str) -> list[Check]:
    """Return the checks of the embedded log. `topics`: its topics by the names of their checks."""
    remedy = f"check the file system of {root}"
    return [
        Check("log directory", in_thread(partial(_directory, root)), remedy),
        *(Check(name, in_thread(partial(_topic, root, topic, stream)), remedy) for name, topic in topics.items()),
    ]


def jsonl_check(path: Path | None) -> Check:
    """Return the check of the file of JSON lines; `path` is None for stdout."""
    return Check("jsonl file", in_thread(partial(_file, path)), "check the file of [relay] jsonl_file")


def plugin_check(name: str) -> Check:
    """Return the check of a sink of another package: that it can be loaded. Opening it could write."""

    def look() -> Outcome:
        load_sink(name)
        return passed(f"the sink {name!r} is installed; what it needs itself is not tested")

    return Check("sink", in_thread(look), "install the sink's package again")


def lock_holders(paths: Iterable[Path]) -> list[Holder]:
    """Return the holder of each of these lock files that is locked. A file that does not exist is not locked."""
    locked = [path.stat().st_ino for path in paths if path.exists() and _is_locked(path)]
    visible = holders(_LOCKS.read_text()) if _LOCKS.exists() else {}
    return [visible.get(inode) for inode in locked]


def _is_locked(path: Path) -> bool:
    """Return whether a file is locked for writing: a shared lock, released at once, disturbs nobody for long."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _directory(root: Path) -> Outcome:
    return directory_problem(root) or passed(f"files can be created in {root}")


def _topic(root: Path, topic: str, stream: str) -> Outcome:
    try:
        catalog = read_catalog(DiskFiles(root), topic)
    except TopicNotFoundError:
        return passed(f"{topic_directory(root, topic)} does not exist: `efo run` creates it")
    if catalog.stream != stream:
        return failed(
            f"the topic {topic_directory(root, topic)} belongs to the stream {catalog.stream!r}, not to {stream!r}",
            "choose another [relay] topic or directory",
        )
    check_topic(DiskFiles(root), topic)
    directory = topic_directory(root, topic)
    if (problem := directory_problem(directory)) is not None:
        return problem
    held = lock_holders(directory / str(number) / "writer.lock" for number in catalog.shards)
    return passed(f"{directory} has {len(catalog.shards)} partitions, {len(held)} of them open {by_whom(held)}")


def _file(path: Path | None) -> Outcome:
    if path is None:
        return passed("records go to stdout")
    if not path.exists():
        return directory_problem(path.parent) or passed(f"{path} does not exist: `efo run` creates it")
    if not path.is_file() or not os.access(path, os.R_OK | os.W_OK):
        return failed(f"this user may not write to the file {path}", "give this user rights, or choose another file")
    return passed(f"{path} can be written; it is open {by_whom(lock_holders([path]))}")


# --- what it means: pure ---------------------------------------------------------------------------------------


def holders(locks: str) -> dict[int, int]:
    """Return the process that holds an exclusive flock, by the inode of the file. `locks`: the text of /proc/locks.

    Two files of different file systems may share an inode. So a file is asked first whether it is locked at all.
    """
    return {int(inode): int(process) for process, inode in _LOCK.findall(locks)}


def by_whom(held: Sequence[Holder]) -> str:
    """Return which processes hold locks, as text."""
    processes = dict.fromkeys(
        "a process that this one cannot see" if holder is None else f"process {holder}" for holder in held
    )
    return f"in {' and '.join(processes)}" if processes else "in no process"
