"""Applies the fault script to calls, listings and subscriptions, and to the body of a subscription."""

from __future__ import annotations

import copy
import math
import struct
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final
from zlib import crc32

import msgspec
import trio

from efo.protocol import eventstream
from efo.protocol.eventstream import EventStreamDecoder
from efo.protocol.messages import SubscribeToShardEvent, parse_message
from efo.testing.errors import FakeError
from efo.testing.faults.kinds import (
    RESPONSE_FAULTS,
    BitFlip,
    ChangeSettings,
    Drip,
    EmptyResponse,
    EndStream,
    ErrorMessage,
    Fault,
    GoAway,
    NoInitialResponse,
    NoResponse,
    OversizedData,
    OversizedMessage,
    Refuse,
    Reorder,
    Repeat,
    Reset,
    Silence,
    Site,
    StaleListing,
    Stall,
    StreamException,
    TcpCut,
    TlsCut,
    Truncate,
    WindowOverflow,
    WindowOverrun,
)
from efo.testing.faults.script import FaultScript, FaultTarget
from efo.testing.faults.wire import Body, Chunk, Pause
from efo.testing.state.shards import ShardState
from efo.testing.state.streams import StreamState


class FaultInjector:
    """Applies a fault script. `clock` returns seconds since the fake's start."""

    def __init__(self, script: FaultScript, clock: Callable[[], float]) -> None:
        self._script = script
        self._clock = clock

    def call(self, operation: str, stream: str | None = None, shard: str | None = None) -> float:
        """Return the delay of a call's response in seconds; infinity: no response, and the call has no effect.

        Raises FakeError if the script rejects the call.
        """
        match self._script.take(Site.CALL, FaultTarget(operation, stream, shard), self._clock()):
            case Refuse(code=code, message=message, status=status):
                raise FakeError(code, message, status)
            case NoResponse(seconds=seconds):
                return math.inf if seconds is None else seconds
            case _:
                return 0.0

    def body(self, body: Body, stream: str, shard: str) -> Body:
        """Return the body of a subscription, changed by the script's faults."""
        return FaultyBody(body, self._script, FaultTarget("SubscribeToShard", stream, shard), self._clock)

    def response(self, operation: str, body: bytes | Body) -> bytes | Body:
        """Return the body of a response of another operation, changed by the script's faults."""
        if not isinstance(body, bytes) or not self._script:
            return body
        fault = self._script.take(Site.EVENT, FaultTarget(operation), self._clock())
        return FaultyResponse(effects(fault, body)) if isinstance(fault, RESPONSE_FAULTS) else body

    def listing(self, stream: StreamState, now_millis: int) -> list[ShardState]:
        """Return the shards for ListShards, stale if the script has a StaleListing, in the order of their ids."""
        shards = list(stream.shards.values())
        fault = self._script.take(Site.LISTING, FaultTarget("ListShards", stream.name), self._clock())
        if not isinstance(fault, StaleListing):
            return shards
        last = len(shards) if fault.last is None else fault.last
        moment = now_millis - int(fault.seconds * 1000)
        stale = [old for shard in shards[fault.first : last] if (old := _as_of(shard, moment)) is not None]
        return [*shards[: fault.first], *stale, *shards[last:]]


def stream_of_consumer(consumer_arn: str) -> str:
    """Return the name of the stream in a consumer's ARN. The stream may not exist."""
    return consumer_arn.partition("/consumer/")[0].rpartition("/")[2]


def _as_of(shard: ShardState, millis: int) -> ShardState | None:
    """Return the shard as it was at this time; None if it did not exist. Initial shards always exist."""
    if shard.parents and shard.opened_at > millis:
        return None
    if shard.closed_at is None or shard.closed_at <= millis:
        return shard
    old = copy.copy(shard)
    old.closed_at, old.ending_number, old.children = None, None, ()
    return old


class FaultyBody:
    """A body that sends the chunks of `body`, changed by the script's faults.

    `clock` returns seconds since the fake's start.
    """

    def __init__(self, body: Body, script: FaultScript, target: FaultTarget, clock: Callable[[], float]) -> None:
        self._body = body
        self._script = script
        self._target = target
        self._clock = clock
        self._due: deque[Chunk | None] = deque()
        self._held: bytes | None = None
        self._started = False
        self._waiting = trio.CancelScope()
        script.listeners.add(self._wake)

    async def next_chunk(self) -> Chunk | None:
        """Wait for the next chunk and return it; return None at the end."""
        while not self._due:
            # A fault that is due between events cancels the wait. No chunk is lost by the cancellation.
            with trio.CancelScope(deadline=self._deadline()) as self._waiting:
                self._receive(await self._body.next_chunk())
                continue
            if fault := self._script.take(Site.EVENT, self._target, self._clock(), occasion=False):
                self._apply(fault, None)
        return self._due.popleft()

    def close(self) -> None:
        """Release the body."""
        self._script.listeners.discard(self._wake)
        self._body.close()

    def _wake(self) -> None:
        self._waiting.cancel()

    def _deadline(self) -> float:
        now = self._clock()
        return trio.current_time() + max(0.0, self._script.due(self._target, now) - now)

    def _receive(self, chunk: Chunk | None) -> None:
        is_start, self._started = not self._started, True  # also without a script: a fault may be added later
        if not isinstance(chunk, bytes) or not self._script:
            self._release_held()
            self._due.append(chunk)
            return
        fault = None
        if is_start or _is_event(chunk):
            site = Site.START if is_start else Site.EVENT
            fault = self._script.take(site, self._target, self._clock())
        if isinstance(fault, Reorder) and self._held is None:
            self._held = chunk
            return
        if not _may_be_followed(chunk):
            self._release_held()  # nothing may follow the event that ends the shard
        self._apply(fault, chunk)
        self._release_held()

    def _apply(self, fault: Fault | None, chunk: bytes | None) -> None:
        self._due.extend([chunk] if fault is None or isinstance(fault, Reorder) else effects(fault, chunk))

    def _release_held(self) -> None:
        if self._held is not None:
            self._due.append(self._held)
            self._held = None


