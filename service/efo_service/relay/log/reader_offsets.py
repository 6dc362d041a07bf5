"""What a topic's readers say that they are done with, so that retention takes nothing away before.

    <root>/<topic>/readers/<name>.json    {"format": 1, "offsets": {"0": 1200}, "committed_at": 1700000000.5}

A reader that gives itself a name commits here: per partition, the offset of the next record that it may still ask for.
A partition that it does not name stands at 0. The file is a lower bound: it may lag behind, never run ahead. A reader
that is gone for good holds its records back until somebody removes its file.
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
from efo_service.relay.errors import os_errors
from efo_service.relay.log.catalog import topic_directory
from efo_service.relay.log.fencing import no_leftover, sync_directory

READERS: Final = "readers"
_FORMAT: Final = 1
_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, slots=True)
class ReaderCommit:
    """How far one reader has come. `offsets`: by partition. `committed_at`: seconds since the epoch.

    A file that cannot be understood is a reader at the start of everything: nothing is taken from it.
    """

    name: str
    offsets: Mapping[int, int]
    committed_at: float | None


def check_reader(name: str) -> str:
    """Return the name. Raises ConfigurationError if it cannot be a reader's."""
    if _NAME.fullmatch(name) is None:
        raise ConfigurationError(
            f"{name!r} cannot be a reader's name: up to 128 letters, digits, '.', '_' and '-', not first a '.'"
        )
    return name


def commit_reader(root: Path, topic: str, name: str, offsets: Mapping[int, int], now: float) -> None:
    """Note durably that a reader is done with what is before these offsets. Raises SinkFullError, SinkError."""
    directory = topic_directory(root, topic) / READERS
    path = directory / f"{check_reader(name)}.json"
    temporary = directory / f"{name}.{os.getpid()}.tmp"
    fields = {"format": _FORMAT, "offsets": {str(at): offsets[at] for at in sorted(offsets)}, "committed_at": now}
    with os_errors("write", path):
        directory.mkdir(exist_ok=True)
        with no_leftover(temporary):
            with temporary.open("w") as file:
                json.dump(fields, file)
                file.flush()
                os.fsync(file.fileno())
            temporary.rename(path)
        sync_directory(directory)


def read_readers(root: Path, topic: str) -> list[ReaderCommit]:
    """Return the topic's readers by name. Raises SinkError."""
    directory = topic_directory(root, topic) / READERS
    with os_errors("read", directory):
        return [_read(path) for path in sorted(directory.glob("*.json"))]


def _read(path: Path) -> ReaderCommit:
    try:
        fields = json.loads(path.read_bytes())
        if fields["format"] == _FORMAT:
            offsets = {int(at): int(offset) for at, offset in fields["offsets"].items()}
            return ReaderCommit(path.stem, offsets, float(fields["committed_at"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    return ReaderCommit(path.stem, {}, None)


def floor(readers: list[ReaderCommit], partition: int) -> int | None:
    """Return the first offset of a partition that some reader may still ask for; None without readers."""
    return min((reader.offsets.get(partition, 0) for reader in readers), default=None)
