"""What connections receive waits for its turn, so that many of them do not make a turn of the loop long."""

from __future__ import annotations

import ssl
from typing import Final

import trio

READ_BYTES: Final = 4096
"""At a time: what one step parses of a body in chunks of a byte each stays a few milliseconds."""
TURNS: Final = 8
"""How many pieces of all connections are worked on in a turn of the loop: some milliseconds, for TLS handshakes too."""


class InTurn(trio.abc.HalfCloseableStream):
    """A socket's stream that receives in its turn. `turns`: shared by all connections."""

    def __init__(self, stream: trio.SocketStream, turns: trio.Semaphore) -> None:
        self._stream = stream
        self._turns = turns

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send all data."""
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until a send might not block."""
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Receive some data, when it is this connection's turn; empty at the end."""
        # The turn comes first: whoever is cancelled while it waits has taken no bytes from the stream.
        await trio.lowlevel.wait_readable(self._stream.socket)
        async with self._turns:
            return await self._stream.receive_some(min(max_bytes or READ_BYTES, READ_BYTES))

    async def send_eof(self) -> None:
        """Tell the client that nothing more is sent."""
        await self._stream.send_eof()

    async def aclose(self) -> None:
        """Close the connection."""
        await self._stream.aclose()


def has_certificate(connection: trio.abc.Stream) -> bool:
    """Return whether the client showed a certificate. The handshake has verified it by one of the authorities."""
    if not isinstance(connection, trio.SSLStream):
        return False
    if connection.context.verify_mode == ssl.CERT_NONE:
        return False
    return bool(connection.getpeercert())