class FaultyResponse:
    """The body of a response that has no events, as chunks that a fault has changed."""

    def __init__(self, chunks: Iterable[Chunk | None]) -> None:
        self._chunks = deque(chunks)

    async def next_chunk(self) -> Chunk | None:
        """Return the next chunk; None at the end."""
        await trio.lowlevel.checkpoint()
        return self._chunks.popleft() if self._chunks else None

    def close(self) -> None:
        """Release the body."""
        self._chunks.clear()


def _parsed(message: bytes) -> object:
    decoder = EventStreamDecoder()
    decoder.receive_data(message)
    return parse_message(next(decoder.messages()))


def _is_event(message: bytes) -> bool:
    return isinstance(_parsed(message), SubscribeToShardEvent)


def _may_be_followed(message: bytes) -> bool:
    """Return whether this is an event that other events may follow."""
    event = _parsed(message)
    return isinstance(event, SubscribeToShardEvent) and not event.is_shard_end


_PRELUDE_LENGTH: Final = 12
_CRC_LENGTH: Final = 4
_JSON: Final = "application/x-amz-json-1.1"


def effects(fault: Fault, event: bytes | None) -> list[Chunk | None]:  # noqa: PLR0911 - a table
    """Return the chunks that are sent instead of `event`; a chunk of None ends the stream.

    `event`: None if the fault fires between events. Reorder is not supported here, because it needs two events.
    """
    rest: list[Chunk | None] = [] if event is None else [event]
    match fault:
        case Reset() | TcpCut() | TlsCut() | GoAway(immediate=True):
            return [fault]
        case GoAway() | ChangeSettings() | Silence() | WindowOverrun() | WindowOverflow() | OversizedData():
            return [fault, *rest]
        case StreamException(code=code, message=message):
            headers = {":message-type": "exception", ":exception-type": code, ":content-type": _JSON}
            return [eventstream.encode(headers, msgspec.json.encode({"message": message})), None]
        case ErrorMessage(code=code, message=message):
            headers = {":message-type": "error", ":error-code": code, ":error-message": message}
            return [eventstream.encode(headers, b""), None]
        case EndStream():
            return [None]
        case OversizedMessage(length=length):
            lengths = struct.pack(">II", length, 0)
            return [lengths + struct.pack(">I", crc32(lengths)), *rest]
        case EmptyResponse(seconds=seconds):
            return [Pause(seconds), *rest]
        case NoInitialResponse():
            return []
        case _:
            return _event_effects(fault, event or b"")


def _event_effects(fault: Fault, event: bytes) -> list[Chunk | None]:
    """Return the chunks for a fault that needs an event."""
    match fault:
        case Truncate(keep=keep):
            return [event[: len(event) // 2 if keep is None else keep], None]
        case BitFlip(part=part, bit=bit):
            return [flip(event, part, bit)]
        case Stall(seconds=seconds):
            return [Pause(seconds), event]
        case Drip(bytes_per_second=rate, piece=piece):
            pieces = [event[at : at + piece] for at in range(0, len(event), piece)]
            return [chunk for data in pieces for chunk in (data, Pause(len(data) / rate))]
        case Repeat(copies=copies):
            return [event] * (1 + copies)
        case _:
            raise TypeError(f"{fault} has no effect on an event")


def flip(message: bytes, part: str, bit: int) -> bytes:
    """Return the message with one bit of one part inverted."""
    (headers_length,) = struct.unpack_from(">I", message, 4)
    headers_end = _PRELUDE_LENGTH + headers_length
    bounds = {
        "prelude": (0, _PRELUDE_LENGTH),
        "headers": (_PRELUDE_LENGTH, headers_end),
        "payload": (headers_end, len(message) - _CRC_LENGTH),
        "crc": (len(message) - _CRC_LENGTH, len(message)),
    }
    start, end = bounds[part]
    at, shift = divmod(bit % ((end - start) * 8), 8)
    damaged = bytearray(message)
    damaged[start + at] ^= 1 << shift
    return bytes(damaged)
