"""Reader offsets: how far each named reader of a topic has read. Retention keeps the records after them.

    <root>/<topic>/readers/<name>.json    {"format": 1, "offsets": {"0": 1200}, "committed_at": 1700000000.5}

A reader with a name commits here, per partition, the offset of the next record that it may still ask for. A partition
that is not in the file counts as 0. The offsets may be too low, but never too high. The file of a reader that does not
come back keeps its records from expiring until an operator removes it
(`efo log readers remove`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from efo.errors import ConfigurationError
from efo_service.log.catalog import check_topic_name
from efo_service.log.files import LogFiles, parse_fields
from efo_service.relay.errors import LogError
from efo_service.relay.files import epoch_seconds, whole_number

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


def commit_reader(files: LogFiles, topic: str, name: str, offsets: Mapping[int, int], now: float) -> None:
    """Write durably that a reader is done with all records before these offsets. Raises SinkFullError, SinkError."""
    fields = {"format": _FORMAT, "offsets": {str(at): offsets[at] for at in sorted(offsets)}, "committed_at": now}
    files.put(_document(topic, name), fields)


def remove_reader(files: LogFiles, topic: str, name: str) -> bool:
    """Forget a reader, durably. Return whether there was one. Raises ConfigurationError and SinkError."""
    return files.remove(_document(topic, name))


def read_readers(files: LogFiles, topic: str) -> list[ReaderCommit]:
    """Return the topic's readers, ordered by name. Raises SinkError."""
    folder = f"{check_topic_name(topic)}/{READERS}"
    found = ((name.removesuffix(".json"), files.read(f"{folder}/{name}")) for name in files.names(folder))
    return [_parse(name, content) for name, content in found if content is not None]


def _document(topic: str, name: str) -> str:
    return f"{check_topic_name(topic)}/{READERS}/{check_reader(name)}.json"


def _parse(name: str, content: bytes) -> ReaderCommit:
    with suppress(LogError, ValueError, KeyError, TypeError, AttributeError):
        fields = parse_fields(content, name, "", _FORMAT)
        offsets = {whole_number(at): whole_number(offset) for at, offset in fields["offsets"].items()}
        return ReaderCommit(name, offsets, epoch_seconds(fields["committed_at"]))
    return ReaderCommit(name, {}, None)


def floor(readers: list[ReaderCommit], partition: int) -> int | None:
    """Return the lowest offset of a partition that any reader may still ask for; None if there are no readers."""
    return min((reader.offsets.get(partition, 0) for reader in readers), default=None)
