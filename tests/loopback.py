"""Servers on loopback for single connections: what answers is chosen by the test."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any

import trio
import trustme


@asynccontextmanager
async def listening(handler: Callable[[trio.SocketStream], Awaitable[object]] | None) -> AsyncIterator[int]:
    """Serve connections on a loopback port with this handler; yield the port."""
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, handler, [listener])
        yield listener.socket.getsockname()[1]
        nursery.cancel_scope.cancel()


@contextmanager
def refused_port() -> Iterator[int]:
    """Yield a port that is bound but not listening: nobody else can bind it, and it refuses connections."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def tls_handler(
    authority: trustme.CA,
    alpn: Sequence[str] = (),
    name: str = "127.0.0.1",
    certificate: trustme.LeafCert | None = None,
) -> Callable[[trio.SocketStream], Awaitable[None]]:
    """Return a handler that does the TLS handshake with a certificate of this name, and then echoes."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    (certificate or authority.issue_cert(name)).configure_cert(context)
    if alpn:
        context.set_alpn_protocols(list(alpn))

    async def handle(stream: trio.SocketStream) -> None:
        tls = trio.SSLStream(stream, context, server_side=True, https_compatible=True)
        try:
            async for data in tls:
                await tls.send_all(data)
        except trio.BrokenResourceError:
            await trio.aclose_forcefully(stream)

    return handle


def json_server(document: Any, content_type: str = "application/x-amz-json-1.0") -> AbstractAsyncContextManager[int]:
    """Answer each request with this document. Yields the port."""

    async def handle(stream: trio.SocketStream) -> None:
        received = b""
        while b"\r\n\r\n" not in received:
            data = await stream.receive_some()
            if not data:
                return
            received += data
        text = document if isinstance(document, bytes) else json.dumps(document).encode()
        await stream.send_all(
            b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s"
            % (content_type.encode(), len(text), text)
        )
        await stream.aclose()

    return listening(handle)
