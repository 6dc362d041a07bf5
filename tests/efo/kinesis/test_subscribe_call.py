"""A call of SubscribeToShard over HTTP/2 frames: the request, service errors, events, and how the call ends."""

import json

import h2.events
import pytest
import trio
import trio.testing
from h2.errors import ErrorCodes

from efo.errors import (
    ChecksumError,
    EventError,
    GoAwayError,
    InternalFailureError,
    ProtocolError,
    ResourceInUseError,
    ServiceError,
    SilenceError,
    StreamResetError,
    TransportError,
)
from efo.kinesis.connection_pool import ConnectionPool
from efo.kinesis.service_call import RESPONSE_TIMEOUT
from efo.kinesis.subscribe_call import SubscribeCaller, request_body
from efo.model import Position
from efo.protocol.eventstream import encode

ARN = "arn:aws:kinesis:eu-central-1:123456789012:stream/s/consumer/c:1"


def event(continuation, **headers):
    body = {"Records": [], "MillisBehindLatest": 0, "ContinuationSequenceNumber": str(continuation)}
    return encode(
        {":message-type": "event", ":event-type": "SubscribeToShardEvent"} | headers, json.dumps(body).encode()
    )


INITIAL = encode({":message-type": "event", ":event-type": "initial-response"}, b"{}")
TAKEN_OVER = encode(
    {":message-type": "exception", ":exception-type": "ResourceInUseException"}, b'{"message":"another call"}'
)


def respond_with(*chunks, status=200, end=True):
    """Return an `on_request` that responds with this status and a body of these chunks, each in a DATA frame."""

    def respond(peer, stream_id):
        peer.respond(stream_id, status)
        for chunk in chunks:
            peer.send(stream_id, chunk)
        if end:
            peer.h2.end_stream(stream_id)

    return respond


@pytest.fixture
async def caller(server, nursery):
    pool = ConnectionPool(server.connect, address="peer:443")
    await nursery.start(pool.run)

    async def sign(target, body):
        await trio.lowlevel.checkpoint()
        return [("Authorization", f"{target} {len(body)}"), ("X-Amz-Date", "20260101T000000Z")]

    arns = iter(f"{ARN}{n}" for n in range(9))
    return SubscribeCaller(pool, sign=sign, authority="kinesis.test", scheme="https", consumer_arn=lambda: next(arns))


async def call(caller):
    return await caller.call("shardId-0", Position.trim_horizon())


async def continuations(events):
    """Read to the end, and return the continuation sequence numbers."""
    numbers = []
    async with events:
        while (received := await events.receive()) is not None:
            numbers.append(int(received[0].continuation_sequence_number))
    return numbers


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (Position.trim_horizon(), {"Type": "TRIM_HORIZON"}),
        (Position.latest(), {"Type": "LATEST"}),
        (Position.at("7"), {"Type": "AT_SEQUENCE_NUMBER", "SequenceNumber": "7"}),
        (Position.after("7"), {"Type": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": "7"}),
        (Position.at_timestamp(1700000000.12345), {"Type": "AT_TIMESTAMP", "Timestamp": 1700000000.123}),
        (Position.at_timestamp(1700000000.1239), {"Type": "AT_TIMESTAMP", "Timestamp": 1700000000.123}),
        (Position.at_timestamp(1700000000.124), {"Type": "AT_TIMESTAMP", "Timestamp": 1700000000.124}),
    ],
)
def test_the_body_has_the_consumer_the_shard_and_the_position(position, expected):
    assert json.loads(request_body(ARN, "shardId-0", position)) == {
        "ConsumerARN": ARN,
        "ShardId": "shardId-0",
        "StartingPosition": expected,
    }


class TestRequest:
    async def test_the_request_has_the_signed_headers_and_the_body(self, caller, server, autojump_clock):
        server.on_request = respond_with(event(1))
        await continuations(await call(caller))
        [request] = server.peers[0].received(h2.events.RequestReceived)
        body = request_body(f"{ARN}0", "shardId-0", Position.trim_horizon())
        assert dict(request.headers) == {
            ":method": "POST",
            ":scheme": "https",
            ":authority": "kinesis.test",
            ":path": "/",
            "content-type": "application/x-amz-json-1.1",
            "content-length": str(len(body)),
            "x-amz-target": "Kinesis_20131202.SubscribeToShard",
            "authorization": f"Kinesis_20131202.SubscribeToShard {len(body)}",
            "x-amz-date": "20260101T000000Z",
        }
        assert server.peers[0].bodies[1] == body

    async def test_each_call_uses_the_current_consumer_arn(self, caller, server, autojump_clock):
        server.on_request = respond_with(event(1))
        for _ in range(2):
            await continuations(await call(caller))
        bodies = server.peers[0].bodies.values()
        assert [json.loads(body)["ConsumerARN"] for body in bodies] == [f"{ARN}0", f"{ARN}1"]


