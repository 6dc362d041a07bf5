"""An HTTP proxy of our own, whose faults are chosen; and tinyproxy, from Debian's package `tinyproxy-bin`."""

from __future__ import annotations

import shutil
import signal
import socket
import ssl
from base64 import b64decode
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

import trio
import trustme

from proofs.local_servers.processes import Server, directory
from proofs.local_servers.running import NotInstalledError
from proofs.ports import free_port

USER, PASSWORD = "reader", "correct-horse"
_GONE: Final = (trio.BrokenResourceError, trio.ClosedResourceError, OSError)


@dataclass
class HttpProxy:
    """What the proxy does. Hosts are reached at `targets`, by default at 127.0.0.1 and their port.

    `credentials`: USER:PASSWORD that it asks for. `answer`: sent in place of opening a tunnel; then it closes, unless
    `stays_open`. `tls`: an authority, if the proxy itself is reached over TLS. `intercepts`: an authority, if it ends
    the TLS of tunnels with certificates of its own, and goes on without TLS; `alpn`: what it offers then.
    """

    targets: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    credentials: str | None = None
    answer: bytes | None = None
    stays_open: bool = False
    tls: trustme.CA | None = None
    intercepts: trustme.CA | None = None
    alpn: Sequence[str] = ("h2", "http/1.1")
    requests: list[str] = field(default_factory=list)
    port: int = 0
    _connections: set[trio.CancelScope] = field(default_factory=set)

    def drop(self) -> None:
        """End all connections."""
        for scope in self._connections:
            scope.cancel()

    @property
    def url(self) -> str:
        """Its URL, with the credentials that it asks for."""
        user = "" if self.credentials is None else self.credentials.replace("/", "%2F") + "@"
        return f"{'http' if self.tls is None else 'https'}://{user}127.0.0.1:{self.port}"

    @property
    def tunnels(self) -> list[str]:
        """HOST:PORT of each CONNECT."""
        return [request.split()[1] for request in self.requests if request.startswith("CONNECT ")]

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[HttpProxy]:
        """Serve on a free port of 127.0.0.1, or on `port`."""
        [listener] = await trio.open_tcp_listeners(self.port, host="127.0.0.1")
        self.port = listener.socket.getsockname()[1]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, self._handle, [listener])
            yield self
            nursery.cancel_scope.cancel()

    async def _handle(self, tcp: trio.SocketStream) -> None:
        stream: trio.abc.Stream = tcp
        with suppress(*_GONE), trio.CancelScope() as scope:
            self._connections.add(scope)
            if self.tls is not None:
                stream = trio.SSLStream(
                    tcp, server_context(self.tls, "127.0.0.1"), server_side=True, https_compatible=True
                )
            await self._serve(stream)
        self._connections.discard(scope)
        await trio.aclose_forcefully(tcp)

    async def _serve(self, stream: trio.abc.Stream) -> None:
        head, rest = await _head(stream)
        lines = head.decode("latin-1").split("\r\n")
        self.requests.append(lines[0])
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
        if self.answer is not None:
            await stream.send_all(self.answer)
            if self.stays_open:
                await trio.sleep_forever()
            return
        if self.credentials is not None and not self._is_known(headers.get("proxy-authorization", "")):
            await stream.send_all(
                b'HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm="x"\r\n'
                b"Content-Length: 0\r\nConnection: close\r\n\r\n"
            )
            return
        method, target, version = lines[0].split(" ")
        if method == "CONNECT":
            await self._tunnel(stream, target)
            return
        url = urlsplit(target)
        kept = [line for line in lines[1:] if not line.lower().startswith("proxy-")]
        request = "\r\n".join([f"{method} {url.path or '/'} {version}", *kept, "", ""]).encode("latin-1") + rest
        await pump(stream, await self._open(url.hostname or "", url.port or 80), request)

    def _is_known(self, authorization: str) -> bool:
        kind, _, value = authorization.partition(" ")
        return kind == "Basic" and b64decode(value).decode() == self.credentials

    async def _tunnel(self, stream: trio.abc.Stream, target: str) -> None:
        host, _, port = target.rpartition(":")
        host = host.strip("[]")
        try:
            server = await self._open(host, int(port))
        except OSError:
            await stream.send_all(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
            return
        await stream.send_all(b"HTTP/1.1 200 Connection established\r\nVia: 1.1 test\r\n\r\n")
        if self.intercepts is not None:
            context = server_context(self.intercepts, host, self.alpn)
            stream = trio.SSLStream(stream, context, server_side=True, https_compatible=True)
        await pump(stream, server)

    async def _open(self, host: str, port: int) -> trio.SocketStream:
        return await trio.open_tcp_stream(*self.targets.get(host, ("127.0.0.1", port)))


def server_context(authority: trustme.CA, name: str, alpn: Sequence[str] = ()) -> ssl.SSLContext:
    """Return the context of a server with a certificate of this name. `alpn`: the protocols that it offers."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(name).configure_cert(context)
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context


async def _head(stream: trio.abc.Stream) -> tuple[bytes, bytes]:
    """Return the head of a request, and what came after it."""
    received = b""
    while b"\r\n\r\n" not in received:
        data = await stream.receive_some(65536)
        if not data:
            raise trio.BrokenResourceError("no request")
        received += data
    head, _, rest = received.partition(b"\r\n\r\n")
    return bytes(head), bytes(rest)


async def pump(client: trio.abc.Stream, server: trio.SocketStream, first: bytes = b"") -> None:
    """Pass bytes on in both directions until one side ends."""

    async def copy(source: trio.abc.Stream, target: trio.abc.Stream) -> None:
        with suppress(*_GONE):
            while data := await source.receive_some(65536):
                await target.send_all(data)
        nursery.cancel_scope.cancel()

    async with server:
        await server.send_all(first)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(copy, client, server)
            nursery.start_soon(copy, server, client)


@contextmanager
def serve_tinyproxy() -> Iterator[str]:
    """Run tinyproxy on a free port; yield its URL, with USER and PASSWORD. Raises NotInstalledError."""
    program = shutil.which("tinyproxy")
    if program is None:
        raise NotInstalledError("tinyproxy is not installed: run `apt-get install tinyproxy-bin`")
    with directory() as path:
        port = free_port()
        settings = path / "tinyproxy.conf"
        settings.write_text(
            f'Port {port}\nListen 127.0.0.1\nTimeout 600\nBasicAuth {USER} {PASSWORD}\nLogFile "{path}/log"\n'
            "LogLevel Connect\nMaxClients 50\n"
        )
        server = Server([program, "-d", "-c", str(settings)], log=path / "out", probe=lambda: _probe(port))
        server.start()
        try:
            yield f"http://{USER}:{PASSWORD}@127.0.0.1:{port}"
        finally:
            server.stop(signal.SIGTERM)


def _probe(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10):
        pass
