"""The log on a disk: its documents and partitions. What they are is in efo_service.log.files.

A document that several processes change is replaced under a lock, and one of a single writer without: so a reader never
sees an incomplete file. The names of directories are synced too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from efo_service.log.catalog import check_topic_name
from efo_service.log.compaction import COMPACTED_BYTES
from efo_service.log.disk_partition import GRACE_SECONDS, DiskPartition, lock_for_writing
from efo_service.log.fencing import removed_on_error
from efo_service.log.files import Fields, Limits, Owner
from efo_service.log.segments import has_segments, last_segment, read_origin
from efo_service.relay.errors import SinkError, os_errors
from efo_service.relay.files import read_regular
from efo_service.relay.storage import lock, names, sync, sync_directory


@dataclass(frozen=True)
class DiskFiles:
    """A log in a directory; implements LogFiles.

    `mapped`: map segments into memory, see `read_segment`. `grace`: see GRACE_SECONDS.
    """

    root: Path
    mapped: bool = False
    grace: float = GRACE_SECONDS

    @property
    def name(self) -> str:
        """The directory."""
        return str(self.root)

    @property
    def restore(self) -> str:
        """How a lost or damaged document comes back."""
        return "restore it from a copy"

    @property
    def has_costly_listings(self) -> bool:
        """A listing of a directory costs nothing."""
        return False

    @property
    def limits(self) -> Limits:
        """So many commits keep a disk busy, and leave it responsive. So many bytes are laid out in milliseconds."""
        return Limits(parallel_commits=8, bytes_in_loop=16 * 1024 * 1024, compacted_bytes=COMPACTED_BYTES)

    # --- documents -----------------------------------------------------------------------------------------

    def read(self, name: str) -> bytes | None:
        """Return a document, None if there is none."""
        path = self.root / name
        with os_errors("read", path):
            return read_regular(path) if path.exists() else None

    def exists(self, name: str) -> bool:
        """Return whether there is such a document."""
        with os_errors("look at", self.root / name):
            return (self.root / name).exists()

    def update(self, name: str, change: Callable[[bytes | None], Fields | None]) -> None:
        """Change a document under its lock. Raises SinkFullError, SinkError, and what `change` raises."""
        path = self.root / name
        with os_errors("write", path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with lock(path.with_suffix(".lock")):
                fields = change(read_regular(path) if path.exists() else None)
                if fields is None:
                    return
                temporary = path.with_suffix(".tmp")
                with temporary.open("w") as file:
                    json.dump(fields, file, indent=1)
                    sync(file)
                temporary.rename(path)
                sync_directory(path.parent)
                sync_directory(path.parent.parent)

    def put(self, name: str, fields: Fields) -> None:
        """Write a document, as private as the topic: the process of a query has another umask than the relay."""
        path = self.root / name
        temporary = path.with_name(f"{path.stem}.{os.getpid()}.tmp")
        with os_errors("write", path):
            mode = path.parent.parent.stat().st_mode & 0o770
            path.parent.mkdir(mode=mode, exist_ok=True)
            with removed_on_error(temporary):
                with open(temporary, "w", opener=partial(os.open, mode=mode & 0o660)) as file:
                    json.dump(fields, file)
                    sync(file)
                temporary.rename(path)
            sync_directory(path.parent)

    def remove(self, name: str) -> bool:
        """Remove a document, durably. Return whether there was one."""
        path = self.root / name
        with os_errors("remove", path):
            try:
                path.unlink()
            except FileNotFoundError:
                return False
            sync_directory(path.parent)
        return True

    def names(self, folder: str) -> list[str]:
        """Return the names of the documents in a folder, sorted."""
        return sorted(name for name in self.folders(folder) if name.endswith(".json"))

    def folders(self, folder: str) -> list[str]:
        """Return all names in a folder, of files too: to look at each would cost a call."""
        directory = self.root / folder if folder else self.root
        with os_errors("list", directory):
            return sorted(names(directory)) if directory.is_dir() else []

    # --- partitions ----------------------------------------------------------------------------------------

    def partition(self, topic: str, number: int, owner: Owner) -> DiskPartition:
        """Return a partition."""
        return DiskPartition(self.root / topic / str(number), number, owner, self.mapped, self.grace)

    def uncatalogued(self, topic: str, folder: str, partitions: Mapping[str, int]) -> str | None:
        """Return the message for a directory that the catalog does not name, None if it has no segments."""
        directory = self.root / topic / folder
        if not has_segments(directory):
            return None
        what = f"{directory} has segments, but the catalog does not name this partition"
        shard_id = _shard_of(directory)
        if shard_id is None:
            return f"{what}: restore catalog.json from a copy"
        if shard_id in partitions:
            return (
                f"{what}: its shard {shard_id} has the partition {partitions[shard_id]}. Keep the segments of"
                " one of the two, and move the others out of the log"
            )
        return f'{what}: restore catalog.json from a copy, or add "{shard_id}": {folder} to its partitions'

    def no_topic(self, topic: str, known: Callable[[], list[str]]) -> str:
        """Return the message for a topic that is not there: what is there instead, and what to do."""
        root = self.root
        missing = f"the log {root} has no topic {topic!r}"
        with os_errors("look at", root):
            if not root.exists():
                below = (
                    ""
                    if root.is_absolute()
                    else f" in {Path.cwd()}, where a relative path begins: give an absolute one"
                )
                where = f"this machine has no such directory{below}"
                return f"{missing}: {where}; start the relay that writes it, or check the path"
            if not root.is_dir():
                return f"{missing}: it is a file, and a log is a directory; check the path"
            if (root / "catalog.json").exists():
                return f"{missing}: it is itself a topic of the log {root.parent}; use that path"
        if not (others := ", ".join(known())):
            return (
                f"{missing}, nor any other: it is no log, or empty; start the relay that writes it, or check the path"
            )
        return f"{missing}; it has: {others}; start the relay that writes it, or check the name"

    @contextmanager
    def turn(self, topic: str, now: float) -> Iterator[float | None]:
        """Hold a lock of the topic."""
        with os_errors("maintain", self.root / topic):
            try:
                held = lock(self.root / topic / "upkeep.lock", wait=False)
            except BlockingIOError:
                held = None
        if held is None:
            yield None
        else:
            with held:
                yield now

    @contextmanager
    def without_writers(self, topic: str, partitions: Iterable[int]) -> Iterator[None]:
        """Lock these partitions. Raises SinkLockedError if a writer has one of them open."""
        with ExitStack() as locks:
            for number in partitions:
                directory = self.root / topic / str(number)
                if directory.exists():
                    in_use = f"{directory} is open in a writer: stop the relay first"
                    locks.enter_context(lock_for_writing(directory, in_use))
            yield


def _shard_of(directory: Path) -> str | None:
    """Return the shard that a partition's newest segment names, None if it is damaged."""
    with suppress(SinkError):
        segment = last_segment(directory)
        return None if segment is None else read_origin(segment).shard_id
    return None


def topic_directory(root: Path, topic: str) -> Path:
    """Return the directory of a topic. Raises ConfigurationError if the topic's name is invalid."""
    return root / check_topic_name(topic)
