"""The answer to one request on an HTTP/2 connection: its headers, and its bytes as its reader takes them (rule R9)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

import trio

from efo.errors import TransportError

_TAKE_SIZE: Final = 64 * 1024
"""Bytes that a reader takes at most at once: so much it holds beyond its window."""
_SMALL: Final = 1024
"""Pieces shorter than this are joined as they come: a byte by itself takes fifty times as much memory."""


class StreamOwner(Protocol):
    """The connection, as far as one of its streams needs it."""

    @property
    def is_draining(self) -> bool:
        """Whether the peer has sent GOAWAY."""
        ...

    def abandon(self, stream: ResponseStream) -> None:
        """Forget a stream, and reset it if it is not over."""
        ...

    def open_window(self, stream: ResponseStream, size: int) -> None:
        """Let the peer send so many more bytes on this stream."""
        ...


class ResponseStream:
    """The answer to one request, made by `Connection.request`. Whoever has it must close it.

    `status` and `headers` are known once `response` has returned.
    """

    def __init__(self, connection: StreamOwner, stream_id: int, window: int) -> None:
        self.stream_id = stream_id
        self.status = 0
        self.headers: dict[str, str] = {}
        self.request_sent = False
        self._connection = connection
        self._window = window
        self._chunks: deque[bytes] = deque()
        self._credit = 0
        self._ended = False
        self._error: TransportError | None = None
        self._changed = trio.Event()
        self._when_leaving: Callable[[], None] | None = None

    def when_leaving(self, tell: Callable[[], None]) -> None:
        """Let `tell` be called once the connection is about to go away (GOAWAY): at once where it is already."""
        if self._connection.is_draining:
            tell()
        else:
            self._when_leaving = tell

    def close(self) -> None:
        """Give the stream up: it is reset if it is still open."""
        self._connection.abandon(self)

    @property
    def is_over(self) -> bool:
        """Whether the peer has ended or reset the stream, or the connection is gone."""
        return self._ended or self._error is not None

    @property
    def is_open(self) -> bool:
        """Whether the peer still counts the stream: it has not ended on both sides, nor failed."""
        return self._error is None and not (self._ended and self.request_sent)

    @property
    def buffered(self) -> int:
        """How many bytes arrived and were not taken: never more than the stream's window."""
        return sum(map(len, self._chunks))

    async def response(self) -> int:
        """Wait for the response's headers and return the status. Raises TransportError."""
        while not self.status:
            await self._wait()
        return self.status

    async def receive(self) -> bytes:
        """Take the bytes that have arrived, or wait for some; b"" at the end. Raises TransportError.

        What arrived before an error is given first.
        """
        while not self._chunks:
            if self._ended:
                return b""
            await self._wait()
        taken = [self._chunks.popleft()]
        size = len(taken[0])
        while self._chunks and size + len(self._chunks[0]) <= _TAKE_SIZE:
            taken.append(self._chunks.popleft())
            size += len(taken[-1])
        self._open_window(size)
        return b"".join(taken) if len(taken) > 1 else taken[0]

    def _open_window(self, size: int) -> None:
        # Window updates in halves of the window: the peer is never stalled by a reader that keeps up, and small
        # events do not cost a frame each.
        self._credit += size
        if self._credit * 2 >= self._window and not self.is_over:
            self._connection.open_window(self, self._credit)
            self._credit = 0

    async def _wait(self) -> None:
        if self._error is not None:
            raise self._error
        self._changed = trio.Event()
        await self._changed.wait()

    # What the connection tells its stream.

    def got_headers(self, headers: dict[str, str]) -> None:
        """Take the response's headers."""
        self.headers = headers
        self.status = int(headers[":status"])
        self._changed.set()

    def got_data(self, data: bytes, padding: int) -> None:
        """Take data; its padding counts against the window too (RFC 9113, section 6.9.1)."""
        if padding:
            self._open_window(padding)
        if data and self._chunks and len(self._chunks[-1]) < _SMALL:
            self._chunks[-1] += data
        elif data:
            self._chunks.append(data)
        self._changed.set()

    def got_end(self) -> None:
        """Take the end of the stream."""
        self._ended = True
        self._changed.set()

    def got_leaving(self) -> None:
        """Take the news that the connection goes away; the stream goes on."""
        tell, self._when_leaving = self._when_leaving, None
        if tell is not None:
            tell()

    def got_error(self, error: TransportError) -> None:
        """Take the stream's failure, unless it is over already."""
        if not self.is_over:
            self._error = error
        self._changed.set()
