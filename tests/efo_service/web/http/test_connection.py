"""One connection in memory, under virtual time."""

from __future__ import annotations

import pytest
import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from trio.testing import lockstep_stream_pair, memory_stream_pair

from efo_service.web.http.accepting import ConnectionSlot
from efo_service.web.http.connection import IDLE_SECONDS, SEND_SECONDS, serve_connection
from efo_service.web.security.guard import read_body

GET = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"


async def hello(request: Request) -> Response:
    return PlainTextResponse(f"hello {request.query_params.get('name', '')}")


async def echo(request: Request) -> Response:
    return Response(await read_body(request))


async def unread(_request: Request) -> Response:
    return PlainTextResponse("did not look")


async def fail(_request: Request) -> Response:
    raise RuntimeError("of the app")


APP = Starlette(
    routes=[
        Route("/", hello),
        Route("/echo", echo, methods=["POST"]),
        Route("/unread", unread, methods=["POST"]),
        Route("/fail", fail),
    ]
)


class Client:
    """The client's end of a connection that is served."""

    def __init__(self, nursery: trio.Nursery, app=APP) -> None:
        self.stream, ours = memory_stream_pair()
        self.place = ConnectionSlot("10.0.0.7", lambda: None)
        self.error: Exception | None = None
        self._app, self._ours = app, ours
        nursery.start_soon(self._serve)

    async def _serve(self) -> None:
        base = {"scheme": "http", "client": ("10.0.0.7", 1), "server": ("127.0.0.1", 80)}
        try:
            await serve_connection(self._app, self._ours, base, self.place, trio.Semaphore(8))
        except RuntimeError as error:
            self.error = error
            await self._ours.aclose()

    async def ask(self, data: bytes) -> bytes:
        """Send, and return all that comes until the connection ends."""
        await self.stream.send_all(data)
        return await self.rest()

    async def rest(self) -> bytes:
        received = bytearray()
        async for chunk in self.stream:
            received += chunk
        return bytes(received)


@pytest.fixture
def client(nursery):
    return Client(nursery)


async def test_requests_follow_each_other_until_the_client_is_silent(autojump_clock, client):
    await client.stream.send_all(GET)
    first = await client.stream.receive_some()
    assert first.startswith(b"HTTP/1.1 200")
    assert b"\r\ndate: " in first
    began = trio.current_time()
    assert (await client.ask(GET)).endswith(b"hello ")
    assert trio.current_time() - began == pytest.approx(IDLE_SECONDS)


async def test_pipelined_requests_are_answered_in_order(autojump_clock, client):
    asked = b"".join(GET.replace(b"/ ", b"/?name=%d " % number) for number in range(50))
    answers = (await client.ask(asked + GET.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))).split(
        b"HTTP/1.1 200"
    )
    assert [answer.rpartition(b"hello ")[2] for answer in answers[1:-1]] == [b"%d" % number for number in range(50)]


async def test_a_body_is_read_whole_whether_it_has_a_length_or_chunks_and_what_follows_is_the_next_request(
    autojump_clock, client
):
    asked = b"POST /echo HTTP/1.1\r\nhost: a\r\n"
    length = asked + b"content-length: 3\r\n\r\nabc"
    chunks = asked + b"transfer-encoding: chunked\r\n\r\n2;x=y\r\nde\r\n1\r\nf\r\n0\r\n\r\n"
    answer = await client.ask(length + chunks + GET)
    bodies = [each.rpartition(b"\r\n\r\n")[2] for each in answer.split(b"HTTP/1.1 200")]
    assert bodies == [b"", b"abc", b"def", b"hello "]


async def test_a_client_that_waits_for_100_continue_gets_it(autojump_clock, client):
    asked = b"POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\nexpect: 100-continue\r\n\r\n"
    await client.stream.send_all(asked)
    assert (await client.stream.receive_some()).startswith(b"HTTP/1.1 100")
    assert (await client.ask(b"abc")).endswith(b"abc")


async def test_a_body_that_nobody_read_ends_the_connection_after_the_response(autojump_clock, client):
    answer = await client.ask(b"POST /unread HTTP/1.1\r\nhost: a\r\ncontent-length: 99\r\n\r\nabc" + GET)
    assert answer.count(b"HTTP/1.1 200") == 1
    assert answer.endswith(b"did not look")


