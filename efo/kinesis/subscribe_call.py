"""One call of SubscribeToShard: the request, and its answer as events."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, Self

import msgspec
import trio

from efo.errors import ProtocolError, SilenceError
from efo.kinesis.client import Sign
from efo.kinesis.connection_pool import ConnectionPool
from efo.kinesis.response_stream import ResponseStream
from efo.model import Position
from efo.protocol.eventstream import Decoder
from efo.protocol.messages import SubscribeToShardEvent, parse, parse_refusal

TARGET: Final = "Kinesis_20131202.SubscribeToShard"
RESPONSE_TIMEOUT: Final = 20.0
"""Seconds from the request to the headers of its response."""
_OK: Final = 200
_REFUSAL_SIZE: Final = 64 * 1024
_CONTENT_TYPE: Final = "application/x-amz-json-1.1"


class SubscribeCaller:
    """Makes calls of SubscribeToShard to one endpoint, for one fan-out consumer.

    `consumer_arn` is asked at each call: it changes when the consumer is registered again (rule R13).
    """

    def __init__(
        self,
        pool: ConnectionPool,
        *,
        sign: Sign,
        authority: str,
        scheme: str,
        consumer_arn: Callable[[], str],
    ) -> None:
        self._pool = pool
        self._sign = sign
        self._consumer_arn = consumer_arn
        self._pseudo_headers = (
            (":method", "POST"),
            (":scheme", scheme),
            (":authority", authority),
            (":path", "/"),
        )

    async def call(self, shard_id: str, position: Position) -> EventStream:
        """Call, and return the events to come once the service has accepted; use it as a context.

        Raises TransportError, and ServiceError where the service refuses.
        """
        body = request_body(self._consumer_arn(), shard_id, position)
        signed = await self._sign(TARGET, body)
        headers = [
            *self._pseudo_headers,
            ("content-type", _CONTENT_TYPE),
            ("content-length", str(len(body))),
            ("x-amz-target", TARGET),
            *((name.lower(), value) for name, value in signed),
        ]
        try:
            with trio.fail_after(RESPONSE_TIMEOUT):
                answer = await self._pool.open(headers, body)
                try:
                    await _check(answer)
                except BaseException:
                    answer.close()
                    raise
        except trio.TooSlowError:
            raise SilenceError(f"no response to SubscribeToShard within {RESPONSE_TIMEOUT:g} s") from None
        return EventStream(answer)


class EventStream:
    """The events of one accepted call. Leaving the context resets the HTTP/2 stream if it is still open."""

    def __init__(self, answer: ResponseStream) -> None:
        self._answer = answer
        self._decoder = Decoder()
        self._messages = self._decoder.messages()
        self._arriving: Callable[[], None] = lambda: None

    @property
    def held(self) -> int:
        """How many bytes arrived and are not yet part of a given event: at most the stream's window and an event."""
        return self._answer.buffered + self._decoder.pending

    def when_leaving(self, tell: Callable[[], None]) -> None:
        """Let `tell` be called once the connection is about to go away; the events go on for now."""
        self._answer.when_leaving(tell)

    def when_arriving(self, tell: Callable[[], None]) -> None:
        """Let `tell` be called whenever something has arrived, be it a part of an event."""
        self._arriving = tell

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        self._answer.close()

    async def receive(self) -> tuple[SubscribeToShardEvent, int] | None:
        """Return the next event and its length on the wire in bytes; None at the clean end of the stream.

        Raises TransportError, ProtocolError, and the ServiceError that the service ends a subscription with.
        """
        while True:
            for message in self._messages:
                parsed = parse(message)
                if isinstance(parsed, SubscribeToShardEvent):
                    return parsed, message.wire_length
                if parsed is not None:
                    raise parsed
            data = await self._answer.receive()
            if not data:
                break
            self._decoder.receive_data(data)
            self._messages = self._decoder.messages()
            self._arriving()
        if self._decoder.pending:
            raise ProtocolError(f"the stream ended {self._decoder.pending} bytes into a message")
        return None


def request_body(consumer_arn: str, shard_id: str, position: Position) -> bytes:
    """Return the JSON body of SubscribeToShard (AWS: SubscribeToShardInput)."""
    start: dict[str, object] = {"Type": position.type.value}
    if position.sequence_number is not None:
        start["SequenceNumber"] = position.sequence_number
    if position.timestamp is not None:
        # The service counts in milliseconds. Never a later one than was meant: that would pass over records. The
        # thousandth is for those that a float cannot say exactly.
        start["Timestamp"] = math.floor(position.timestamp * 1000 + 0.001) / 1000
    return msgspec.json.encode({"ConsumerARN": consumer_arn, "ShardId": shard_id, "StartingPosition": start})


async def _check(answer: ResponseStream) -> None:
    if await answer.response() == _OK:
        return
    body = b""
    while len(body) < _REFUSAL_SIZE and (data := await answer.receive()):
        body += data
    raise parse_refusal(answer.status, body)
