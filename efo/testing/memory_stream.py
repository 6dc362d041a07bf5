"""A connection in memory that behaves as TCP does: bounded buffers, end of file, and a cut that hurts both ends."""

from __future__ import annotations

from operator import index

import trio


def memory_connection(capacity: int) -> tuple[MemoryStream, MemoryStream]:
    """Return the two ends of a connection. Each direction holds up to `capacity` bytes."""
    there, back = _Pipe(capacity), _Pipe(capacity)
    return MemoryStream(there, back), MemoryStream(back, there)


class _Pipe:
    """One direction. `ended`: nothing more will be sent. `refused`: nobody takes what is sent."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.buffer = bytearray()
        self.ended = False
        self.refused = False
        self.broken = False
        self.changed = trio.lowlevel.ParkingLot()

    def change(self) -> None:
        self.changed.unpark_all()


class MemoryStream(trio.abc.HalfCloseableStream):
    """One end of a connection in memory."""

    def __init__(self, outgoing: _Pipe, incoming: _Pipe) -> None:
        self._outgoing = outgoing
        self._incoming = incoming
        self._closed = False
        self._sending = False
        self._receiving = False

    def cut(self) -> None:
        """Break the connection as a reset does: both ends fail at once, and what was on its way is lost."""
        for pipe in (self._outgoing, self._incoming):
            pipe.broken = True
            pipe.buffer.clear()
            pipe.change()

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of it, waiting for room."""
        if self._sending:
            raise trio.BusyResourceError("another task is sending")
        self._sending = True
        try:
            await trio.lowlevel.checkpoint()
            rest = memoryview(data)
            self._check_sendable()
            while rest:
                taken = rest[: await self._wait_room()]
                self._outgoing.buffer += taken
                self._outgoing.change()
                rest = rest[len(taken) :]
        finally:
            self._sending = False

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until there is room."""
        if self._sending:
            raise trio.BusyResourceError("another task is sending")
        self._sending = True
        try:
            await trio.lowlevel.checkpoint()
            await self._wait_room()
        finally:
            self._sending = False

    async def _wait_room(self) -> int:
        """Wait until something can be sent, and return how much."""
        pipe = self._outgoing
        while True:
            self._check_sendable()
            if (room := pipe.capacity - len(pipe.buffer)) > 0:
                return room
            await pipe.changed.park()

    def _check_sendable(self) -> None:
        if self._closed or self._outgoing.ended:
            raise trio.ClosedResourceError("this end is closed for sending")
        if self._outgoing.broken or self._outgoing.refused:
            raise trio.BrokenResourceError("the peer is gone")

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Return what has arrived, waiting for something; b"" at the peer's end."""
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
                    raise trio.BrokenResourceError("the connection was cut")
                if pipe.buffer:
                    data = bytes(pipe.buffer[:max_bytes])
                    del pipe.buffer[: len(data)]
                    pipe.change()
                    return data
                if pipe.ended:
                    return b""
                await pipe.changed.park()
        finally:
            self._receiving = False

    async def send_eof(self) -> None:
        """Send nothing more; receiving goes on."""
        if self._sending:
            raise trio.BusyResourceError("another task is sending")
        await trio.lowlevel.checkpoint()
        if self._closed:
            raise trio.ClosedResourceError("this end is closed")
        self._outgoing.ended = True
        self._outgoing.change()

    async def aclose(self) -> None:
        """Close this end: the peer reads what is on its way and then the end, and can send no more."""
        if not self._closed:
            self._closed = True
            self._outgoing.ended = True
            self._incoming.refused = True
            self._incoming.buffer.clear()
            self._outgoing.change()
            self._incoming.change()
        await trio.lowlevel.checkpoint()
