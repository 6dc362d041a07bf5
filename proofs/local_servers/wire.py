"""A way to a server that a test can cut: a forwarder on a port of its own."""

from __future__ import annotations

import socket
from contextlib import suppress

import trio


class Wire:
    """Forwards TCP connections to (host, port) while it is whole. `port` is its own; `run` is its task."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = trio.SocketListener(trio.socket.from_stdlib_socket(socket.create_server(("127.0.0.1", 0))))
        self._cut = trio.Event()
        self.port = self._listener.socket.getsockname()[1]

    async def run(self) -> None:
        await trio.serve_listeners(self._forward, [self._listener])

    def cut(self) -> None:
        """End all connections, and each new one at once."""
        self._cut.set()

    def mend(self) -> None:
        """Forward again."""
        self._cut = trio.Event()

    async def _forward(self, one: trio.SocketStream) -> None:
        cut = self._cut
        with suppress(OSError, trio.BrokenResourceError):
            async with one, await trio.open_tcp_stream(*self._target) as other, trio.open_nursery() as nursery:
                nursery.start_soon(self._pump, one, other, nursery.cancel_scope)
                nursery.start_soon(self._pump, other, one, nursery.cancel_scope)
                await cut.wait()
                nursery.cancel_scope.cancel()

    async def _pump(self, source: trio.SocketStream, sink: trio.SocketStream, ours: trio.CancelScope) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for chunk in source:
                await sink.send_all(chunk)
        ours.cancel()
