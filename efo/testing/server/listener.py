"""The fake on a loopback port: with TLS and ALPN or without TLS; HTTP/2 or HTTP/1.1, as the client chooses."""

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

from efo.errors import MissingExtraError
from efo.testing.server.background import background
from efo.testing.server.dispatch import Service
from efo.testing.server.http1 import serve_http1
from efo.testing.server.http2 import PREFACE, serve_http2

HOST: Final = "127.0.0.1"
HANDSHAKE_DEADLINE: Final = 10.0

ServeConnection = Callable[[Service, ssl.SSLContext | None, int, trio.SocketStream], Awaitable[None]]
"""Serves one connection until it is closed. Arguments: the service, the TLS context or None for no TLS, the maximum
number of concurrent streams, and the TCP connection."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where the fake listens. `ca_file`: PEM file of the certificate authority to trust; None without TLS."""

    host: str
    port: int
    ca_file: Path | None

    @property
    def authority(self) -> str:
        """Host and port, as in `Host` and `:authority`."""
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The endpoint's URL."""
        return f"{'http' if self.ca_file is None else 'https'}://{self.authority}"


@asynccontextmanager
async def serve(
    service: Service, *, port: int, tls: bool, max_concurrent_streams: int, serve_connection: ServeConnection
) -> AsyncIterator[Address]:
    """Listen on 127.0.0.1 while the context is open. `port`: 0 lets the system choose one.

    All connections are closed when the context ends. Raises OSError: the port is in use.
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
    """Create a certificate authority and a certificate. Write the authority's certificate to `ca_file`."""
    try:
        import trustme  # noqa: PLC0415 - only TLS needs it
    except ImportError as error:
        raise MissingExtraError("a TLS port needs trustme: pip install 'efo[testing]'") from error

    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(ca_file))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(HOST, "localhost").configure_cert(context)
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


async def serve_connection(
    service: Service, context: ssl.SSLContext | None, max_concurrent_streams: int, tcp: trio.SocketStream
) -> None:
    """Serve one connection with h2 and trio.SSLStream."""
    stream: trio.abc.Stream = tcp
    negotiated: str | None = None
    try:
        with trio.fail_after(HANDSHAKE_DEADLINE):
            if context is not None:
                stream = tls = trio.SSLStream(tcp, context, server_side=True, https_compatible=True)
                await tls.do_handshake()
                negotiated = tls.selected_alpn_protocol()
            http2, received = await detect_http2(stream, negotiated)
    except (trio.BrokenResourceError, trio.TooSlowError):
        await trio.aclose_forcefully(tcp)
        return
    if http2:
        await serve_http2(stream, service.respond, max_concurrent_streams=max_concurrent_streams, received=received)
    else:
        await serve_http1(stream, service.respond, service.bad_request, received=received)


async def detect_http2(stream: trio.abc.Stream, negotiated: str | None) -> tuple[bool, bytes]:
    """Return whether a client uses HTTP/2, and the bytes that were read to find out.

    `negotiated`: the protocol that ALPN chose. None: no ALPN, so the first bytes decide, also over TLS. The AWS SDK
    for Java 2 uses HTTP/2 over TLS with prior knowledge.
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


def environment(address: Address, region: str = "us-east-1") -> dict[str, str]:
    """Return the environment variables for a fake at this address.

    All SDKs read the AWS_ variables. Node.js reads the certificate authority from NODE_EXTRA_CA_CERTS, Go from
    SSL_CERT_FILE; Java needs a trust store. The credentials are not real.
    """
    variables = {
        "AWS_ENDPOINT_URL_KINESIS": address.url,
        "AWS_REGION": region,
        "AWS_DEFAULT_REGION": region,
        "AWS_ACCESS_KEY_ID": "fake",
        "AWS_SECRET_ACCESS_KEY": "fake",
    }
    if address.ca_file is not None:
        variables |= dict.fromkeys(("AWS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE"), str(address.ca_file))
    return variables
