from __future__ import annotations

import socket
from contextlib import AsyncExitStack, suppress

import httpx2
import pytest
import structlog
import trio
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from efo_service.errors import UnavailableError
from efo_service.web.http.accepting import MAX_CONNECTIONS
from efo_service.web.server import _Closed, serve
from tests.efo_service.web.http.resolving import needs_ipv6, resolving
from tests.step_meter import BOUND, StepMeter, slowest_step


async def hello(_request):
    return PlainTextResponse("hello")


APP = Starlette(routes=[Route("/", hello)])


async def test_port_0_serves_on_a_free_port_until_cancelled():
    async with trio.open_nursery() as nursery:
        url = await nursery.start(serve, APP, "127.0.0.1", 0)
        async with httpx2.AsyncClient(trust_env=False) as client:
            assert (await client.get(url)).text == "hello"
        nursery.cancel_scope.cancel()
    with pytest.raises(OSError, match="all attempts to connect"):
        await trio.open_tcp_stream("127.0.0.1", int(url.rpartition(":")[2]))


async def test_a_port_in_use_is_reported_with_the_setting_to_change():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(UnavailableError, match=rf"cannot listen on 127.0.0.1:{port}: Address already in use.*port"):
            await serve(APP, "127.0.0.1", port)


async def test_an_unknown_host_is_unavailable():
    with pytest.raises(UnavailableError, match="cannot listen on no such host:0"):
        await serve(APP, "no such host", 0)


@needs_ipv6
async def test_all_addresses_of_ipv6_are_those_of_ipv4_too_and_the_log_says_so(nursery):
    with structlog.testing.capture_logs() as lines:
        url = await nursery.start(serve, APP, "::", 0)
    port = int(url.rpartition(":")[2])
    assert url == f"http://[::]:{port}"
    assert lines == [
        {"event": "listening", "log_level": "info", "urls": [f"http://[::]:{port}", f"http://0.0.0.0:{port}"]}
    ]
    async with httpx2.AsyncClient(trust_env=False) as client:
        for host in ("[::1]", "127.0.0.1"):
            assert (await client.get(f"http://{host}:{port}")).text == "hello"


@needs_ipv6
async def test_a_client_by_ipv4_has_its_address_where_all_of_ipv6_and_ipv4_is_served(nursery):
    """Otherwise all of them would be one network of IPv6, which shares its places and its attempts at the token."""

    async def ends(request):
        return PlainTextResponse(f"{request.client.host} {request.url.hostname} {request.scope['server'][0]}")

    url = await nursery.start(serve, Starlette(routes=[Route("/", ends)]), "::", 0)
    port = int(url.rpartition(":")[2])
    async with httpx2.AsyncClient(trust_env=False) as client:
        assert (await client.get(f"http://127.0.0.1:{port}")).text == "127.0.0.1 127.0.0.1 127.0.0.1"


async def test_a_name_is_served_on_each_of_its_addresses(nursery, monkeypatch):
    resolving(monkeypatch, "127.0.0.1", "127.0.0.2")
    with structlog.testing.capture_logs() as lines:
        url = await nursery.start(serve, APP, "host.test", 0)
    port = int(url.rpartition(":")[2])
    assert lines[0]["urls"] == [f"http://127.0.0.1:{port}", f"http://127.0.0.2:{port}"]
    monkeypatch.undo()
    async with httpx2.AsyncClient(trust_env=False) as client:
        for host in ("127.0.0.1", "127.0.0.2"):
            assert (await client.get(f"http://{host}:{port}")).text == "hello"


GET = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"


