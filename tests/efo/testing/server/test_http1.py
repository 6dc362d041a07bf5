from __future__ import annotations

import h11
import msgspec
import pytest
import trio
import trio.testing

from efo.protocol.eventstream import EventStreamDecoder
from efo.testing.memory_stream import memory_connection
from efo.testing.server.dispatch import MAX_BODY, Service
from efo.testing.server.http1 import serve_http1
from efo.testing.settings import FakeSettings
from efo.testing.state.core import Core
from efo.testing.state.subscriptions import Subscriptions

LIST = (
    b"POST / HTTP/1.1\r\nHost: fake\r\nX-Amz-Target: Kinesis_20131202.ListStreams\r\n"
    b"Content-Type: application/x-amz-json-1.1\r\n"
)


@pytest.fixture
def core():
    return Core(FakeSettings(consumer_creating=0), lambda: 1_767_225_600.0)


@pytest.fixture
def subscriptions(core):
    return Subscriptions(core)


@pytest.fixture
async def stream(nursery, core, subscriptions):
    """The client side of a connection."""
    service = Service(core, subscriptions)
    ours, theirs = memory_connection(64 * 1024)

    async def serve():
        await serve_http1(ours, service.respond, service.bad_request)

    nursery.start_soon(serve)
    return theirs


async def read_response(stream):
    """Return the status, the headers and the decoded body of one response."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = await stream.receive_some(1)
        assert byte, head
        head += byte
    body = b""
    status, *lines = head.decode().strip().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    while len(body) < int(headers.get("content-length", 0)):
        body += await stream.receive_some(int(headers["content-length"]) - len(body))
    return int(status.split()[1]), headers, msgspec.json.decode(body) if body else None


async def test_several_requests_use_one_connection(stream):
    for _ in range(2):
        await stream.send_all(LIST + b"Content-Length: 2\r\n\r\n{}")
        status, headers, body = await read_response(stream)
        assert (status, body["StreamNames"]) == (200, [])
        assert headers["date"] == "Thu, 01 Jan 2026 00:00:00 GMT"
        assert headers["content-type"] == "application/x-amz-json-1.1"
        assert headers["x-amzn-requestid"]


async def test_an_absolute_request_target_is_accepted(stream):
    await stream.send_all(LIST.replace(b" / ", b" http://fake:80/ ") + b"Content-Length: 2\r\n\r\n{}")
    assert (await read_response(stream))[0] == 200
    await stream.send_all(LIST.replace(b" / ", b" http://fake ") + b"Content-Length: 2\r\n\r\n{}")
    assert (await read_response(stream))[0] == 200


async def test_pipelined_and_chunked_requests_get_responses_in_order(stream):
    chunked = LIST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n"
    await stream.send_all(chunked + LIST + b"Content-Length: 1\r\n\r\n{")
    assert (await read_response(stream))[0] == 200
    assert (await read_response(stream))[0] == 400


async def test_connection_close_closes_the_connection(stream):
    await stream.send_all(LIST + b"Connection: close\r\nContent-Length: 2\r\n\r\n{}")
    assert (await read_response(stream))[0] == 200
    assert await stream.receive_some() == b""


async def test_expect_continue_gets_a_100_response(stream):
    await stream.send_all(LIST + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
    assert (await read_response(stream))[0] == 100
    await stream.send_all(b"{}")
    assert (await read_response(stream))[0] == 200


@pytest.mark.parametrize("garbage", [b"\0\1\2\3\r\n\r\n", b"POST / HTTP/1.1\r\nbad header\r\n\r\n", b"x" * 200_000])
async def test_invalid_http_gets_one_error_response_and_closes_the_connection(stream, garbage, nursery):
    async def send():
        with pytest.raises(trio.BrokenResourceError) if len(garbage) > 65_536 else trio.CancelScope():
            await stream.send_all(garbage)

    nursery.start_soon(send)
    status, _, body = await read_response(stream)
    assert (status, body["__type"]) == (400, "SerializationException")
    assert await stream.receive_some() == b""


async def test_a_too_large_body_is_rejected(stream):
    size = MAX_BODY + 1
    await stream.send_all(LIST + f"Content-Length: {size}\r\n\r\n".encode())
    await stream.send_all(b" " * size)
    assert (await read_response(stream))[0] == 413


async def test_a_client_that_closes_during_a_request_raises_nothing(stream):
    await stream.send_all(LIST + b"Content-Length: 2\r\n\r\n{")
    await stream.aclose()


class Subscriber:
    """A client that subscribes over HTTP/1.1, as boto3 does, to a new stream with one shard."""

    def __init__(self, core, stream):
        self.stream = stream
        self.shard = next(iter(core.create_stream("s", 1).shards.values()))
        self.consumer_arn = core.register(core.stream("s").arn, "c").arn
        self.http = h11.Connection(h11.CLIENT)
        self.decoder = EventStreamDecoder()

    async def subscribe(self):
        start = {"Type": "TRIM_HORIZON"}
        members = {"ConsumerARN": self.consumer_arn, "ShardId": self.shard.id, "StartingPosition": start}
        return await self.call("SubscribeToShard", members)

    async def call(self, operation, members):
        body = msgspec.json.encode(members)
        headers = {"host": "fake", "x-amz-target": f"Kinesis_20131202.{operation}", "content-length": str(len(body))}
        for event in (h11.Request(method="POST", target="/", headers=list(headers.items())), h11.Data(data=body)):
            await self.stream.send_all(self.http.send(event))
        self.http.send(h11.EndOfMessage())
        return await self.next_event()

    async def next_event(self):
        while (event := self.http.next_event()) is h11.NEED_DATA:
            self.http.receive_data(bytes(await self.stream.receive_some()))
        return event

    async def next_message(self):
        """Return the next message of the event stream; None at the end of the response."""
        while True:
            for message in self.decoder.messages():
                return message
            event = await self.next_event()
            if isinstance(event, h11.EndOfMessage):
                return None
            self.decoder.receive_data(bytes(event.data))


async def test_an_event_stream_is_chunked_and_the_connection_can_be_reused(stream, core, autojump_clock):
    client = Subscriber(core, stream)
    response = await client.subscribe()
    assert response.status_code == 200
    assert (b"content-type", b"application/vnd.amazon.eventstream") in response.headers
    assert (b"transfer-encoding", b"chunked") in response.headers
    assert (await client.next_message()).headers[":event-type"] == "initial-response"

    core.stream("s").put("k", b"1", core.millis)
    event = msgspec.json.decode((await client.next_message()).payload)
    assert [record["PartitionKey"] for record in event["Records"]] == ["k"]
    started = trio.current_time()
    assert msgspec.json.decode((await client.next_message()).payload)["Records"] == []
    assert trio.current_time() - started == 5

    core.stream("s").split(client.shard.id, None, core.millis)
    assert len(msgspec.json.decode((await client.next_message()).payload)["ChildShards"]) == 2
    assert await client.next_message() is None
    client.http.start_next_cycle()
    assert (await client.call("ListStreams", {})).status_code == 200


async def test_a_subscription_ends_at_once_when_the_client_closes_the_connection(
    stream, core, subscriptions, autojump_clock
):
    client = Subscriber(core, stream)
    await client.subscribe()
    await client.next_message()
    counts = subscriptions.counts("s", client.shard.id)
    assert counts.live == 1
    started = trio.current_time()
    await stream.aclose()
    await trio.testing.wait_all_tasks_blocked()
    assert (counts.live, trio.current_time() - started) == (0, 0)


async def test_a_request_during_an_event_stream_gets_its_response_afterwards(stream, core, autojump_clock):
    client = Subscriber(core, stream)
    await client.subscribe()
    await client.next_message()
    await stream.send_all(LIST + b"Content-Length: 2\r\n\r\n{}")
    await trio.testing.wait_all_tasks_blocked()
    core.stream("s").split(client.shard.id, None, core.millis)
    assert len(msgspec.json.decode((await client.next_message()).payload)["ChildShards"]) == 2
    assert await client.next_message() is None
    client.http = h11.Connection(h11.CLIENT)
    client.http.send(h11.Request(method="POST", target="/", headers=[("host", "fake")]))
    assert (await client.next_event()).status_code == 200
