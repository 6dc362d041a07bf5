"""The record mapping: what every sink makes of a record. A contract with whoever reads them: docs/mapping.md.

    key        the partition key, in UTF-8
    value      the user record's bytes
    timestamp  the approximate arrival, in milliseconds since the epoch
    headers    where the record comes from, and what it brought along; in the order of HEADERS

Version 1. A later version may append headers; it never changes the meaning, the name or the encoding of one. Should
that be needed all the same, `MAPPING_VERSION` counts up, and sinks refuse to go on in what another version wrote.

Row-wise sinks use `RecordMapping.message`; `columns.py` does the same for whole groups, and a test holds them equal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Final, NamedTuple

from efo.errors import ConfigurationError
from efo.model import Record
from efo_service.relay.errors import SinkError

MAPPING_VERSION: Final = 1
"""Counts the changes that an older reader would misread."""

HEADERS: Final = (
    "kinesis.stream",
    "kinesis.shard",
    "kinesis.sequence",
    "kinesis.sub_sequence",
    "kinesis.explicit_hash_key",
    "kinesis.encryption_type",
)
"""The headers whose names are fixed, their values in UTF-8: the first four of every record, the last two where known.

The encryption type is left out where it is NONE, as where the service does not tell it.
"""
ALWAYS: Final = 4
"""How many of HEADERS every record has."""
TAG_PREFIX: Final = "kinesis.tag."
"""Before the name of a KPL tag; its value in UTF-8, null where the tag has none. A tag may come twice."""

Header = tuple[str, bytes | None]


class TraceContext(NamedTuple):
    """A W3C trace context: the values of its two headers (W3C Trace Context, level 1)."""

    traceparent: str
    tracestate: str | None = None


Extractor = Callable[[Record], TraceContext | None]
"""Finds the trace context that a record carries, None if it carries none. It must not change from call to call."""

_TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


class Message(NamedTuple):
    """A record as a sink writes it. `timestamp`: milliseconds since the epoch."""

    key: bytes
    value: bytes
    timestamp: int
    headers: list[Header]


class RecordMapping:
    """Maps the records of one shard. `extract`: finds trace contexts; see `load_extractor`."""

    def __init__(self, stream: str, shard_id: str, extract: Extractor | None = None) -> None:
        self.stream = stream
        self.shard_id = shard_id
        self.extract = extract
        self._constant: list[Header] = [(HEADERS[0], stream.encode()), (HEADERS[1], shard_id.encode())]

    def message(self, record: Record) -> Message:
        """Return what a sink writes. Raises SinkError if the extractor fails."""
        return Message(
            record.partition_key.encode(),
            record.data,
            round(record.approximate_arrival_timestamp * 1000),
            self.headers(record),
        )

    def headers(self, record: Record) -> list[Header]:
        """Return a record's headers, in their order. Raises SinkError if the extractor fails."""
        headers = [
            *self._constant,
            (HEADERS[2], record.sequence_number.encode()),
            (HEADERS[3], b"%d" % record.sub_sequence_number),
        ]
        if record.explicit_hash_key is not None:
            headers.append((HEADERS[4], record.explicit_hash_key.encode()))
        if (encryption := told_encryption(record)) is not None:
            headers.append((HEADERS[5], encryption.encode()))
        if record.tags:
            headers += [(TAG_PREFIX + name, None if tag is None else tag.encode()) for name, tag in record.tags]
        if self.extract is not None:
            headers += self._trace(record)
        return headers

    def _trace(self, record: Record) -> list[Header]:
        """Return the headers of the record's trace context."""
        assert self.extract is not None  # noqa: S101 - the only caller has looked
        try:
            return list(_trace_headers(self.extract(record)))
        except Exception as error:  # noqa: BLE001 - the extractor is the operator's: it may raise anything
            # Neither the error's text nor its traceback: they may quote the record, which must not be in the log.
            raise SinkError(
                f"the trace extractor failed at {self.shard_id} {record.sequence_number}: {type(error).__name__}. It"
                " must return a TraceContext or None for every record: correct it, or remove [relay] trace_extractor"
            ) from None


def _trace_headers(found: TraceContext | None) -> Iterator[Header]:
    """Yield the headers of a trace context; one that breaks the W3C's rules is none (W3C, 3.2)."""
    if found is None or _TRACEPARENT.fullmatch(found.traceparent) is None:
        return
    yield "traceparent", found.traceparent.encode()
    if found.tracestate:
        yield "tracestate", found.tracestate.encode()


def told_encryption(record: Record) -> str | None:
    """Return the encryption type that goes into a header."""
    return None if record.encryption_type == "NONE" else record.encryption_type


# --- extractors ----------------------------------------------------------------------------------------


def from_tags(record: Record) -> TraceContext | None:
    """Find a trace context in the KPL's tags `traceparent` and `tracestate`: an Extractor."""
    if not record.tags:
        return None
    tags = dict(record.tags)
    parent = tags.get("traceparent")
    return None if parent is None else TraceContext(parent, tags.get("tracestate"))


def load_extractor(name: str) -> Extractor:
    """Import the extractor that a setting names, as package.module:function. Raises ConfigurationError."""
    module, _, attribute = name.partition(":")
    try:
        extractor = getattr(import_module(module), attribute)
    except Exception as error:  # a module may raise anything while it is imported, and importlib too
        raise ConfigurationError(
            f"[relay] trace_extractor {name!r} cannot be imported ({error!r}): expected package.module:function,"
            " on the Python path of the service"
        ) from error
    if not callable(extractor):
        raise ConfigurationError(f"[relay] trace_extractor {name!r} is not a function of a record")
    found: Extractor = extractor
    return found