async def endless(scope, _receive, send):
    """Respond without end, to a client that may not read."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while True:
        await send({"type": "http.response.body", "body": b"x" * 2**20, "more_body": True})


async def send_forever(client: trio.SocketStream) -> None:
    while True:
        await client.send_all(b"x")
        await trio.sleep(0.01)


async def connected(url: str) -> trio.SocketStream:
    return await trio.open_tcp_stream("127.0.0.1", int(url.rpartition(":")[2]))


async def test_a_client_that_does_not_read_is_dropped(nursery, monkeypatch):
    monkeypatch.setattr("efo_service.web.http.connection.SEND_SECONDS", 0.2)
    url = await nursery.start(serve, endless, "127.0.0.1", 0)
    with trio.fail_after(30):
        async with await connected(url) as client:
            await client.send_all(GET)
            with pytest.raises(trio.BrokenResourceError):  # once the connection is reset
                await send_forever(client)


async def test_the_server_ends_although_a_client_does_not_read(monkeypatch):
    monkeypatch.setattr("efo_service.web.http.connection.SEND_SECONDS", 0.2)
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            url = await nursery.start(serve, endless, "127.0.0.1", 0)
            client = await connected(url)
            await client.send_all(GET)
            assert (await client.receive_some(4)) == b"HTTP"
            nursery.cancel_scope.cancel()
        await client.aclose()


async def test_a_head_that_is_too_long_is_refused(nursery):
    url = await nursery.start(serve, APP, "127.0.0.1", 0)
    with trio.fail_after(30):
        async with await connected(url) as client:
            await client.send_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + b"x" * 40_000)
            assert (await client.receive_some(12)).startswith(b"HTTP/1.1 431")


async def read_all(client: trio.SocketStream) -> bytes:
    data = bytearray()
    with suppress(trio.BrokenResourceError):
        async for chunk in client:
            data += chunk
    return bytes(data)


async def test_idle_connections_of_one_client_leave_room_for_a_probe_from_the_same_address(nursery):
    url = await nursery.start(serve, APP, "127.0.0.1", 0)
    with structlog.testing.capture_logs() as lines, trio.fail_after(30):
        async with AsyncExitStack() as idle:
            for _ in range(MAX_CONNECTIONS + 20):
                await idle.enter_async_context(await connected(url))
            async with httpx2.AsyncClient(trust_env=False) as client:
                for _ in range(3):
                    assert (await client.get(url)).text == "hello"
    (line,) = lines
    assert (line["event"], line["count"], line["limit"]) == ("connections_closed", 1, MAX_CONNECTIONS)


def test_connections_that_make_room_for_others_are_a_line_a_minute():
    closed = _Closed()
    with structlog.testing.capture_logs() as lines:
        for second in range(150):
            closed.count(1, float(second))
    assert [line["count"] for line in lines] == [1, 60, 60]


async def test_a_viewer_that_leaves_is_no_failure(nursery):
    async def stream(_scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        async with trio.open_nursery() as sending:
            sending.start_soon(receive)
            while True:
                await send({"type": "http.response.body", "body": b"x" * 2**20, "more_body": True})

    url = await nursery.start(serve, stream, "127.0.0.1", 0)
    with structlog.testing.capture_logs() as lines, trio.fail_after(30):
        async with await connected(url) as client:
            await client.send_all(GET)
            await client.receive_some()
        async with await connected(url) as client:
            await client.send_all(GET)
            await client.receive_some()
        await trio.testing.wait_all_tasks_blocked(0.05)
    assert lines == []


async def test_an_app_that_fails_is_logged_without_what_it_says_and_the_others_are_served(nursery):
    async def fail(_scope, _receive, _send):
        raise ValueError("CaNaRy")

    url = await nursery.start(serve, fail, "127.0.0.1", 0)
    with structlog.testing.capture_logs() as lines, trio.fail_after(30):
        for _ in range(2):
            async with await connected(url) as client:
                await client.send_all(GET)
                assert await read_all(client) == b""
    assert [(line["event"], line["error_type"]) for line in lines] == [("connection_failed", "ValueError")] * 2
    assert "CaNaRy" not in str(lines)


async def test_no_step_is_long_whatever_many_connections_send_at_once():
    """What each of them sends is as expensive as it can be: many requests, chunks of a byte, a head of many fields."""
    requests = GET * 150
    chunks = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 2000
    fields = b"GET / HTTP/1.1\r\nhost: a\r\n" + b"a:\r\n" * 3000

    async def scenario(meter: StepMeter) -> None:
        async with trio.open_nursery() as nursery:
            url = await nursery.start(serve, APP, "127.0.0.1", 0)
            with meter.measure():
                async with trio.open_nursery() as clients:
                    for number in range(60):
                        clients.start_soon(ask_and_leave, url, (requests, chunks, fields)[number % 3])
            nursery.cancel_scope.cancel()

    step = await slowest_step(scenario)
    assert step.seconds < BOUND, step


async def ask_and_leave(url: str, data: bytes) -> None:
    async with await connected(url) as client:
        with suppress(trio.BrokenResourceError):
            await client.send_all(data)
            await client.send_eof()
        assert (await read_all(client)).startswith((b"HTTP/1.1", b""))
