"""One call of SubscribeToShard: the request, and the events of its response."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, Self

import msgspec

from efo.errors import ProtocolError
from efo.kinesis.client import Correct, Sign
from efo.kinesis.connection_pool import ConnectionPool
from efo.kinesis.response_stream import ResponseStream
from efo.kinesis.service_call import ServiceCaller
from efo.model import Position
from efo.protocol.event_decoder import EventDecoder
from efo.protocol.messages import SubscribeToShardEvent

OPERATION: Final = "SubscribeToShard"


class SubscribeCaller:
    """Calls SubscribeToShard on one endpoint, for one fan-out consumer.

    `consumer_arn`: returns the current ARN, which changes when the consumer is registered again (rule R13).
    """

    def __init__(
        self,
        pool: ConnectionPool,
        *,
        sign: Sign,
        authority: str,
        scheme: str,
        consumer_arn: Callable[[], str],
        correct: Correct | None = None,
    ) -> None:
        self._service = ServiceCaller(pool, sign=sign, authority=authority, scheme=scheme, correct=correct)
        self._consumer_arn = consumer_arn

    async def call(self, shard_id: str, position: Position) -> EventStream:
        """Call, and return the event stream once the service has accepted the call; use it as a context manager.

        Raises TransportError, and ServiceError if the service rejects the call.
        """
        body = request_body(self._consumer_arn(), shard_id, position)
        return EventStream(await self._service.call(OPERATION, body))


class EventStream:
    """The events of an accepted call. Leaving the context resets the HTTP/2 stream if it is still open.

    Await `receive`, or call `read` when `notify_change` says that something has arrived.
    """

    def __init__(self, response: ResponseStream) -> None:
        self._response = response
        self._decoder = EventDecoder()

    @property
    def held(self) -> int:
        """How many bytes arrived and were not returned as events: at most the stream's window, a read and an event."""
        return self._response.buffered + self._decoder.pending

    @property
    def has_more(self) -> bool:
        """Whether bytes, even a part of an event, or the end have arrived and were not returned."""
        return bool(self._decoder.pending) or self._response.has_more

    def notify_goaway(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the peer sends GOAWAY. Events still arrive."""
        self._response.notify_goaway(callback)

    def notify_change(self, callback: Callable[[], None]) -> None:
        """Call `callback` whenever something has arrived: bytes, even a part of an event, or the end."""
        self._response.notify_change(callback)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        self._response.close()

    async def receive(self) -> tuple[SubscribeToShardEvent, int] | None:
        """Return the next event and its length on the wire in bytes; None at the clean end of the stream.

        Raises TransportError, ProtocolError, and the ServiceError with which the service ends a subscription.
        """
        while (received := self._decoder.next_event()) is None:
            if not (data := await self._response.receive()):
                self._check_end()
                return None
            self._decoder.receive_data(data)
        return received

    def read(self) -> tuple[SubscribeToShardEvent, int] | int | None:
        """Return the next event that has arrived and its length, as `receive` does, but wait for nothing.

        Without one, return the number of bytes that arrived of it; 0 at the clean end, None if nothing has arrived.
        """
        if self._decoder.pending and (received := self._decoder.next_event()) is not None:
            return received
        taken = 0
        while (data := self._response.take()) is not None:
            if not data:
                self._check_end()
                return 0
            self._decoder.receive_data(data)
            taken += len(data)
            # Of a part of an event, more may have arrived. The end, and an error, are for the next call.
            if self._decoder.has_message() or not self._response.buffered:
                return self._decoder.next_event() or taken
        return None

    def _check_end(self) -> None:
        if self._decoder.pending:
            raise ProtocolError(f"the stream ended {self._decoder.pending} bytes into a message")


def request_body(consumer_arn: str, shard_id: str, position: Position) -> bytes:
    """Return the JSON body of SubscribeToShard (AWS: SubscribeToShardInput)."""
    start: dict[str, object] = {"Type": position.type.value}
    if position.sequence_number is not None:
        start["SequenceNumber"] = position.sequence_number
    if position.timestamp is not None:
        start["Timestamp"] = whole_milliseconds(position.timestamp)
    return msgspec.json.encode({"ConsumerARN": consumer_arn, "ShardId": shard_id, "StartingPosition": start})


def whole_milliseconds(timestamp: float) -> float:
    """Return a time in seconds as the service counts it, in milliseconds.

    It is rounded down, since a later time would skip records.
    """
    return math.floor(timestamp * 1000 + 0.001) / 1000  # 0.001: for times that a float cannot represent exactly
