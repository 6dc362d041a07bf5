from __future__ import annotations

import socket

import httpx2
import pytest
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
