"""Accepts connections while there is room, and gives what they send its turn: a probe always gets a place.

The client with the most connections gives way: so nobody needs a limit of its own, a proxy may have many viewers, and a
client that fills the port takes places only from itself. Of its connections, one that waits for a request goes first,
and of these the oldest: a probe that has just connected stays, even where it shares its address with an attacker.
"""

from __future__ import annotations

import errno
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Final

import structlog
import trio

from efo_service.web.process_problems import ProcessProblems
from efo_service.web.security.access import network_of

MAX_CONNECTIONS: Final = 256


class ConnectionSlot:
    """The place of one connection. `is_idle`: it waits for a request. `close`: ends it at once."""

    def __init__(self, address: str | None, close: Callable[[], None]) -> None:
        self.network = network_of(address)
        self.is_idle = True
        self.close = close


class Places:
    """The places of all connections."""

    def __init__(self, count: int = MAX_CONNECTIONS) -> None:
        self._count = count
        self._taken: dict[ConnectionSlot, None] = {}  # the oldest first

    def __len__(self) -> int:
        """Return how many are taken."""
        return len(self._taken)

    def take(self, place: ConnectionSlot) -> int:
        """Take a place. If none is free, another connection is closed. Return how many were closed."""
        closed = int(len(self._taken) >= self._count)
        if closed:
            least = self._least()
            self.leave(least)
            least.close()
        self._taken[place] = None
        return closed

    def leave(self, place: ConnectionSlot) -> None:
        """Make room, if this one has not been closed before."""
        self._taken.pop(place, None)

    def _least(self) -> ConnectionSlot:
        counts = Counter(place.network for place in self._taken)
        most = max(counts.values())
        candidates = [place for place in self._taken if counts[place.network] == most]
        return next((place for place in candidates if place.is_idle), candidates[0])


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


_IN_A_TURN: Final = 64
"""Connections that are accepted in a turn of the loop, most of which their clients may have left already."""
_KEPT_IN_A_TURN: Final = TURNS // 2
"""Of these, so many are served by all listeners: fewer than get their turn meanwhile, so that none is closed first."""
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
_EXHAUSTED_SECONDS: Final = 0.5


async def accepted(
    listener: socket.socket, listeners: int = 1, problems: ProcessProblems | None = None
) -> AsyncIterator[trio.SocketStream]:
    """Yield the connections of clients that are still there. `listeners`: how many there are, each with its share.

    `problems`: gets that connections cannot be accepted, until one is.
    """
    problems = problems or ProcessProblems()
    share = max(1, _KEPT_IN_A_TURN // listeners)
    while True:
        await trio.lowlevel.wait_readable(listener)
        kept = 0
        for _ in range(_IN_A_TURN):
            try:
                connection, _address = listener.accept()
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    text = f"the web server cannot accept connections: {error.strerror}"
                    if problems.began("connections_not_accepted", text):
                        structlog.get_logger().warning("accept_failed", reason=error.strerror)
                    await trio.sleep(_EXHAUSTED_SECONDS)
                continue  # otherwise the client is gone
            problems.ended("connections_not_accepted")
            if _is_gone(connection):
                connection.close()
                continue
            yield trio.SocketStream(trio.socket.from_stdlib_socket(connection))
            kept += 1
            if kept == share:
                break


def _is_gone(connection: socket.socket) -> bool:
    """Return whether the client has closed or reset the connection, and sent nothing."""
    connection.setblocking(False)
    try:
        return not connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True