async def test_a_head_that_comes_slowly_is_refused(autojump_clock, client):
    async with trio.open_nursery() as dripping:

        async def drip() -> None:
            for byte in GET * 9:
                await client.stream.send_all(bytes([byte]))
                await trio.sleep(1.0)

        dripping.start_soon(drip)
        began = trio.current_time()
        assert (await client.rest()).startswith(b"HTTP/1.1 408")
        assert trio.current_time() - began < IDLE_SECONDS + 2
        dripping.cancel_scope.cancel()


async def test_a_body_that_comes_slowly_is_refused(autojump_clock, client):
    head = b"POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 99\r\n\r\n"
    assert (await client.ask(head)).startswith(b"HTTP/1.1 408")


async def test_a_body_that_is_too_long_is_refused_before_it_has_arrived(autojump_clock, client):
    head = b"POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000000000\r\n\r\n"
    assert (await client.ask(head + b"x" * 5000)).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize("body", [b"zz\r\n", b"-1\r\n", b"1\nx\n0\n\n", b"1\r\nxyz", b"ffffffffffffffffffffff\r\n"])
async def test_chunks_that_are_none_end_the_connection(autojump_clock, client, body):
    head = b"POST /echo HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
    answer = await client.ask(head + body + GET)
    assert answer.count(b"HTTP/1.1") == 1
    assert answer.startswith(b"HTTP/1.1 400")


async def test_http_2_is_refused_and_an_upgrade_to_it_is_not_taken(autojump_clock, client, nursery):
    assert (await client.ask(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")).startswith(b"HTTP/1.1 505")
    upgrade = b"\r\nconnection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n\r\n"
    answer = await Client(nursery).ask(GET.replace(b"\r\n\r\n", upgrade))
    assert answer.startswith(b"HTTP/1.1 200")
    socket = (
        b"\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-key: x\r\nsec-websocket-version: 13\r\n\r\n"
    )
    answer = await Client(nursery).ask(GET.replace(b"\r\n\r\n", socket))
    assert answer.startswith(b"HTTP/1.1 200")


async def test_a_head_request_gets_no_body(autojump_clock, client):
    answer = await client.ask(GET.replace(b"GET", b"HEAD"))
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"content-length: 6\r\n" in answer
    assert answer.endswith(b"\r\n\r\n")


async def test_http_1_0_ends_after_the_response(autojump_clock, client):
    answer = await client.ask(b"GET / HTTP/1.0\r\nhost: a\r\n\r\n")
    assert answer.endswith(b"hello ")


@pytest.mark.parametrize(("method", "status"), [(b"OPTIONS", 405), (b"TRACE", 405), (b"DELETE", 405), (b"FOO", 405)])
async def test_other_methods_are_not_allowed(autojump_clock, client, method, status):
    assert (await client.ask(GET.replace(b"GET", method))).startswith(b"HTTP/1.1 %d" % status)


async def test_an_app_that_fails_is_reported_after_the_client_has_a_response(autojump_clock, client):
    answer = await client.ask(GET.replace(b"/ ", b"/fail "))
    assert answer.startswith(b"HTTP/1.1 500")
    assert str(client.error) == "of the app"


async def test_an_app_that_streams_sees_that_the_client_is_gone(nursery, autojump_clock):
    gone = trio.Event()

    async def app(_scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        assert (await receive())["type"] == "http.request"
        assert (await receive())["type"] == "http.disconnect"
        gone.set()

    client = Client(nursery, app)
    await client.stream.send_all(GET)
    assert (await client.stream.receive_some()).startswith(b"HTTP/1.1 200")
    assert not client.place.is_idle
    await client.stream.aclose()
    await gone.wait()


async def test_a_client_that_sends_on_and_on_while_it_is_answered_counts_as_gone(nursery, autojump_clock):
    async def app(_scope, receive, send):
        await receive()
        assert (await receive())["type"] == "http.disconnect"
        await PlainTextResponse("enough")(_scope, receive, send)

    client = Client(nursery, app)
    assert (await client.ask(GET + b"x" * 40_000)).count(b"enough") == 1


async def test_a_client_that_does_not_take_a_response_is_dropped(nursery, autojump_clock):
    theirs, ours = lockstep_stream_pair()
    place = ConnectionSlot(None, lambda: None)
    nursery.start_soon(theirs.send_all, GET)
    began = trio.current_time()
    await serve_connection(APP, ours, {"scheme": "http", "client": None, "server": None}, place, trio.Semaphore(8))
    assert trio.current_time() - began == pytest.approx(SEND_SECONDS)
