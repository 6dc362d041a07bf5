"""The record mapping: the form in which every sink writes a record. Readers rely on it: docs/sinks.md.

    key        the partition key, in UTF-8; null if the record has none
    value      the user record's bytes
    timestamp  the approximate arrival time, in milliseconds since the epoch
    headers    the record's origin and its metadata, in the order of HEADERS

Version 1. A later version may append headers. It never changes the name, meaning or encoding of an existing one. If
that becomes necessary, `MAPPING_VERSION` is incremented, and sinks refuse to append to data of another version.

Sinks that write record by record use `RecordMapping.message`. `log/arrow.py` maps many records at once; a test checks
that both agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Final, NamedTuple

from efo.errors import ConfigurationError
from efo.model import Record
from efo.telemetry.trace_context import TraceContext, TraceExtractor as Extractor, from_tags
from efo.third_party_errors import reason_of
from efo_service.relay.errors import RecordRefusedError

__all__ = [
    "HEADERS",
    "MAPPING_VERSION",
    "REQUIRED_HEADERS",
    "TAG_PREFIX",
    "Extractor",
    "Header",
    "Message",
    "RecordMapping",
    "TraceContext",
    "encryption_header",
    "from_tags",
    "load_extractor",
]

MAPPING_VERSION: Final = 1
"""Incremented by each change that an older reader would misread."""

HEADERS: Final = (
    "kinesis.stream",
    "kinesis.shard",
    "kinesis.sequence",
    "kinesis.sub_sequence",
    "kinesis.explicit_hash_key",
    "kinesis.encryption_type",
)
"""The headers with fixed names; their values are in UTF-8. Every record has the first four. The last two are optional.

The encryption type is omitted if it is NONE or if the service does not report it.
"""
REQUIRED_HEADERS: Final = 4
"""How many of HEADERS every record has."""
TAG_PREFIX: Final = "kinesis.tag."
"""Precedes the name of a KPL tag. The value is in UTF-8, or null if the tag has none. A tag name may repeat."""

Header = tuple[str, bytes | None]


class Message(NamedTuple):
    """A record as sinks write it. `key`: None without a partition key. `timestamp`: milliseconds since the epoch."""

    key: bytes | None
    value: bytes
    timestamp: int
    headers: list[Header]


class RecordMapping:
    """Maps the records of one shard. `extract`: returns trace contexts; see `load_extractor`."""

    def __init__(self, stream: str, shard_id: str, extract: Extractor | None = None) -> None:
        self.stream = stream
        self.shard_id = shard_id
        self.extract = extract
        self._constant: list[Header] = [(HEADERS[0], stream.encode()), (HEADERS[1], shard_id.encode())]

    def message(self, record: Record) -> Message:
        """Return a record as sinks write it. Raises RecordRefusedError if the extractor fails."""
        return Message(
            None if record.partition_key is None else record.partition_key.encode(),
            record.data,
            round(record.approximate_arrival_timestamp * 1000),
            self.headers(record),
        )

    def headers(self, record: Record) -> list[Header]:
        """Return a record's headers in order. Raises RecordRefusedError if the extractor fails."""
        headers = [
            *self._constant,
            (HEADERS[2], record.sequence_number.encode()),
            (HEADERS[3], b"%d" % record.sub_sequence_number),
        ]
        if record.explicit_hash_key is not None:
            headers.append((HEADERS[4], record.explicit_hash_key.encode()))
        if (encryption := encryption_header(record)) is not None:
            headers.append((HEADERS[5], encryption.encode()))
        if record.tags:
            headers += [(TAG_PREFIX + name, None if tag is None else tag.encode()) for name, tag in record.tags]
        if self.extract is not None:
            headers += self._trace(record)
        return headers

    def _trace(self, record: Record) -> list[Header]:
        """Return the headers of the record's trace context."""
        assert self.extract is not None  # noqa: S101 - the only caller checks it
        try:
            return list(_trace_headers(self.extract(record)))
        except Exception as error:  # noqa: BLE001 - user code may raise anything
            # The error's text and traceback may quote the record, whose data must not be logged.
            raise RecordRefusedError(
                f"the trace extractor failed at {self.shard_id} {record.sequence_number}: {type(error).__name__}; it"
                " must return a TraceContext or None for every record: fix it, or remove [relay] trace_extractor"
            ) from None


def _trace_headers(found: TraceContext | None) -> Iterator[Header]:
    """Yield the headers of a trace context; an invalid one has none (W3C Trace Context, 3.2)."""
    if found is None or not found.is_valid:
        return
    yield "traceparent", found.traceparent.encode()
    if found.tracestate:
        yield "tracestate", found.tracestate.encode()


def encryption_header(record: Record) -> str | None:
    """Return the value of the encryption type's header, None if it is omitted."""
    return None if record.encryption_type == "NONE" else record.encryption_type


# --- extractors ----------------------------------------------------------------------------------------


def load_extractor(name: str) -> Extractor:
    """Import the extractor `name`, given as package.module:function. Raises ConfigurationError."""
    module, _, attribute = name.partition(":")
    try:
        extractor = getattr(import_module(module), attribute)
    except Exception as error:  # the imported module may raise anything
        raise ConfigurationError(
            f"[relay] trace_extractor {name!r} cannot be imported ({reason_of(error)}): expected"
            " package.module:function, on the Python path of the service"
        ) from error
    if not callable(extractor):
        raise ConfigurationError(f"[relay] trace_extractor {name!r} is not a function")
    found: Extractor = extractor
    return found
