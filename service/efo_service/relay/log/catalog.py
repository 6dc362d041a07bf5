"""The catalog of a topic: its stream, and the partition of each shard.

    <root>/<topic>/catalog.json

Each shard gets one partition, and numbers are never reused. So a reader's offsets stay valid through splits and merges.
The file is replaced as a whole, under a lock. So several processes can allocate partitions at once, and a reader never
sees an incomplete file.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from efo.errors import ConfigurationError
from efo_service.relay.errors import LogError, LogOwnerError, LogVersionError, TopicNotFoundError, os_errors
from efo_service.relay.file_lock import lock
from efo_service.relay.log.fencing import sync_directory
from efo_service.relay.log.segments import FORMAT_VERSION

CATALOG: Final = "catalog.json"
_TOPIC: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,248}")


@dataclass(frozen=True, slots=True)
class Catalog:
    """The catalog of one topic. `partitions`: partition numbers by shard id."""

    stream: str
    partitions: Mapping[str, int]


def topic_directory(root: Path, topic: str) -> Path:
    """Return the directory of a topic. Raises ConfigurationError if the topic's name is invalid."""
    if _TOPIC.fullmatch(topic) is None:
        raise ConfigurationError(
            f"{topic!r} is not a valid topic name: use up to 249 letters, digits, '.', '_' and '-', not starting with"
            " '.'"
        )
    return root / topic


def topics(root: Path) -> list[str]:
    """Return the names of all topics of a log."""
    with os_errors("list", root):
        return sorted(path.parent.name for path in root.glob(f"*/{CATALOG}"))


def read_catalog(root: Path, topic: str) -> Catalog:
    """Read a topic's catalog. Raises TopicNotFoundError, LogVersionError, and LogError if the file is invalid."""
    catalog = _read(topic_directory(root, topic) / CATALOG)
    if catalog is None:
        known = ", ".join(topics(root)) or "none"
        raise TopicNotFoundError(
            f"the log {root} has no topic {topic!r}; it has: {known}; start the relay that writes it, or check the name"
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
        raise LogError(f"{path} is not a valid catalog ({error!r}): restore it from a copy") from error
    if version > FORMAT_VERSION:
        raise LogVersionError(
            f"{path} has format version {version}, but this efo supports up to {FORMAT_VERSION}: upgrade efo"
        )
    return catalog


def allocate_partition(root: Path, topic: str, stream: str, shard_id: str) -> int:
    """Return the shard's partition number. If it has none, allocate the next one durably.

    Raises LogOwnerError if the topic belongs to another stream, LogVersionError, LogError and SinkError.
    """
    directory = topic_directory(root, topic)
    path = directory / CATALOG
    with os_errors("write", path):
        directory.mkdir(parents=True, exist_ok=True)
        with lock(directory / "catalog.lock"):
            catalog = _read(path) or Catalog(stream, {})
            if catalog.stream != stream:
                raise LogOwnerError(
                    f"the topic {directory} belongs to the stream {catalog.stream!r}, not to {stream!r}:"
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
