from __future__ import annotations

from functools import partial
from random import Random

import h2.errors
import h2.events
import h2.settings
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from efo.testing.load.http2 import serve_load_http2
from efo.testing.memory_stream import memory_connection
from efo.testing.server.dispatch import MAX_BODY, Response
from efo.testing.server.http2 import PREFACE, serve_http2


class Endless:
    """A body without end, which counts what was asked of it."""

    def __init__(self, size=100_000):
        self.size = size
        self.asked = 0
        self.closed = False

    async def next_chunk(self):
        self.asked += 1
        return b"x" * self.size

    def close(self):
        self.closed = True


class Server:
    """One connection to a server of whatever bodies the test wants, by path."""

    def __init__(self, nursery, serve_connection, make_client, *, max_streams=10, capacity=64 * 1024, **client):
        self.bodies = {}
        self.requests = []
        self.finished = trio.Event()
        self._serve = serve_connection
        ours, self.stream = memory_connection(capacity)
        nursery.start_soon(self._run, ours, max_streams)
        self.client = make_client(self.stream, **client)

    async def _run(self, stream, max_streams):
        await self._serve(stream, self._answer, max_concurrent_streams=max_streams)
        self.finished.set()

    def _answer(self, request):
        self.requests.append(request)
        body = self.bodies.get(request.path, b"fine")
        return Response(200, [("content-type", "text/plain")], body)

    async def get(self, path):
        return await self.client.call("Some.Target", b"", path=path)


@pytest.fixture(params=[serve_http2, serve_load_http2])
def serve(request, nursery, http2_client):
    return partial(Server, nursery, request.param, http2_client)


