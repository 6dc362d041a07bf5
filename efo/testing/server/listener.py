"""The fake on a loopback port: TLS with ALPN, or plain; HTTP/2 or HTTP/1.1 as the client asks."""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import trio

from efo.testing.server.background import background
from efo.testing.server.dispatch import Service
from efo.testing.server.http1 import serve_http1
from efo.testing.server.http2 import PREFACE, serve_http2

HOST: Final = "127.0.0.1"
HANDSHAKE_DEADLINE: Final = 10.0

ServeConnection = Callable[[Service, ssl.SSLContext | None, int, trio.SocketStream], Awaitable[None]]
"""Serves one connection to its end: with TLS where there is a context, with so many streams at once."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where the fake listens. `ca_file`: the PEM file of the authority to trust, None without TLS."""

    host: str
    port: int
    ca_file: Path | None

    @property
    def authority(self) -> str:
        """Host and port, as `Host` and `:authority` tell them."""
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The endpoint's URL."""
        return f"{'http' if self.ca_file is None else 'https'}://{self.authority}"


@asynccontextmanager
async def serve(
    service: Service, *, port: int, tls: bool, max_concurrent_streams: int, serve_connection: ServeConnection
) -> AsyncIterator[Address]:
    """Listen on 127.0.0.1 for as long as the context is open; port 0 lets the system choose.

    Raises OSError where the port is taken. Leaving cuts the connections.
    """
    (listener,) = await trio.open_tcp_listeners(port, host=HOST)
    async with listener:
        with tempfile.TemporaryDirectory(prefix="efo-fake-") as directory:
            ca_file = Path(directory, "ca.pem") if tls else None
            context = None if ca_file is None else _tls_context(ca_file)
            serve_one = partial(serve_connection, service, context, max_concurrent_streams)
            async with background() as nursery:
                nursery.start_soon(trio.serve_listeners, serve_one, [listener])
                yield Address(HOST, listener.socket.getsockname()[1], ca_file)


def _tls_context(ca_file: Path) -> ssl.SSLContext:
    """Make an authority and a certificate of its own; write the authority's to `ca_file`."""
    import trustme  # noqa: PLC0415 - only TLS needs it

    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(ca_file))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(HOST, "localhost").configure_cert(context)
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


async def serve_connection(
    service: Service, context: ssl.SSLContext | None, max_concurrent_streams: int, tcp: trio.SocketStream
) -> None:
    """Serve one connection, over h2 and trio's own TLS."""
    stream: trio.abc.Stream = tcp
    negotiated: str | None = None
    try:
        with trio.fail_after(HANDSHAKE_DEADLINE):
            if context is not None:
                stream = tls = trio.SSLStream(tcp, context, server_side=True, https_compatible=True)
                await tls.do_handshake()
                negotiated = tls.selected_alpn_protocol()
            http2, received = await speaks_http2(stream, negotiated)
    except (trio.BrokenResourceError, trio.TooSlowError):
        await trio.aclose_forcefully(tcp)
        return
    if http2:
        await serve_http2(stream, service.answer, max_concurrent_streams=max_concurrent_streams, received=received)
    else:
        await serve_http1(stream, service.answer, service.bad_request, received=received)


async def speaks_http2(stream: trio.abc.Stream, negotiated: str | None) -> tuple[bool, bytes]:
    """Tell whether a client speaks HTTP/2, and what was read to know it.

    `negotiated` is the protocol that ALPN chose, None where there was no ALPN: then the first bytes tell, over TLS too.
    The SDK for Java 2 comes so, by prior knowledge.
    """
    if negotiated is not None:
        return negotiated == "h2", b""
    received = b""
    while len(received) < len(PREFACE) and PREFACE.startswith(received):
        data = await stream.receive_some(len(PREFACE) - len(received))
        if not data:
            break
        received += data
    return received.startswith(PREFACE), received
