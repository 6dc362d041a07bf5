"""A connection whose sends end: a client that does not read is dropped."""

from __future__ import annotations

import ssl
from typing import Final

import trio
from starlette.types import ASGIApp, Receive, Scope, Send

from efo_service.web.security.guard import CERTIFICATE

SEND_SECONDS: Final = 10.0


class BoundedStream(trio.abc.HalfCloseableStream):
    """A socket's stream. A send that takes longer than `seconds` breaks the connection."""

    def __init__(self, stream: trio.SocketStream, seconds: float = SEND_SECONDS) -> None:
        self.socket = stream.socket
        self._stream = stream
        self._seconds = seconds

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send all data. Raises BrokenResourceError, also if the client takes it too slowly."""
        with trio.move_on_after(self._seconds) as scope:
            await self._stream.send_all(data)
        if scope.cancelled_caught:
            await trio.aclose_forcefully(self._stream)
            raise trio.BrokenResourceError(f"the client did not take the data within {self._seconds:g} s")

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until a send might not block."""
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Receive some data; empty at the end."""
        return await self._stream.receive_some(max_bytes)

    async def send_eof(self) -> None:
        """Tell the client that nothing more is sent."""
        await self._stream.send_eof()

    async def aclose(self) -> None:
        """Close the connection."""
        await self._stream.aclose()


def with_certificate(app: ASGIApp, connection: trio.abc.Stream) -> ASGIApp:
    """Return the app for one connection: its requests tell whether TLS verified a client certificate."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, CERTIFICATE: _has_certificate(connection)}, receive, send)

    return serve


def _has_certificate(connection: trio.abc.Stream) -> bool:
    """Return whether the client showed a certificate. The handshake has verified it by one of the authorities."""
    if not isinstance(connection, trio.SSLStream):
        return False
    if connection.context.verify_mode == ssl.CERT_NONE:
        return False
    return bool(connection.getpeercert())