async def until_blocked(client):
    """Read until the server sends nothing more."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pump_on, client)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()


async def pump_on(client):
    while True:
        await client.pump()


async def test_a_request_is_read_and_answered(serve):
    server = serve()
    call = await server.client.call("Some.Target", b"x" * 200_000, path="/p")
    assert await call.status() == 200
    await until_ended(call)
    assert bytes(call.body) == b"fine"
    (request,) = server.requests
    assert (request.method, request.path, request.body) == ("POST", "/p", b"x" * 200_000)
    assert request.headers["x-amz-target"] == "Some.Target"


async def until_ended(call):
    while not call.ended:
        await call.client.pump()


async def test_it_does_not_matter_how_the_bytes_are_cut(serve, http2_client):
    server = serve()
    stream, server.client.stream = server.client.stream, Collector()
    call = await server.get("/p")
    for byte in server.client.stream.data:
        await stream.send_all(bytes([byte]))
    server.client.stream = stream
    await until_ended(call)
    assert bytes(call.body) == b"fine"


class Collector:
    def __init__(self):
        self.data = b""

    async def send_all(self, data):
        self.data += data


async def test_the_stream_window_is_kept_and_stalls_no_neighbour(serve):
    server = serve(window=10_000)
    server.bodies["/endless"] = body = Endless()
    server.client.opens_windows = False
    server.client.h2.increment_flow_control_window(10_000_000)
    stalled = await server.get("/endless")
    await until_blocked(server.client)
    assert len(stalled.body) == 10_000
    assert body.asked == 1
    neighbour = await server.get("/fine")
    await until_ended(neighbour)
    assert bytes(neighbour.body) == b"fine"
    server.client.h2.increment_flow_control_window(500, stalled.stream_id)
    await server.client.flush()
    await until_blocked(server.client)
    assert len(stalled.body) == 10_500


async def test_the_connection_window_is_kept_by_all_streams_together(serve):
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


async def test_settings_open_a_window_too(serve):
    server = serve(window=0)
    server.client.opens_windows = False
    call = await server.get("/fine")
    await until_blocked(server.client)
    assert not call.body
    server.client.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 2})
    await server.client.flush()
    await until_blocked(server.client)
    assert bytes(call.body) == b"fi"


@pytest.mark.parametrize("seed", range(5))
async def test_windows_are_used_to_the_byte_and_never_beyond(serve, seed):
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
            case 2:  # a window may become negative
                http2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: size})
                granted = [window + size - initial for window in granted]
                initial = size
        before = [len(call.body) for call in calls]
        await server.client.flush()
        await until_blocked(server.client)
        got = [len(call.body) for call in calls]
        assert all(has <= max(had, window) for has, had, window in zip(got, before, granted, strict=True))
        used_up = all(has >= window for has, window in zip(got, granted, strict=True))
        assert sum(got) == connection or (sum(got) < connection and used_up)


async def test_frames_are_as_long_as_the_client_allows(serve):
    server = serve(window=10_000_000)
    server.client.h2.increment_flow_control_window(10_000_000)
    assert server.client.h2.max_inbound_frame_size == 16_384  # a longer frame would end the connection
    server.bodies["/endless"] = Endless(70_000)
    call = await server.get("/endless")
    while len(call.body) < 200_000:
        await server.client.pump()
    server.client.h2.update_settings({h2.settings.SettingCodes.MAX_FRAME_SIZE: 50_000})
    await server.client.flush()
    # The acknowledgement and a long frame may come in one piece, for which h2 still holds the old limit.
    server.client.h2.max_inbound_frame_size = 50_000
    lengths = set()
    while 50_000 not in lengths:
        await server.client.pump()
        lengths |= {e.flow_controlled_length for e in server.client.events if isinstance(e, h2.events.DataReceived)}
    assert max(lengths) == 50_000


async def test_a_client_that_does_not_read_costs_one_buffer(serve):
    server = serve(window=2**31 - 1, capacity=1000)
    server.client.h2.increment_flow_control_window(2**31 - 1 - 65_535)
    bodies = [server.bodies.setdefault(f"/{n}", Endless()) for n in range(4)]
    for n in range(4):
        await server.get(f"/{n}")
    await wait_all_tasks_blocked()
    assert sum(body.asked for body in bodies) <= 8


async def test_every_stream_has_its_turn(serve):
    server = serve(window=2**31 - 1)
    server.client.h2.increment_flow_control_window(2**31 - 1 - 65_535)
    bodies = [server.bodies.setdefault(f"/{n}", Endless()) for n in range(4)]
    calls = [await server.get(f"/{n}") for n in range(4)]
    while min(len(call.body) for call in calls) < 1_000_000:
        await server.client.pump()
    assert max(body.asked for body in bodies) < 40


async def test_a_reset_stops_the_stream_and_no_other(serve):
    server = serve()
    server.bodies["/endless"] = body = Endless()
    call = await server.get("/endless")
    assert await call.status() == 200
    await server.client.reset(call)
    await until_blocked(server.client)
    assert body.closed
    asked = body.asked
    again = await server.get("/fine")
    await until_ended(again)
    assert body.asked == asked


async def test_a_cut_connection_frees_everything(serve):
    server = serve()
    server.bodies["/endless"] = body = Endless()
    await (await server.get("/endless")).status()
    server.stream.cut()
    await server.finished.wait()
    assert body.closed


async def test_goaway_for_an_error_ends_the_connection(serve):
    server = serve()
    server.bodies["/endless"] = body = Endless()
    server.client.opens_windows = False
    await (await server.get("/endless")).status()
    server.client.h2.close_connection(h2.errors.ErrorCodes.PROTOCOL_ERROR)
    await server.client.flush()
    await server.finished.wait()
    assert body.closed


GOAWAY = b"\0\0\x08\x07\0\0\0\0\0" + bytes(8)  # NO_ERROR; written by hand, since h2 would end its side


async def test_goaway_without_an_error_lets_the_open_streams_end(serve):
    """The SDK for JavaScript says goodbye as soon as an event stream begins."""
    server = serve()
    server.bodies["/burst"] = Burst(Random(0))
    first, second = await server.get("/burst"), await server.get("/fine")
    await first.status()
    await server.stream.send_all(GOAWAY)
    await until_ended(second)
    await until_ended(first)
    assert (first.reset, second.reset) == (None, None)
    await server.finished.wait()


async def test_goaway_on_an_idle_connection_ends_it(serve):
    server = serve()
    await until_ended(await server.get("/fine"))
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
    """A body of twenty chunks, each of another size."""

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


async def end_by_nonsense(server):
    await server.stream.send_all(b"\0\0\1\4\0\0\0\0\0x")  # SETTINGS of a wrong length
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


@pytest.mark.parametrize("ending", [end_by_goaway, end_by_nonsense, end_by_cut, end_by_resets])
async def test_the_end_may_come_at_any_moment(serve, ending):
    """Each round stops reading somewhere else, and trio runs the tasks in another order."""
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


async def test_a_ping_is_answered_while_a_stream_is_stalled(serve):
    server = serve(window=100)
    server.bodies["/endless"] = Endless()
    server.client.opens_windows = False
    await (await server.get("/endless")).status()
    server.client.h2.ping(b"12345678")
    await server.client.flush()
    await until_blocked(server.client)
    assert [e.ping_data for e in server.client.events if isinstance(e, h2.events.PingAckReceived)] == [b"12345678"]


async def test_one_stream_too_many_is_refused_alone(serve):
    server = serve(max_streams=2, window=100)
    server.client.opens_windows = False
    server.bodies["/endless"] = Endless()
    first, second, third = [await server.get("/endless") for _ in range(3)]  # before the settings were seen
    await until_blocked(server.client)
    assert server.client.h2.remote_settings.max_concurrent_streams == 2
    assert third.reset == h2.errors.ErrorCodes.REFUSED_STREAM
    assert len(first.body) == len(second.body) == 100
    await server.client.reset(first)
    await until_blocked(server.client)
    fourth = await server.get("/fine")
    await until_ended(fourth)
    assert fourth.reset is None


@pytest.mark.parametrize(
    ("garbage", "goaway"),
    [
        (b"GET / HTTP/1.1\r\n\r\n" * 10, False),  # no preface: the RFC lets a server leave without a word
        (b"\0" * 100, False),
        (PREFACE + b"\xff" * 100, False),  # a frame of 16 MiB that never comes
        (PREFACE + b"\0\0\1\4\0\0\0\0\0x", True),  # SETTINGS of a wrong length
        (PREFACE + b"\0\0\0\4\0\0\0\0\0" + b"\0\0\4\0\0\0\0\0\1data", True),  # DATA for no stream
        (PREFACE + b"\0\0\0\4\0\0\0\0\0" + b"\0\0\4\1\5\0\0\0\1\xff\xff\xff\xff", True),  # no HPACK
    ],
)
async def test_what_is_not_http2_ends_the_connection(garbage, goaway, nursery):
    ours, theirs = memory_connection(64 * 1024)

    async def send():
        await theirs.send_all(garbage)
        await theirs.send_eof()

    nursery.start_soon(send)
    await serve_http2(ours, lambda _request: pytest.fail("nothing to answer"), max_concurrent_streams=1)
    received = b""
    while data := await theirs.receive_some():
        received += data
    assert (b"\x07\0\0\0\0\0" in received) is goaway  # a GOAWAY frame's type, flags and stream 0


async def test_headers_that_are_not_text_are_answered(serve):
    server = serve()
    call = await server.client.call("Some.Target", b"", path="/\xff\xfe")
    assert await call.status() == 200


async def test_a_body_that_is_too_long_is_not_kept(serve):
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
async def test_a_bad_request_gets_an_answer_and_the_connection_goes_on(client, target, body, code):
    call = await client.call(target, body)
    assert await call.status() == 400
    assert (await call.json())["__type"] == code
    assert call.fields["content-type"] == "application/x-amz-json-1.1"
    good = await client.call("ListStreams", {})
    assert (await good.json())["StreamNames"] == ["s"]
