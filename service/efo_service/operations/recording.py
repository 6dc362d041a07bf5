"""Records what SubscribeToShard sends for the shards of a stream, as a fan-out consumer of its own receives it.

Each call is read to its end, and the next one continues after it. So a recording has what AWS does at the end of a
subscription, and any client can read its replay. The order of shards is that of every consumer (rules R1 and R2).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Final, Literal

import trio
from rich.cells import cell_len, set_cell_size

from efo.checks import printable
from efo.errors import EfoError, ProtocolError, ServiceError, TransportError
from efo.exception_groups import collapse_groups
from efo.kinesis.client import KinesisClient
from efo.kinesis.connection_pool import ConnectionPool
from efo.kinesis.pacing import SubscribePacer
from efo.kinesis.response_stream import ResponseStream
from efo.kinesis.service_call import ServiceCaller
from efo.kinesis.subscribe_call import OPERATION, request_body
from efo.model import Checkpoint, Lease, Position, Record, Shard
from efo.protocol.backoff import Backoff
from efo.protocol.eventstream import EventStreamDecoder
from efo.protocol.lineage import child_leases, is_startable, leases_to_create, without_ancestors
from efo.protocol.messages import SubscribeToShardEvent, parse_message
from efo.testing.recording.file import RecordedCall, RecordedShard
from efo.testing.recording.recorder import RecordingWriter
from efo_service.errors import UsageError
from efo_service.relay.jsonlines import Encoding, line
from efo_service.relay.mapping import RecordMapping

_PAUSE: Final = 1.0
_MAX_PAUSE: Final = 30.0
"""Seconds before a call is repeated after a failure: at first, doubled each time, and at most."""


class StreamRecorder:
    """Records a stream. `consumer_arn`: of a fan-out consumer that nobody else uses.

    `subscribes_per_second`: of all shards together (rule R6). `note`: gets a text about each failure, without data.
    """

    def __init__(
        self,
        kinesis: KinesisClient,
        consumer_arn: str,
        writer: RecordingWriter,
        *,
        subscribes_per_second: float,
        note: Callable[[str], None],
    ) -> None:
        self._kinesis = kinesis
        self._consumer_arn = consumer_arn
        self._writer = writer
        self._note = note
        self._limiter = SubscribePacer(subscribes_per_second)
        self._pool = ConnectionPool(kinesis.connect, address=kinesis.authority)
        self._caller = ServiceCaller(
            self._pool,
            sign=kinesis.sign,
            authority=kinesis.authority,
            scheme=kinesis.scheme,
            correct=kinesis.correct,
        )
        self._leases: dict[str, Lease] = {}
        self._started: set[str] = set()
        self._only: Collection[str] = ()
        self._pinned = 0.0

    async def run(self, start: Position, only: Collection[str] = ()) -> None:
        """Record until cancelled, or until every shard has ended. `only`: these shards and their descendants.

        Raises UsageError for an unknown shard, and the first ServiceError or TransportError that a repetition of the
        call cannot cure.
        """
        self._only = only
        shards = await self._list()
        self._pinned = (self._kinesis.service_time or self._kinesis.clock)()
        first = await self._first_leases(shards, start)
        self._leases = {lease.key: lease for lease in first}
        with collapse_groups():
            async with trio.open_nursery() as connections:
                await connections.start(self._pool.run)
                await connections.start(self._limiter.run)
                async with trio.open_nursery() as nursery:
                    self._start_shards(nursery, start)
                connections.cancel_scope.cancel()

    async def _list(self) -> Sequence[Shard]:
        """List the shards, and write them."""
        shards = await self._kinesis.control_plane.list_shards()
        self._writer.shards(self._kinesis.stream, tuple(RecordedShard.of(shard) for shard in shards))
        return shards

    async def _first_leases(self, shards: Sequence[Shard], start: Position) -> list[Lease]:
        if unknown := sorted(set(self._only) - {shard.shard_id for shard in shards}):
            raise UsageError(f"--shard {unknown[0]}: the stream {self._kinesis.stream} has no such shard")
        initial = Checkpoint(start.type.value)
        if self._only:
            return [Lease(key, initial) for key in self._only]
        if start.timestamp is not None:
            opened = await self._kinesis.control_plane.shards_open_at(start.timestamp)
            shards = without_ancestors(shards, opened)
        return leases_to_create(shards, {}, initial)

    def _start_shards(self, nursery: trio.Nursery, start: Position) -> None:
        """Start the shards that may begin (rule R1)."""
        for key, lease in self._leases.items():
            if key not in self._started and is_startable(lease, self._leases):
                self._started.add(key)
                is_child = lease.checkpoint == Checkpoint.TRIM_HORIZON
                nursery.start_soon(
                    self._record_shard, nursery, lease, Position.trim_horizon() if is_child else start, start
                )

    async def _record_shard(self, nursery: trio.Nursery, lease: Lease, position: Position, start: Position) -> None:
        """Record a shard to its end, then start its children (rule R2)."""
        backoff = Backoff(initial=_PAUSE, limit=_MAX_PAUSE)
        while True:
            await self._limiter.acquire(lease.key, renewal=False)
            try:
                response = await self._caller.call(OPERATION, request_body(self._consumer_arn, lease.key, position))
            except EfoError as error:
                position = self._pinned_position(position)
                await self._pause(lease.key, error, backoff.next())
                continue
            self._limiter.succeeded(lease.key)
            last, failure = await self._record_call(lease.key, position, response)
            if last is not None and last.is_shard_end:
                break
            if last is not None:
                backoff.reset()
                position = Position.after(last.continuation_sequence_number or "")
            else:
                position = self._pinned_position(position)
            if failure is not None:
                await self._pause(lease.key, failure, backoff.next())
        self._leases[lease.key] = replace(lease, checkpoint=Checkpoint.SHARD_END)
        await self._list()
        for child in child_leases(last.child_shards or (), self._leases):
            # With `only`, a parent that is not recorded must not be waited for.
            parents = tuple(parent for parent in child.parents if not self._only or parent in self._leases)
            self._leases[child.key] = replace(child, parents=parents)
        self._start_shards(nursery, start)

    def _pinned_position(self, position: Position) -> Position:
        """Return where a call starts after a failed one: a failed first call at LATEST skips nothing (rule R4)."""
        return Position.at_timestamp(self._pinned) if position == Position.latest() else position

    async def _record_call(
        self, shard: str, position: Position, response: ResponseStream
    ) -> tuple[SubscribeToShardEvent | None, EfoError | None]:
        """Record a response to its end; return its last event, and why it ended if that was a failure."""
        call = self._writer.begin(
            RecordedCall(self._kinesis.stream, shard, position.type.value, position.sequence_number, position.timestamp)
        )
        last: SubscribeToShardEvent | None = None
        failure: EfoError | None = None
        clean = False
        decoder = EventStreamDecoder()
        try:
            while data := await response.receive():
                self._writer.data(call, data)
                decoder.receive_data(data)
                while (message := decoder.next_message()) is not None:
                    parsed = parse_message(message)
                    if isinstance(parsed, SubscribeToShardEvent):
                        last = parsed
                    elif parsed is not None:
                        failure = parsed
            clean = True
        except (TransportError, ProtocolError, ServiceError) as error:
            failure = error
        finally:
            response.close()
            self._writer.end(call, clean=clean)
        return last, failure

    async def _pause(self, shard: str, error: EfoError, seconds: float) -> None:
        """Wait before the next call of a shard. Raises the error if a repetition would not help."""
        if not error.retryable:
            raise error
        self._note(f"{shard}: {error}: again in {seconds:g} s")
        await trio.sleep(seconds)


Format = Literal["text", "json", "raw"]
"""text: a line to read. json: the line of the sink `jsonl`, which `efo log export` has too. raw: the data as it is."""

_BYTES_PER_CELL: Final = 4
"""Of UTF-8, at most."""


def matcher(text: str | None, pattern: str | None, key: str | None) -> Callable[[Record], bool] | None:
    """Return a function that says whether a record matches all of these; None if none is given.

    `text` is in the data, `pattern` is a regular expression that the data contains, `key` is the partition key. Data is
    read as UTF-8. Raises UsageError if the pattern is not a regular expression.
    """
    tests: list[Callable[[Record], bool]] = []
    if key is not None:
        tests.append(lambda record: record.partition_key == key)
    if text is not None:
        wanted = text.encode()
        tests.append(lambda record: wanted in record.data)
    if pattern is not None:
        try:
            search = re.compile(pattern).search
        except re.error as error:
            raise UsageError(f"--regex {pattern}: {error}") from error
        tests.append(lambda record: search(record.data.decode(errors="replace")) is not None)
    return (lambda record: all(test(record) for test in tests)) if tests else None


def formatter(form: Format, stream: str, *, encoding: Encoding, width: int | None) -> Callable[[str, Record], bytes]:
    """Return a function that returns the line of a record of a shard.

    `encoding`: of the data in JSON. `width`: columns of a line of text at most; None: any. The function raises
    UsageError if the data does not have the encoding.
    """
    match form:
        case "text":
            return partial(_text, width)
        case "raw":
            return lambda _shard_id, record: record.data + b"\n"
        case "json":
            mappings: dict[str, RecordMapping] = {}
            return partial(_json, mappings, stream, encoding)


def _text(width: int | None, shard_id: str, record: Record) -> bytes:
    at = record.approximate_arrival_timestamp
    time = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z") if at else "-"
    data = record.data if width is None else record.data[: _BYTES_PER_CELL * width]
    key = "-" if record.partition_key is None else record.partition_key
    text = printable(f"{time} {shard_id} {key} {data.decode(errors='backslashreplace')}")
    if width is not None and cell_len(text) > width:
        text = set_cell_size(text, max(0, width - 1)) + "…"
    return text.encode(errors="backslashreplace") + b"\n"


def without_controls(document: bytes) -> bytes:
    """Return JSON with all characters escaped that are not printable. Encoders leave some that terminals obey."""
    text = document.decode()
    if text.replace("\n", "").isprintable():  # line breaks are between values, never in them
        return document
    return "".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text).encode()


def _json(mappings: dict[str, RecordMapping], stream: str, encoding: Encoding, shard_id: str, record: Record) -> bytes:
    mapping = mappings.get(shard_id)
    if mapping is None:
        mapping = mappings[shard_id] = RecordMapping(stream, shard_id)
    try:
        return without_controls(line(record, mapping, encoding))
    except UnicodeDecodeError as error:
        raise UsageError(
            f"the data of {shard_id} {record.sequence_number} is not UTF-8 ({error.reason}): use --encoding base64"
        ) from error
