from __future__ import annotations

from functools import partial
from random import Random

import h2.errors
import h2.events
import h2.settings
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from efo.testing.memory_stream import memory_connection
from efo.testing.server.dispatch import MAX_BODY, Response
from efo.testing.server.http2 import PREFACE, serve_http2
from proofs.load.http2 import serve_load_http2


class Endless:
    """An endless body that counts the requested chunks."""

    def __init__(self, size=100_000):
        self.size = size
        self.requested = 0
        self.closed = False

    async def next_chunk(self):
        self.requested += 1
        return b"x" * self.size

    def close(self):
        self.closed = True


class Server:
    """One connection to a server that responds with the test's `bodies`, by path."""

    def __init__(self, nursery, serve_connection, make_client, *, max_streams=10, capacity=64 * 1024, **client):
        self.bodies = {}
        self.requests = []
        self.finished = trio.Event()
        self._serve = serve_connection
        ours, self.stream = memory_connection(capacity)
        nursery.start_soon(self._run, ours, max_streams)
        self.client = make_client(self.stream, **client)

    async def _run(self, stream, max_streams):
        await self._serve(stream, self._respond, max_concurrent_streams=max_streams)
        self.finished.set()

    def _respond(self, request):
        self.requests.append(request)
        body = self.bodies.get(request.path, b"body")
        return Response(200, [("content-type", "text/plain")], body)

    async def get(self, path):
        return await self.client.call("Some.Target", b"", path=path)


@pytest.fixture(params=[serve_http2, serve_load_http2])
def serve(request, nursery, http2_client):
    return partial(Server, nursery, request.param, http2_client)


