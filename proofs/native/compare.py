"""Either step reads an input; their records, counts and errors are the same, by type and by text.

An input is a byte that chooses the kind, a byte of choices, and what is read: the JSON of an event, frames, the JSON of
a page of GetRecords, the body of an aggregate, or frames of HTTP/2.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from hashlib import md5
from itertools import chain
from typing import Final, TypeVar

import msgspec
import pyarrow as pa

from efo.errors import EfoError
from efo.model import MAX_HASH_KEY, Batch, HashKeyRange, Record
from efo.protocol.aggregate_message import MAX_FIELDS
from efo.protocol.aggregation import AGGREGATE_KEY, MAGIC, AggregateMode
from efo.protocol.deaggregation import deaggregate
from efo.protocol.event_decoder import EventDecoder
from efo.protocol.eventstream import encode
from efo.protocol.frame_meter import FrameMeter
from efo.protocol.frame_splitter import Data, FrameSplitter
from efo.protocol.lazy_batch import batch_of, records_of
from efo.protocol.messages import SubscribeToShardEvent
from efo.protocol.native import Packed, Read, Step, StreamData
from efo.protocol.polling import parse_page
from proofs.fuzz.cursor import cut
from proofs.fuzz.target import require

EVENT, FRAMES, PAGE, AGGREGATE, HTTP2 = range(5)
EVENT_HEADERS: Final = {
    ":message-type": "event",
    ":event-type": "SubscribeToShardEvent",
    ":content-type": "application/x-amz-json-1.1",
}
FIRST: Final = encode(EVENT_HEADERS, b'{"Records":[],"MillisBehindLatest":0,"ContinuationSequenceNumber":"1"}')
"""The native step reads events with the headers of one that the Python step has read: an input comes after this one."""
MAX_SHOWN: Final = 400

_MODES: Final = tuple(AggregateMode)
_EIGHTH: Final = MAX_HASH_KEY // 8


T = TypeVar("T")


class CountedStep:
    """The native step, and how often it was asked and read something."""

    def __init__(self, step: Step) -> None:
        self.asked = self.read = 0
        self._step = step

    def split_data(
        self, data: bytes, start: int, partial: bytes, known: Container[int], max_joined: int, max_frames: int
    ) -> tuple[list[StreamData], int, bool] | None:
        """Split frames of HTTP/2."""
        return self._counted(self._step.split_data(data, start, partial, known, max_joined, max_frames))

    def event(
        self, first: bytes | memoryview, later: list[bytes | memoryview], start: int, length: int, headers: bytes
    ) -> Read | None:
        """Read an event."""
        return self._counted(self._step.event(first, later, start, length, headers))

    def packed(
        self, first: bytes | memoryview, later: list[bytes | memoryview], start: int, length: int, headers: bytes
    ) -> Packed | None:
        """Read an event as packed columns."""
        return self._counted(self._step.packed(first, later, start, length, headers))

    def page(self, body: bytes) -> Read | None:
        """Read a page."""
        return self._counted(self._step.page(body))

    def plain_size(self, records: tuple[Record, ...]) -> int | None:
        """Add up the data."""
        return self._counted(self._step.plain_size(records))

    def aggregates(
        self, records: tuple[Record, ...], max_users: int, kept: tuple[bytes, bytes] | None
    ) -> list[tuple[Record, ...] | None]:
        """Read aggregates."""
        return [self._counted(users) for users in self._step.aggregates(records, max_users, kept)]

    def _counted(self, result: T) -> T:
        self.asked += 1
        self.read += result is not None
        return result


def compare(data: bytes, step: Step) -> None:
    """Read an input with either step. Raises AssertionError if the answers differ."""
    read = _READERS[data[0] % len(_READERS)] if data else _events
    by_python, by_native = ("; ".join(_reported(read, data[1:2], data[2:], each)) for each in (None, step))
    if by_python != by_native:
        at = next(n for n, pair in enumerate(zip(by_python + "$", by_native + "$", strict=False)) if len({*pair}) > 1)
        part = slice(max(0, at - MAX_SHOWN // 2), at + MAX_SHOWN // 2)
        require(False, f"Python: {by_python[part]} -- native: {by_native[part]} -- of {data!r}")


def _reported(read: Reader, choice: bytes, data: bytes, step: Step | None) -> Iterator[str]:
    """Yield what a step returns, value by value, and at last the error that it raises."""
    try:
        for value in read(choice[0] if choice else 0, data, step):
            yield repr(value)
    except (EfoError, msgspec.MsgspecError, ValueError, RecursionError) as error:
        yield f"{type(error).__name__}: {error}"


def _events(choice: int, data: bytes, step: Step | None) -> Iterator[object]:
    return _frames(choice, encode(EVENT_HEADERS, data), step)


def _frames(choice: int, data: bytes, step: Step | None) -> Iterator[object]:
    """Read frames to records, and then to columns: nobody looks at an event before all are read."""
    for wants_records in (True, False):
        decoder, events = EventDecoder(step, shortest=0, wants_records=wants_records), list[Iterator[object]]()
        try:
            for chunk in cut(FIRST + data, choice):
                decoder.receive_data(chunk)
                while (received := decoder.next_event()) is not None:
                    events.append(_shown(*received))
        finally:
            yield from chain.from_iterable(events)
        yield decoder.pending


def _shown(event: SubscribeToShardEvent, length: int) -> Iterator[object]:
    """Yield what an application sees of an event: columns first, since a look at the records makes them."""
    batch = batch_of(Batch("s", "shard", event.records, None, 0, 0))
    records = records_of(batch)
    yield len(batch), (records[0], records[-1]) if records else ()
    yield _arrow(batch)
    yield batch, event, length


def _arrow(batch: Batch) -> object:
    try:
        columns = batch.to_arrow()
    except (pa.ArrowException, OverflowError) as error:  # a time beyond what Arrow has
        return type(error), str(error)
    columns.validate(full=True)
    at = columns.schema.get_field_index("approximate_arrival_timestamp")
    times = columns.column(at).cast(pa.int64())  # Python has fewer years
    return columns.schema.to_string(), times.to_pylist(), columns.drop_columns([columns.schema.names[at]]).to_pylist()


def _page(_choice: int, data: bytes, step: Step | None) -> Iterator[object]:
    yield parse_page(data, step)


def _aggregate(choice: int, data: bytes, step: Step | None) -> Iterator[object]:
    """Read an aggregate in a shard of three eighths of the hash keys, or of all after an eighth."""
    first = choice & 7
    end = min(8, first + (8 if choice & 8 else 3))
    shard = HashKeyRange(str(first * _EIGHTH), str(MAX_HASH_KEY if end == 8 else end * _EIGHTH - 1))
    mode = _MODES[choice >> 4 & 3]
    record = Record("42", 1.5, MAGIC + data + md5(data, usedforsecurity=False).digest(), AGGREGATE_KEY, "KMS")
    ancestors = [HashKeyRange("0", str(MAX_HASH_KEY))] if choice & 0x40 else []
    max_fields = 3 if choice & 0x80 else MAX_FIELDS
    yield deaggregate(record, shard, mode, ancestors=ancestors, max_fields=max_fields, step=step)


def _http2(choice: int, data: bytes, step: Step | None) -> Iterator[object]:
    """Read frames of HTTP/2 as a connection does: what is for h2, and before it the DATA of each stream."""
    splitter, meter = FrameSplitter({1, 3}, step), FrameMeter("peer")
    content: dict[int, bytes] = {}
    for piece in cut(data, choice):
        at = 0
        while at < len(piece) and (split := splitter.data_alone(piece, at, 1 + choice % 5)) is not None:
            streams, at = split
            meter.passed(splitter.partial)
            for stream_id, size, chunks in streams:
                require(size == sum(map(len, chunks)), "the size of chunks is another one")
                content[stream_id] = content.get(stream_id, b"") + b"".join(chunks)
        for item in (item for part in meter.steps(piece[at:], 0.0) for item in splitter.receive_data(part)):
            if isinstance(item, Data):
                content[item.stream_id] = content.get(item.stream_id, b"") + item.content
            else:
                yield sorted(content.items()), item
                content = {}
    yield sorted(content.items()), splitter.partial


Reader = Callable[[int, bytes, Step | None], Iterator[object]]
_READERS: Final[tuple[Reader, ...]] = (_events, _frames, _page, _aggregate, _http2)
