"""A topic's catalogue: which stream it is for, and which partition of the log belongs to which shard.

    <root>/<topic>/catalog.json

Every shard gets a partition of its own, once, and no number is used again: a reader's offsets stay true
through every split and merge. The file is replaced as a whole, under a lock, so that several processes may
allot at once and a reader never sees half of it.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from efo.errors import ConfigurationError
from efo_service.relay.errors import LogError, LogOwnerError, LogVersionError, TopicNotFoundError, os_errors
from efo_service.relay.log.fencing import sync_directory
from efo_service.relay.log.segments import FORMAT_VERSION

CATALOG: Final = "catalog.json"
_TOPIC: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,248}")


@dataclass(frozen=True, slots=True)
class Catalog:
    """One topic. `partitions` gives the partition number of each shard id."""

    stream: str
    partitions: Mapping[str, int]


def topic_directory(root: Path, topic: str) -> Path:
    """Return where a topic is. Raises ConfigurationError for a name that cannot be a topic's."""
    if _TOPIC.fullmatch(topic) is None:
        raise ConfigurationError(
            f"{topic!r} cannot be a topic: up to 249 letters, digits, '.', '_' and '-', not first a '.'"
        )
    return root / topic


def topics(root: Path) -> list[str]:
    """Return the names of the topics that a log has."""
    with os_errors("list", root):
        return sorted(path.parent.name for path in root.glob(f"*/{CATALOG}"))


def read_catalog(root: Path, topic: str) -> Catalog:
    """Read a topic's catalogue.

    Raises TopicNotFoundError, LogVersionError, LogError if it cannot be understood.
    """
    catalog = _read(topic_directory(root, topic) / CATALOG)
    if catalog is None:
        known = ", ".join(topics(root)) or "none"
        raise TopicNotFoundError(
            f"the log {root} has no topic {topic!r}; it has: {known}. Start the relay that writes it, or check the name"
        )
    return catalog


def _read(path: Path) -> Catalog | None:
    with os_errors("read", path):
        if not path.exists():
            return None
        content = path.read_bytes()
    try:
        fields = json.loads(content)
        version = int(fields["format"])
        catalog = Catalog(str(fields["stream"]), {str(k): int(v) for k, v in fields["partitions"].items()})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LogError(f"{path} cannot be understood ({error!r}): restore it from a copy") from error
    if version > FORMAT_VERSION:
        raise LogVersionError(f"{path} has the format {version}, this efo knows up to {FORMAT_VERSION}: upgrade efo")
    return catalog


def allot_partition(root: Path, topic: str, stream: str, shard_id: str) -> int:
    """Return the shard's partition number; the first time, allot the next one and make that durable.

    Raises LogOwnerError if the topic is another stream's, LogVersionError, LogError, SinkError.
    """
    directory = topic_directory(root, topic)
    path = directory / CATALOG
    with os_errors("write", path):
        directory.mkdir(parents=True, exist_ok=True)
        with lock(directory / "catalog.lock"):
            catalog = _read(path) or Catalog(stream, {})
            if catalog.stream != stream:
                raise LogOwnerError(
                    f"the topic {directory} is for the stream {catalog.stream!r}, not for {stream!r}:"
                    " choose another topic or another directory"
                )
            if shard_id in catalog.partitions:
                return catalog.partitions[shard_id]
            number = max(catalog.partitions.values(), default=-1) + 1
            _replace(path, Catalog(stream, {**catalog.partitions, shard_id: number}))
    return number


def _replace(path: Path, catalog: Catalog) -> None:
    fields = {"format": FORMAT_VERSION, "stream": catalog.stream, "partitions": dict(catalog.partitions)}
    temporary = path.with_suffix(".tmp")
    with temporary.open("w") as file:
        json.dump(fields, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    sync_directory(path.parent)
    sync_directory(path.parent.parent)


def lock(path: Path, *, wait: bool = True) -> IO[bytes]:
    """Lock a file, made if need be; closing it, or the end of the process however it ends, unlocks it.

    Raises BlockingIOError if another has it and we do not `wait`.
    """
    file = path.open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        file.close()
        raise
    return file
