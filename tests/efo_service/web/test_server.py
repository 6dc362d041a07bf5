from __future__ import annotations

import socket
from contextlib import suppress

import httpx2
import pytest
import structlog
import trio
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from efo_service.errors import UnavailableError
from efo_service.web.server import serve


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
    monkeypatch.setattr("efo_service.web.server.SEND_SECONDS", 0.2)
    url = await nursery.start(serve, endless, "127.0.0.1", 0)
    with trio.fail_after(30):
        async with await connected(url) as client:
            await client.send_all(GET)
            with pytest.raises(trio.BrokenResourceError):  # once the connection is reset
                await send_forever(client)


async def test_the_server_ends_although_a_client_does_not_read(monkeypatch):
    monkeypatch.setattr("efo_service.web.server.SEND_SECONDS", 0.2)
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            url = await nursery.start(serve, endless, "127.0.0.1", 0)
            client = await connected(url)
            await client.send_all(GET)
            assert (await client.receive_some(4)) == b"HTTP"
            nursery.cancel_scope.cancel()
        await client.aclose()


async def test_connections_beyond_the_limit_are_closed_and_do_not_disturb_the_others(nursery, monkeypatch):
    monkeypatch.setattr("efo_service.web.server.MAX_CONNECTIONS", 1)
    url = await nursery.start(serve, APP, "127.0.0.1", 0)
    with trio.fail_after(30):
        async with await connected(url) as first:
            await first.send_all(GET)
            assert (await first.receive_some(4)) == b"HTTP"
            async with await connected(url) as second:
                with suppress(trio.BrokenResourceError):
                    assert await second.receive_some(1) == b""
            await first.send_all(GET)
            rest = b""
            while rest.count(b"hello") < 2:
                rest += await first.receive_some()


async def test_a_head_that_is_too_long_is_refused(nursery):
    url = await nursery.start(serve, APP, "127.0.0.1", 0)
    with trio.fail_after(30):
        async with await connected(url) as client:
            await client.send_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + b"x" * 40_000)
            assert (await client.receive_some(12)).startswith(b"HTTP/1.1 431")


async def test_a_request_that_breaks_the_http_library_ends_its_connection_alone(nursery):
    """The settings of HTTP/2 in an upgrade are not base64: the library raises, and the service goes on."""
    url = await nursery.start(serve, APP, "127.0.0.1", 0)
    upgrade = b"connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: !!!!a\r\n\r\n"
    with structlog.testing.capture_logs() as lines, trio.fail_after(30):
        async with await connected(url) as client:
            await client.send_all(GET.removesuffix(b"\r\n") + upgrade)
            assert b"hello" not in await read_all(client)
    assert [(line["event"], line["log_level"]) for line in lines] == [("connection_failed", "warning")]
    assert lines[0]["address"] == "127.0.0.1"
    assert "!!!!a" not in str(lines)
    async with httpx2.AsyncClient(trust_env=False) as client:
        assert (await client.get(url)).text == "hello"


async def read_all(client: trio.SocketStream) -> bytes:
    data = bytearray()
    with suppress(trio.BrokenResourceError):
        async for chunk in client:
            data += chunk
    return bytes(data)
