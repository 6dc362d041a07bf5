"""A TCP proxy in front of a server, which a test can cut."""

from __future__ import annotations

import socket
from contextlib import suppress

import trio


class Wire:
    """Forwards TCP connections to (host, port) until it is cut.

    `port`: the port that it listens on. `run`: its task.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = trio.SocketListener(trio.socket.from_stdlib_socket(socket.create_server(("127.0.0.1", 0))))
        self._cut = trio.Event()
        self.port = self._listener.socket.getsockname()[1]

    async def run(self) -> None:
        await trio.serve_listeners(self._forward, [self._listener])

    def cut(self) -> None:
        """Close all connections, and every new one immediately."""
        self._cut.set()

    def mend(self) -> None:
        """Forward new connections again."""
        self._cut = trio.Event()

    async def _forward(self, client: trio.SocketStream) -> None:
        cut = self._cut
        with suppress(OSError, trio.BrokenResourceError):
            async with client, await trio.open_tcp_stream(*self._target) as server, trio.open_nursery() as nursery:
                nursery.start_soon(self._copy, client, server, nursery.cancel_scope)
                nursery.start_soon(self._copy, server, client, nursery.cancel_scope)
                await cut.wait()
                nursery.cancel_scope.cancel()

    async def _copy(self, source: trio.SocketStream, destination: trio.SocketStream, scope: trio.CancelScope) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for chunk in source:
                await destination.send_all(chunk)
        scope.cancel()