async def until_blocked(client):
    """Read until the server sends nothing more."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pump_forever, client)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()


async def pump_forever(client):
    while True:
        await client.pump()


async def test_a_request_gets_a_response(serve):
    server = serve()
    call = await server.client.call("Some.Target", b"x" * 200_000, path="/p")
    assert await call.status() == 200
    await until_ended(call)
    assert bytes(call.body) == b"body"
    (request,) = server.requests
    assert (request.method, request.path, request.body) == ("POST", "/p", b"x" * 200_000)
    assert request.headers["x-amz-target"] == "Some.Target"


async def until_ended(call):
    while not call.ended:
        await call.client.pump()


async def test_a_request_can_arrive_byte_by_byte(serve, http2_client):
    server = serve()
    stream, server.client.stream = server.client.stream, Collector()
    call = await server.get("/p")
    for byte in server.client.stream.data:
        await stream.send_all(bytes([byte]))
    server.client.stream = stream
    await until_ended(call)
    assert bytes(call.body) == b"body"


class Collector:
    def __init__(self):
        self.data = b""

    async def send_all(self, data):
        self.data += data


async def test_a_stream_stays_within_its_window_and_does_not_block_others(serve):
    server = serve(window=10_000)
    server.bodies["/endless"] = body = Endless()
    server.client.opens_windows = False
    server.client.h2.increment_flow_control_window(10_000_000)
    blocked = await server.get("/endless")
    await until_blocked(server.client)
    assert len(blocked.body) == 10_000
    assert body.requested == 1
    other = await server.get("/short")
    await until_ended(other)
    assert bytes(other.body) == b"body"
    server.client.h2.increment_flow_control_window(500, blocked.stream_id)
    await server.client.flush()
    await until_blocked(server.client)
    assert len(blocked.body) == 10_500


async def test_all_streams_together_stay_within_the_connection_window(serve):
    server = serve(window=1_000_000)
    server.client.opens_windows = False
    calls = []
    for n in range(3):
        server.bodies[f"/{n}"] = Endless()
        calls.append(await server.get(f"/{n}"))
    await until_blocked(server.client)
    assert sum(len(call.body) for call in calls) == 65_535
    server.client.h2.increment_flow_control_window(1000)
    await server.client.flush()
    await until_blocked(server.client)
    assert sum(len(call.body) for call in calls) == 66_535


async def test_settings_can_increase_a_window(serve):
    server = serve(window=0)
    server.client.opens_windows = False
    call = await server.get("/short")
    await until_blocked(server.client)
    assert not call.body
    server.client.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 2})
    await server.client.flush()
    await until_blocked(server.client)
    assert bytes(call.body) == b"bo"


@pytest.mark.parametrize("seed", range(5))
async def test_windows_are_used_completely_and_never_exceeded(serve, seed):
    random = Random(seed)
    server = serve(window=1000)
    http2, initial, connection = server.client.h2, 1000, 65_535
    server.client.opens_windows = False
    calls, granted = [], []
    for n in range(3):
        server.bodies[f"/{n}"] = Endless(random.randint(1, 50_000))
        calls.append(await server.get(f"/{n}"))
        granted.append(initial)
    for _ in range(40):
        size = random.choice([1, 7, 500, 16_384, 40_000])
        match random.randrange(3):
            case 0:
                http2.increment_flow_control_window(size)
                connection += size
            case 1:
                chosen = random.randrange(3)
                http2.increment_flow_control_window(size, calls[chosen].stream_id)
                granted[chosen] += size
            case 2:  # a window can become negative
                http2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: size})
                granted = [window + size - initial for window in granted]
                initial = size
        before = [len(call.body) for call in calls]
        await server.client.flush()
        await until_blocked(server.client)
        after = [len(call.body) for call in calls]
        assert all(new <= max(old, window) for new, old, window in zip(after, before, granted, strict=True))
        used_up = all(new >= window for new, window in zip(after, granted, strict=True))
        assert sum(after) == connection or (sum(after) < connection and used_up)


async def test_frames_use_the_maximum_frame_size_of_the_client(serve):
    server = serve(window=10_000_000)
    server.client.h2.increment_flow_control_window(10_000_000)
    assert server.client.h2.max_inbound_frame_size == 16_384  # a longer frame would end the connection
    server.bodies["/endless"] = Endless(70_000)
    call = await server.get("/endless")
    while len(call.body) < 200_000:
        await server.client.pump()
    server.client.h2.update_settings({h2.settings.SettingCodes.MAX_FRAME_SIZE: 50_000})
    await server.client.flush()
    # The acknowledgement and a long frame can arrive together. h2 would still apply the old limit to the frame.
    server.client.h2.max_inbound_frame_size = 50_000
    lengths = set()
    while 50_000 not in lengths:
        await server.client.pump()
        lengths |= {e.flow_controlled_length for e in server.client.events if isinstance(e, h2.events.DataReceived)}
    assert max(lengths) == 50_000


async def test_a_client_that_does_not_read_uses_one_buffer(serve):
    server = serve(window=2**31 - 1, capacity=1000)
    server.client.h2.increment_flow_control_window(2**31 - 1 - 65_535)
    bodies = [server.bodies.setdefault(f"/{n}", Endless()) for n in range(4)]
    for n in range(4):
        await server.get(f"/{n}")
    await wait_all_tasks_blocked()
    assert sum(body.requested for body in bodies) <= 8


async def test_all_streams_make_progress(serve):
    server = serve(window=2**31 - 1)
    server.client.h2.increment_flow_control_window(2**31 - 1 - 65_535)
    bodies = [server.bodies.setdefault(f"/{n}", Endless()) for n in range(4)]
    calls = [await server.get(f"/{n}") for n in range(4)]
    while min(len(call.body) for call in calls) < 1_000_000:
        await server.client.pump()
    assert max(body.requested for body in bodies) < 40


async def test_many_streams_have_equal_shares(nursery, http2_client):
    """As a benchmark of many shards needs it: woken all at once, half of them would have starved."""
    server = Server(nursery, serve_load_http2, http2_client, max_streams=100, window=2**31 - 1)
    server.client.h2.increment_flow_control_window(2**31 - 1 - 65_535)
    bodies = [server.bodies.setdefault(f"/{n}", Endless()) for n in range(40)]
    calls = [await server.get(f"/{n}") for n in range(40)]
    while min(len(call.body) for call in calls) < 500_000:
        await server.client.pump()
    assert max(body.requested for body in bodies) <= 8


async def test_a_reset_ends_only_its_stream(serve):
    server = serve()
    server.bodies["/endless"] = body = Endless()
    call = await server.get("/endless")
    assert await call.status() == 200
    await server.client.reset(call)
    await until_blocked(server.client)
    assert body.closed
    requested = body.requested
    again = await server.get("/short")
    await until_ended(again)
    assert body.requested == requested


async def test_a_cut_connection_closes_its_bodies(serve):
    server = serve()
    server.bodies["/endless"] = body = Endless()
    await (await server.get("/endless")).status()
    server.stream.cut()
    await server.finished.wait()
    assert body.closed


async def test_goaway_with_an_error_ends_the_connection(serve):
    server = serve()
    server.bodies["/endless"] = body = Endless()
    server.client.opens_windows = False
    await (await server.get("/endless")).status()
    server.client.h2.close_connection(h2.errors.ErrorCodes.PROTOCOL_ERROR)
    await server.client.flush()
    await server.finished.wait()
    assert body.closed


GOAWAY = b"\0\0\x08\x07\0\0\0\0\0" + bytes(8)  # NO_ERROR; not by h2, which would close its side


async def test_goaway_without_an_error_lets_open_streams_continue(serve):
    """The AWS SDK for JavaScript sends GOAWAY as soon as an event stream starts."""
    server = serve()
    server.bodies["/burst"] = Burst(Random(0))
    first, second = await server.get("/burst"), await server.get("/short")
    await first.status()
    await server.stream.send_all(GOAWAY)
    await until_ended(second)
    await until_ended(first)
    assert (first.reset, second.reset) == (None, None)
    await server.finished.wait()


async def test_goaway_on_an_idle_connection_ends_it(serve):
    server = serve()
    await until_ended(await server.get("/short"))
    await server.stream.send_all(GOAWAY)
    await server.finished.wait()


async def test_a_reset_of_the_last_stream_after_goaway_ends_the_connection(serve):
    server = serve()
    server.bodies["/endless"] = body = Endless()
    call = await server.get("/endless")
    await call.status()
    await server.stream.send_all(GOAWAY)
    await server.client.reset(call)
    await server.finished.wait()
    assert body.closed


class Burst:
    """A body of twenty chunks with random sizes."""

    def __init__(self, random):
        self.sizes = [random.randint(1, 200_000) for _ in range(20)]

    async def next_chunk(self):
        await trio.lowlevel.checkpoint()
        return b"x" * self.sizes.pop() if self.sizes else None

    def close(self):
        self.sizes.clear()


async def end_by_goaway(server):
    server.client.h2.close_connection(h2.errors.ErrorCodes.INTERNAL_ERROR)
    await server.client.flush()
    while await server.stream.receive_some():
        pass


async def end_by_protocol_error(server):
    await server.stream.send_all(b"\0\0\1\4\0\0\0\0\0x")  # SETTINGS with a wrong length
    while await server.stream.receive_some():
        pass


async def end_by_cut(server):
    server.stream.cut()


async def end_by_resets(server):
    for call in list(server.client.calls.values()):
        if not call.ended:
            await server.client.reset(call)
    await until_blocked(server.client)
    server.stream.cut()


@pytest.mark.parametrize("ending", [end_by_goaway, end_by_protocol_error, end_by_cut, end_by_resets])
async def test_a_connection_can_end_at_any_time(serve, ending):
    """In each round, reading stops at another point, and trio runs the tasks in another order."""
    for seed in range(60):
        random = Random(seed)
        server = serve(window=2**31 - 1, capacity=random.choice([1000, 70_000, 300_000]))
        server.client.h2.increment_flow_control_window(2**31 - 1 - 65_535)
        server.bodies |= {f"/{n}": Burst(random) for n in range(8)}
        calls = [await server.get(f"/{n}") for n in range(8)]
        for _ in range(random.randint(1, 60)):
            if not all(call.ended for call in calls):
                await server.client.pump()
        await ending(server)
        await server.finished.wait()


async def test_a_ping_is_acknowledged_while_a_stream_is_blocked(serve):
    server = serve(window=100)
    server.bodies["/endless"] = Endless()
    server.client.opens_windows = False
    await (await server.get("/endless")).status()
    server.client.h2.ping(b"12345678")
    await server.client.flush()
    await until_blocked(server.client)
    assert [e.ping_data for e in server.client.events if isinstance(e, h2.events.PingAckReceived)] == [b"12345678"]


async def test_only_the_excess_stream_is_refused(serve):
    server = serve(max_streams=2, window=100)
    server.client.opens_windows = False
    server.bodies["/endless"] = Endless()
    first, second, third = [await server.get("/endless") for _ in range(3)]  # before the settings are received
    await until_blocked(server.client)
    assert server.client.h2.remote_settings.max_concurrent_streams == 2
    assert third.reset == h2.errors.ErrorCodes.REFUSED_STREAM
    assert len(first.body) == len(second.body) == 100
    await server.client.reset(first)
    await until_blocked(server.client)
    fourth = await server.get("/short")
    await until_ended(fourth)
    assert fourth.reset is None


@pytest.mark.parametrize(
    ("garbage", "goaway"),
    [
        (b"GET / HTTP/1.1\r\n\r\n" * 10, False),  # no preface: the RFC allows to close without a GOAWAY
        (b"\0" * 100, False),
        (PREFACE + b"\xff" * 100, False),  # an incomplete frame of 16 MiB
        (PREFACE + b"\0\0\1\4\0\0\0\0\0x", True),  # SETTINGS with a wrong length
        (PREFACE + b"\0\0\0\4\0\0\0\0\0" + b"\0\0\4\0\0\0\0\0\1data", True),  # DATA on an idle stream
        (PREFACE + b"\0\0\0\4\0\0\0\0\0" + b"\0\0\4\1\5\0\0\0\1\xff\xff\xff\xff", True),  # invalid HPACK
    ],
)
async def test_invalid_http2_ends_the_connection(garbage, goaway, nursery):
    ours, theirs = memory_connection(64 * 1024)

    async def send():
        await theirs.send_all(garbage)
        await theirs.send_eof()

    nursery.start_soon(send)
    await serve_http2(ours, lambda _request: pytest.fail("unexpected request"), max_concurrent_streams=1)
    received = b""
    while data := await theirs.receive_some():
        received += data
    assert (b"\x07\0\0\0\0\0" in received) is goaway  # type, flags and stream 0 of a GOAWAY frame


async def test_headers_with_invalid_utf8_get_a_response(serve):
    server = serve()
    call = await server.client.call("Some.Target", b"", path="/\xff\xfe")
    assert await call.status() == 200


async def test_a_too_large_body_is_discarded(serve):
    server = serve(capacity=1 << 20)
    call = await server.client.call("Some.Target", b"x" * (MAX_BODY + 1))
    assert await call.status() == 200
    assert server.requests[0].body is None


@pytest.mark.parametrize(
    ("target", "body", "code"),
    [
        ("Nothing", b"{}", "UnknownOperationException"),
        (None, b"{}", "UnknownOperationException"),
        ("SubscribeToShard", b"{", "SerializationException"),
        ("SubscribeToShard", b'{"ShardId": 7}', "SerializationException"),
        ("SubscribeToShard", b'{"ShardId": "s"}', "ValidationException"),
    ],
)
async def test_the_connection_can_be_reused_after_an_error_response(client, target, body, code):
    call = await client.call(target, body)
    assert await call.status() == 400
    assert (await call.json())["__type"] == code
    assert call.fields["content-type"] == "application/x-amz-json-1.1"
    good = await client.call("ListStreams", {})
    assert (await good.json())["StreamNames"] == ["s"]
