"""Hosts of AWS on loopback: each name resolves to a server here, which has a certificate for it."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import trio
import trustme

from proofs.local_servers.http_proxy import pump, server_context


@dataclass
class NamedHosts:
    """TLS on one port for any name. `authority`: issues the certificates.

    `targets`: where the bytes of a service go, without TLS, by the first label of its name that is known. Others are
    closed. `asked`: the names that were resolved. `connected`: those that were connected to, by SNI.
    """

    authority: trustme.CA
    targets: Mapping[str, int] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    connected: list[str] = field(default_factory=list)
    port: int = 0

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[NamedHosts]:
        """Serve, and resolve all names to this server."""
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listener.socket.getsockname()[1]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, self._handle, [listener])
            with self._resolving():
                yield self
            nursery.cancel_scope.cancel()

    @contextmanager
    def _resolving(self) -> Iterator[None]:
        original = socket.getaddrinfo

        def getaddrinfo(host: Any, port: Any, *args: Any, **options: Any) -> Any:
            name = host.decode() if isinstance(host, bytes) else host
            if name is None or name.replace(".", "").isdigit() or ":" in name:
                return original(host, port, *args, **options)
            self.asked.append(name)
            return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", self.port))]

        socket.getaddrinfo = getaddrinfo
        try:
            yield
        finally:
            socket.getaddrinfo = original

    async def _handle(self, tcp: trio.SocketStream) -> None:
        names: list[str] = []

        def choose(tls: ssl.SSLObject | ssl.SSLSocket, name: str | None, _context: ssl.SSLContext) -> None:
            names.append(name or "")
            tls.context = server_context(self.authority, name or "nobody.test", ("h2", "http/1.1"))

        context = server_context(self.authority, "nobody.test", ("h2", "http/1.1"))
        context.sni_callback = choose
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            stream = trio.SSLStream(tcp, context, server_side=True, https_compatible=True)
            await stream.do_handshake()
            self.connected.append(names[0])
            target = next((self.targets[s] for s in self.targets if s in names[0].replace("-", ".").split(".")), None)
            if target is not None:
                await pump(stream, await trio.open_tcp_stream("127.0.0.1", target))
        await trio.aclose_forcefully(tcp)
