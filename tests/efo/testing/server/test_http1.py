from __future__ import annotations

import h11
import msgspec
import pytest
import trio
import trio.testing

from efo.protocol.eventstream import Decoder
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
    """The client's end of a connection."""
    service = Service(core, subscriptions)
    ours, theirs = memory_connection(64 * 1024)

    async def serve():
        await serve_http1(ours, service.answer, service.bad_request)

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


async def test_requests_follow_each_other_on_one_connection(stream):
    for _ in range(2):
        await stream.send_all(LIST + b"Content-Length: 2\r\n\r\n{}")
        status, headers, body = await read_response(stream)
        assert (status, body["StreamNames"]) == (200, [])
        assert headers["date"] == "Thu, 01 Jan 2026 00:00:00 GMT"
        assert headers["content-type"] == "application/x-amz-json-1.1"
        assert headers["x-amzn-requestid"]


async def test_an_absolute_target_is_taken(stream):
    await stream.send_all(LIST.replace(b" / ", b" http://fake:80/ ") + b"Content-Length: 2\r\n\r\n{}")
    assert (await read_response(stream))[0] == 200
    await stream.send_all(LIST.replace(b" / ", b" http://fake ") + b"Content-Length: 2\r\n\r\n{}")
    assert (await read_response(stream))[0] == 200


async def test_pipelined_and_chunked_requests_are_answered_in_order(stream):
    chunked = LIST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n"
    await stream.send_all(chunked + LIST + b"Content-Length: 1\r\n\r\n{")
    assert (await read_response(stream))[0] == 200
    assert (await read_response(stream))[0] == 400


async def test_the_connection_closes_when_asked_to(stream):
    await stream.send_all(LIST + b"Connection: close\r\nContent-Length: 2\r\n\r\n{}")
    assert (await read_response(stream))[0] == 200
    assert await stream.receive_some() == b""


async def test_expect_continue(stream):
    await stream.send_all(LIST + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
    assert (await read_response(stream))[0] == 100
    await stream.send_all(b"{}")
    assert (await read_response(stream))[0] == 200


@pytest.mark.parametrize("garbage", [b"\0\1\2\3\r\n\r\n", b"POST / HTTP/1.1\r\nbad header\r\n\r\n", b"x" * 200_000])
async def test_what_is_not_http_gets_one_answer_and_the_end(stream, garbage, nursery):
    async def send():
        with pytest.raises(trio.BrokenResourceError) if len(garbage) > 65_536 else trio.CancelScope():
            await stream.send_all(garbage)

    nursery.start_soon(send)
    status, _, body = await read_response(stream)
    assert (status, body["__type"]) == (400, "SerializationException")
    assert await stream.receive_some() == b""


async def test_a_body_that_is_too_long_is_refused(stream):
    size = MAX_BODY + 1
    await stream.send_all(LIST + f"Content-Length: {size}\r\n\r\n".encode())
    await stream.send_all(b" " * size)
    assert (await read_response(stream))[0] == 413


async def test_a_client_that_leaves_midway_is_nothing_special(stream):
    await stream.send_all(LIST + b"Content-Length: 2\r\n\r\n{")
    await stream.aclose()


class Subscriber:
    """A client that subscribes over HTTP/1.1, as boto3 does, to the one shard of a stream of its own."""

    def __init__(self, core, stream):
        self.stream = stream
        self.shard = next(iter(core.create_stream("s", 1).shards.values()))
        self.consumer_arn = core.register(core.stream("s").arn, "c").arn
        self.http = h11.Connection(h11.CLIENT)
        self.decoder = Decoder()

    async def subscribe(self):
        start = {"Type": "TRIM_HORIZON"}
        members = {"ConsumerARN": self.consumer_arn, "ShardId": self.shard.id, "StartingPosition": start}
        return await self.ask("SubscribeToShard", members)

    async def ask(self, operation, members):
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
        """Return the next frame of the event stream, None at the response's end."""
        while True:
            for message in self.decoder.messages():
                return message
            event = await self.next_event()
            if isinstance(event, h11.EndOfMessage):
                return None
            self.decoder.receive_data(bytes(event.data))


async def test_an_event_stream_comes_in_chunks_and_the_connection_lives_on(stream, core, autojump_clock):
    client = Subscriber(core, stream)
    response = await client.subscribe()
    assert response.status_code == 200
    assert (b"content-type", b"application/vnd.amazon.eventstream") in response.headers
    assert (b"transfer-encoding", b"chunked") in response.headers
    assert (await client.next_message()).headers[":event-type"] == "initial-response"

    core.stream("s").put("k", b"1", core.millis)
    event = msgspec.json.decode((await client.next_message()).payload)
    assert [record["PartitionKey"] for record in event["Records"]] == ["k"]
    began = trio.current_time()
    assert msgspec.json.decode((await client.next_message()).payload)["Records"] == []
    assert trio.current_time() - began == 5

    core.stream("s").split(client.shard.id, None, core.millis)
    assert len(msgspec.json.decode((await client.next_message()).payload)["ChildShards"]) == 2
    assert await client.next_message() is None
    client.http.start_next_cycle()
    assert (await client.ask("ListStreams", {})).status_code == 200


async def test_a_subscriber_that_leaves_frees_its_subscription_at_once(stream, core, subscriptions, autojump_clock):
    client = Subscriber(core, stream)
    await client.subscribe()
    await client.next_message()
    counts = subscriptions.counts("s", client.shard.id)
    assert counts.live == 1
    began = trio.current_time()
    await stream.aclose()
    await trio.testing.wait_all_tasks_blocked()
    assert (counts.live, trio.current_time() - began) == (0, 0)


async def test_a_request_sent_into_an_event_stream_is_answered_after_it(stream, core, autojump_clock):
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
