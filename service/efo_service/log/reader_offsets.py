"""Reader offsets: how far each named reader of a topic has read. Retention keeps the records after them.

    <root>/<topic>/readers/<name>.json    {"format": 1, "offsets": {"0": 1200}, "committed_at": 1700000000.5}

A reader with a name commits here, per partition, the offset of the next record that it may still ask for. A partition
that is not in the file counts as 0. The offsets may be too low, but never too high. The file of a reader that does not
come back keeps its records from expiring until an operator removes it
(`efo log readers remove`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from efo.errors import ConfigurationError
from efo_service.log.catalog import topic_directory
from efo_service.log.fencing import removed_on_error
from efo_service.relay.errors import os_errors
from efo_service.relay.files import epoch_seconds, parse_json, read_regular, whole_number
from efo_service.relay.storage import sync, sync_directory

READERS: Final = "readers"
_FORMAT: Final = 1
_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, slots=True)
class ReaderCommit:
    """The offsets of one reader, by partition. `committed_at`: seconds since the epoch, None if its file is invalid.

    A reader with an invalid file counts as one at offset 0 of every partition, so that nothing expires.
    """

    name: str
    offsets: Mapping[int, int]
    committed_at: float | None


def check_reader(name: str) -> str:
    """Return the name. Raises ConfigurationError if it is not a valid reader name."""
    if _NAME.fullmatch(name) is None:
        raise ConfigurationError(
            f"{name!r} is not a valid reader name: use up to 128 letters, digits, '.', '_' and '-', not starting with"
            " '.'"
        )
    return name


def commit_reader(root: Path, topic: str, name: str, offsets: Mapping[int, int], now: float) -> None:
    """Write durably that a reader is done with all records before these offsets. Raises SinkFullError, SinkError."""
    directory = topic_directory(root, topic) / READERS
    path = directory / f"{check_reader(name)}.json"
    temporary = directory / f"{name}.{os.getpid()}.tmp"
    fields = {"format": _FORMAT, "offsets": {str(at): offsets[at] for at in sorted(offsets)}, "committed_at": now}
    with os_errors("write", path):
        mode = directory.parent.stat().st_mode & 0o770  # as the relay's: the process of a query has another umask
        directory.mkdir(mode=mode, exist_ok=True)
        with removed_on_error(temporary):
            with open(temporary, "w", opener=partial(os.open, mode=mode & 0o660)) as file:
                json.dump(fields, file)
                sync(file)
            temporary.rename(path)
        sync_directory(directory)


def remove_reader(root: Path, topic: str, name: str) -> bool:
    """Remove the file of a reader, durably. Return whether there was one. Raises ConfigurationError and SinkError."""
    path = topic_directory(root, topic) / READERS / f"{check_reader(name)}.json"
    with os_errors("remove", path):
        try:
            path.unlink()
        except FileNotFoundError:
            return False
        sync_directory(path.parent)
    return True


def read_readers(root: Path, topic: str) -> list[ReaderCommit]:
    """Return the topic's readers, ordered by name. Raises SinkError."""
    directory = topic_directory(root, topic) / READERS
    with os_errors("read", directory):
        paths = sorted(directory.glob("*.json"))
    return [_read(path) for path in paths]


def _read(path: Path) -> ReaderCommit:
    with os_errors("read", path):
        content = read_regular(path)
    try:
        fields = parse_json(content)
        if fields["format"] == _FORMAT:
            offsets = {whole_number(at): whole_number(offset) for at, offset in fields["offsets"].items()}
            return ReaderCommit(path.stem, offsets, epoch_seconds(fields["committed_at"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    return ReaderCommit(path.stem, {}, None)


def floor(readers: list[ReaderCommit], partition: int) -> int | None:
    """Return the lowest offset of a partition that any reader may still ask for; None if there are no readers."""
    return min((reader.offsets.get(partition, 0) for reader in readers), default=None)
