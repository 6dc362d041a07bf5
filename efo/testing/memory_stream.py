"""An in-memory connection that behaves like TCP: bounded buffers, end of file, and resets."""

from __future__ import annotations

from operator import index

import trio


def memory_connection(capacity: int) -> tuple[MemoryStream, MemoryStream]:
    """Return the two ends of a connection. Each direction holds up to `capacity` bytes."""
    there, back = _Pipe(capacity), _Pipe(capacity)
    return MemoryStream(there, back), MemoryStream(back, there)


class _Pipe:
    """One direction. `sender_closed`: nothing more will be sent. `receiver_closed`: nobody receives what is sent."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.buffer = bytearray()
        self.sender_closed = False
        self.receiver_closed = False
        self.broken = False
        self.changed = trio.lowlevel.ParkingLot()

    def notify(self) -> None:
        self.changed.unpark_all()


class MemoryStream(trio.abc.HalfCloseableStream):
    """One end of an in-memory connection."""

    def __init__(self, outgoing: _Pipe, incoming: _Pipe) -> None:
        self._outgoing = outgoing
        self._incoming = incoming
        self._closed = False
        self._sending = False
        self._receiving = False

    def cut(self) -> None:
        """Reset the connection: both ends fail at once, and data in transit is lost."""
        for pipe in (self._outgoing, self._incoming):
            pipe.broken = True
            pipe.buffer.clear()
            pipe.notify()

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send all data; wait for buffer space."""
        if self._sending:
            raise trio.BusyResourceError("another task is sending")
        self._sending = True
        try:
            await trio.lowlevel.checkpoint()
            rest = memoryview(data)
            self._check_sendable()
            while rest:
                chunk = rest[: await self._wait_for_room()]
                self._outgoing.buffer += chunk
                self._outgoing.notify()
                rest = rest[len(chunk) :]
        finally:
            self._sending = False

    async def wait_send_all_might_not_block(self) -> None:
        """Wait for buffer space."""
        if self._sending:
            raise trio.BusyResourceError("another task is sending")
        self._sending = True
        try:
            await trio.lowlevel.checkpoint()
            await self._wait_for_room()
        finally:
            self._sending = False

    async def _wait_for_room(self) -> int:
        """Wait for buffer space. Return its size in bytes."""
        pipe = self._outgoing
        while True:
            self._check_sendable()
            if (room := pipe.capacity - len(pipe.buffer)) > 0:
                return room
            await pipe.changed.park()

    def _check_sendable(self) -> None:
        if self._closed or self._outgoing.sender_closed:
            raise trio.ClosedResourceError("this end is closed for sending")
        if self._outgoing.broken or self._outgoing.receiver_closed:
            raise trio.BrokenResourceError("the connection was closed or reset")

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Wait for data and return it; return b"" if the peer has closed."""
        if max_bytes is not None and index(max_bytes) < 1:
            raise ValueError("max_bytes must be at least 1")
        if self._receiving:
            raise trio.BusyResourceError("another task is receiving")
        self._receiving = True
        try:
            await trio.lowlevel.checkpoint()
            pipe = self._incoming
            while True:
                if self._closed:
                    raise trio.ClosedResourceError("this end is closed")
                if pipe.broken:
                    raise trio.BrokenResourceError("the connection was reset")
                if pipe.buffer:
                    data = bytes(pipe.buffer[:max_bytes])
                    del pipe.buffer[: len(data)]
                    pipe.notify()
                    return data
                if pipe.sender_closed:
                    return b""
                await pipe.changed.park()
        finally:
            self._receiving = False

    async def send_eof(self) -> None:
        """Close the sending direction only."""
        if self._sending:
            raise trio.BusyResourceError("another task is sending")
        await trio.lowlevel.checkpoint()
        if self._closed:
            raise trio.ClosedResourceError("this end is closed")
        self._outgoing.sender_closed = True
        self._outgoing.notify()

    async def aclose(self) -> None:
        """Close this end. The peer can read data in transit and then reads end of file; it cannot send any more."""
        if not self._closed:
            self._closed = True
            self._outgoing.sender_closed = True
            self._incoming.receiver_closed = True
            self._incoming.buffer.clear()
            self._outgoing.notify()
            self._incoming.notify()
        await trio.lowlevel.checkpoint()
