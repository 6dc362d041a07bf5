"""The response to one request on an HTTP/2 connection: its headers, and its body as the reader takes it (rule R9)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import trio

from efo.errors import TransportError

_TAKE_SIZE: Final = 64 * 1024
"""The maximum number of bytes that a reader takes at once, and so holds beyond its window."""
_SMALL: Final = 1024
"""Shorter chunks are joined to this length when they arrive: a byte as a chunk takes fifty times its memory."""


def _ignore_change() -> None: ...


class StreamOwner(Protocol):
    """The connection, as far as one of its streams needs it."""

    @property
    def is_draining(self) -> bool:
        """Whether the peer has sent GOAWAY."""
        ...

    def abandon(self, stream: ResponseStream) -> None:
        """Forget a stream, and reset it if it is still open."""
        ...

    def open_window(self, stream: ResponseStream, size: int) -> None:
        """Let the peer send this many more bytes on the stream."""
        ...


class ResponseStream:
    """The response to one request, made by `Connection.request`. Its owner must close it.

    `status` and `headers` are set after `response` has returned.
    """

    def __init__(self, connection: StreamOwner, stream_id: int, window: int) -> None:
        self.stream_id = stream_id
        self.status = 0
        self.headers: dict[str, str] = {}
        self.request_sent = False
        self._connection = connection
        self._window = window
        self._chunks: deque[bytes] = deque()
        self._buffered = 0
        self._credit = 0
        self._ended = False
        self._error: TransportError | None = None
        self._changed = trio.lowlevel.ParkingLot()
        self._on_change: Callable[[], None] = _ignore_change
        self._on_goaway: Callable[[], None] | None = None

    def notify_goaway(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the peer sends GOAWAY, or at once if it has."""
        if self._connection.is_draining:
            callback()
        else:
            self._on_goaway = callback

    def notify_change(self, callback: Callable[[], None]) -> None:
        """Call `callback` whenever bytes, the end or an error arrive, so that `take` has something new."""
        self._on_change = callback

    def close(self) -> None:
        """Give up the response: the stream is reset if it is still open. No callback is called any more.

        They are dropped, since they refer to the reader of this stream: a cycle would live until a garbage collection.
        """
        self._connection.abandon(self)
        self._on_change, self._on_goaway = _ignore_change, None

    @property
    def is_over(self) -> bool:
        """Whether the peer has ended or reset the stream, or the connection is closed."""
        return self._ended or self._error is not None

    @property
    def is_open(self) -> bool:
        """Whether the stream counts as open for the peer: it has not ended in both directions, and has not failed."""
        return self._error is None and not (self._ended and self.request_sent)

    @property
    def buffered(self) -> int:
        """The number of bytes that arrived and were not taken: never more than the stream's window."""
        return self._buffered

    @property
    def has_more(self) -> bool:
        """Whether bytes, the end or an error have arrived and were not taken: then `take` does not return None."""
        return bool(self._chunks) or self._ended or self._error is not None

    async def response(self) -> int:
        """Wait for the headers of the response and return the status. Raises TransportError."""
        while not self.status:
            await self._wait()
        return self.status

    async def receive(self) -> bytes:
        """Take the bytes that have arrived, or wait for some; b"" at the end. Raises TransportError."""
        while (data := self.take()) is None:
            await self._wait()
        return data

    def take(self) -> bytes | None:
        """Take the bytes that have arrived; None if there are none yet, b"" at the end. Raises TransportError.

        Bytes that arrived before an error are returned first.
        """
        if not self._chunks:
            if self._ended:
                return b""
            if self._error is not None:
                raise self._error
            return None
        taken = [self._chunks.popleft()]
        size = len(taken[0])
        while self._chunks and size + len(self._chunks[0]) <= _TAKE_SIZE:
            taken.append(self._chunks.popleft())
            size += len(taken[-1])
        self._buffered -= size
        self._open_window(size)
        return b"".join(taken) if len(taken) > 1 else taken[0]

    def _open_window(self, size: int) -> None:
        # WINDOW_UPDATE is sent per half window: a reader that keeps up never stalls the peer, and small events do not
        # cost a frame each.
        self._credit += size
        if self._credit * 2 >= self._window and not self.is_over:
            self._connection.open_window(self, self._credit)
            self._credit = 0

    async def _wait(self) -> None:
        if self._error is not None:
            raise self._error
        await self._changed.park()

    def _signal(self) -> None:
        if self._changed:  # few wait here: the events of a live subscription are read after `on_change`
            self._changed.unpark_all()
        self._on_change()

    # --- called by the connection ------------------------------------------------------------------------

    def on_headers(self, headers: dict[str, str]) -> None:
        """Handle the headers of the response."""
        self.headers = headers
        self.status = int(headers[":status"])
        self._signal()

    def on_data(self, chunks: Sequence[bytes], size: int, padding: int) -> None:
        """Handle DATA of this size. Its padding counts against the window too (RFC 9113, section 6.9.1)."""
        if padding:
            self._open_window(padding)
        self._buffered += size
        if self._chunks and len(self._chunks[-1]) + size <= _SMALL:
            self._chunks[-1] = b"".join((self._chunks[-1], *chunks))
        elif size:
            self._chunks.extend(chunks)
        if self._changed:  # as `_signal`, without its call
            self._changed.unpark_all()
        self._on_change()

    def on_end(self) -> None:
        """Handle the end of the stream."""
        self._ended = True
        self._signal()

    def on_goaway(self) -> None:
        """Handle GOAWAY: the connection accepts no new streams, and this stream goes on."""
        callback, self._on_goaway = self._on_goaway, None
        if callback is not None:
            callback()

    def on_error(self, error: TransportError) -> None:
        """Handle the failure of the stream, unless it is over already."""
        if not self.is_over:
            self._error = error
        self._signal()