class TestServiceErrors:
    @pytest.mark.parametrize(
        ("status", "chunks", "kind"),
        [
            (400, [b'{"__type":"Resource', b'InUseException","message":"wait"}'], ResourceInUseError),
            (500, [b"{}"], InternalFailureError),
            (503, [], InternalFailureError),
            (404, [b"<html>"], ServiceError),
            (301, [], ServiceError),
        ],
    )
    async def test_a_status_other_than_200_is_a_service_error(
        self, caller, server, autojump_clock, status, chunks, kind
    ):
        server.on_request = respond_with(*chunks, status=status)
        with pytest.raises(ServiceError) as raised:
            await call(caller)
        assert (type(raised.value), raised.value.status) == (kind, status)
        assert caller._service._pool._least_loaded().open_streams == 0

    async def test_an_error_response_without_end_is_read_up_to_a_limit(self, caller, server, autojump_clock):
        server.on_request = respond_with(b"x" * 200_000, status=400, end=False)
        with pytest.raises(ServiceError, match=r"HTTP400: a response of 65536 bytes that is no error of AWS$"):
            await call(caller)
        await trio.testing.wait_all_tasks_blocked()
        assert server.peers[0].received(h2.events.StreamReset)


class TestEvents:
    @pytest.mark.parametrize(
        "chunks",
        [
            [INITIAL, event(1), event(2)],
            [INITIAL + event(1) + event(2)],
            [event(1)[:5], event(1)[5:], event(2)],
            [bytes([byte]) for byte in event(1) + event(2)],
            [event(0, **{":event-type": "SomethingNew"}), event(1), event(2)],
        ],
    )
    @pytest.mark.scenario("G60")
    async def test_events_are_decoded_however_the_bytes_are_split(self, caller, server, autojump_clock, chunks):
        server.on_request = respond_with(*chunks)
        assert await continuations(await call(caller)) == [1, 2]

    async def test_each_event_comes_with_its_length_on_the_wire(self, caller, server, autojump_clock):
        server.on_request = respond_with(INITIAL + event(1) + event(22))
        async with await call(caller) as events:
            assert [(await events.receive())[1] for _ in range(2)] == [len(event(1)), len(event(22))]

    @pytest.mark.parametrize(
        ("chunks", "error"),
        [
            ([TAKEN_OVER], ResourceInUseError),
            ([encode({":message-type": "error", ":error-code": "InternalFailure"}, b"")], InternalFailureError),
            ([event(2)[:-3]], ProtocolError),
            ([event(2)[:-1] + b"!"], ChecksumError),
            ([b"<html>this is not an event stream</html>"], ChecksumError),
            ([event("seven")], EventError),
        ],
    )
    @pytest.mark.scenario("G47", "G48")
    async def test_events_before_an_error_are_returned_first(self, caller, server, autojump_clock, chunks, error):
        server.on_request = respond_with(event(1), *chunks)
        async with await call(caller) as events:
            assert (await events.receive())[0].continuation_sequence_number == "1"
            with pytest.raises(error):
                await events.receive()

    async def test_a_reset_after_an_event_is_raised(self, caller, server, autojump_clock):
        def respond(peer, stream_id):
            respond_with(event(1), end=False)(peer, stream_id)
            peer.h2.reset_stream(stream_id, ErrorCodes.INTERNAL_ERROR)

        server.on_request = respond
        async with await call(caller) as events:
            await events.receive()
            with pytest.raises(StreamResetError):
                await events.receive()

    async def test_a_closed_connection_after_an_event_is_raised(self, caller, server, autojump_clock):
        def respond(peer, stream_id):
            respond_with(event(1), end=False)(peer, stream_id)
            peer.close()

        server.on_request = respond
        async with await call(caller) as events:
            await events.receive()
            with pytest.raises(TransportError):
                await events.receive()

    async def test_goaway_before_the_response_is_raised(self, caller, server, autojump_clock):
        server.on_request = lambda peer, _stream_id: peer.goaway(0)
        with pytest.raises(GoAwayError):
            await call(caller)


class TestEnd:
    async def test_leaving_the_context_resets_the_stream(self, caller, server, autojump_clock):
        server.on_request = respond_with(event(1), end=False)
        async with await call(caller) as events:
            await events.receive()
        await trio.testing.wait_all_tasks_blocked()
        assert server.peers[0].received(h2.events.StreamReset)

    @pytest.mark.scenario("G50")
    async def test_a_call_without_a_response_ends_after_the_timeout(self, caller, server, autojump_clock):
        server.on_request = lambda _peer, _stream_id: None
        with pytest.raises(SilenceError, match="within 20 s"):
            await call(caller)
        assert trio.current_time() == pytest.approx(RESPONSE_TIMEOUT)
        await trio.testing.wait_all_tasks_blocked()
        assert server.peers[0].received(h2.events.StreamReset)

    @pytest.mark.parametrize("after", [0.0, 1.0])
    async def test_a_cancelled_call_resets_its_stream(self, caller, server, autojump_clock, after):
        server.on_request = lambda _peer, _stream_id: None
        with trio.move_on_after(after) as scope:
            await call(caller)
        assert scope.cancelled_caught
        await trio.testing.wait_all_tasks_blocked()
        if after:
            assert server.peers[0].received(h2.events.StreamReset)
            assert caller._service._pool._least_loaded().open_streams == 0

    async def test_a_cancelled_receive_within_an_event_loses_nothing(self, caller, server, autojump_clock):
        server.on_request = respond_with(event(1)[:50], end=False)
        async with await call(caller) as events:
            with trio.move_on_after(1) as scope:
                await events.receive()
            assert scope.cancelled_caught
            server.peers[0].send(1, event(1)[50:])
            server.peers[0].flush()
            assert (await events.receive())[0].continuation_sequence_number == "1"
