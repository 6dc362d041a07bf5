"""Tests our HTTP/2 connection with a peer that sends any frames in any order, or bytes that are no frames.

The connection must stay open or end with one of efo's errors, within bounds of virtual time and memory. A valid stream
beside the others, the sibling, must get all its bytes unless the connection ends. All streams are in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

import trio
import trio.testing

from efo.errors import TransportError
from efo.kinesis.connection import MAX_UNSENT, PING_DEADLINE, PING_INTERVAL, Connection
from efo.kinesis.response_stream import ResponseStream
from proofs.fuzz.cursor import cut
from proofs.fuzz.target import require

HEADERS: Final = ((":method", "POST"), (":scheme", "https"), (":authority", "peer"), (":path", "/"))
SIBLING: Final = 1
STREAM_WINDOW: Final = 64 * 1024
CONNECTION_WINDOW: Final = 256 * 1024
DATA, HEADERS_FRAME, SETTINGS = 0, 1, 4
END_HEADERS: Final = 4
STATUS_200: Final = b"\x88"
"""The response's headers, `:status: 200` alone, in HPACK."""

_MAX_OWN_BYTES: Final = 512 * 1024
"""The most bytes that we send besides replies to the peer's frames: requests, and window updates for the bytes read."""
_READING: Final = 256 * 1024
"""How many bytes the connection reads at once. The replies to them may exceed `MAX_UNSENT`."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame from the peer. Only its length is always correct."""

    kind: int
    flags: int = 0
    stream_id: int = 0
    payload: bytes = b""

    def __bytes__(self) -> bytes:
        return (
            len(self.payload).to_bytes(3)
            + bytes([self.kind & 0xFF, self.flags & 0xFF])
            + (self.stream_id & 0xFFFF_FFFF).to_bytes(4)
            + self.payload
        )


@dataclass(frozen=True, slots=True)
class Act:
    """An action of our side: "request" makes a new request, "close" closes the `number`-th of our streams."""

    what: Literal["request", "close"]
    number: int = 0


Step: TypeAlias = Frame | Act | bytes


@dataclass(frozen=True, slots=True)
class Script:
    """What the peer does.

    `steps`: frames, actions of our side, and bytes that are no frames. With such bytes, it is unknown what the sibling
    must get. `sends_settings`: the peer starts with SETTINGS. `reads`: it reads what we send. `closes`: it closes the
    connection at the end; otherwise it becomes silent. `cuts`: the seed for `cut`, which splits what it sends.
    """

    steps: tuple[Step, ...]
    sends_settings: bool = True
    reads: bool = True
    closes: bool = True
    cuts: int = 0

    @property
    def is_framed(self) -> bool:
        """Whether the peer sends only whole frames."""
        return not any(isinstance(step, bytes) for step in self.steps)

    @property
    def sibling_data(self) -> bytes:
        """The bytes that the sibling must get from a valid connection: all DATA on its stream, without padding."""
        return b"".join(
            step.payload
            for step in self.steps
            if isinstance(step, Frame) and (step.kind, step.stream_id) == (DATA, SIBLING)
        )


@dataclass(slots=True)
class Outcome:
    """The result of a script.

    `closed_by`: why the connection ended before the peer did. `sibling`: the bytes that the sibling got. `errors`: what
    the requests and readers raised.
    """

    closed_by: TransportError | None = None
    sibling: bytes = b""
    errors: list[TransportError] = field(default_factory=list)


def run(script: Script) -> Outcome:
    """Run the script under virtual time. Raises AssertionError, or another exception, if a property does not hold."""
    return trio.run(_run, script, clock=trio.testing.MockClock(autojump_threshold=0))


class _Sent(trio.abc.SendStream):
    """Counts the bytes that we send. Blocks if the peer does not read."""

    def __init__(self, *, is_read: bool) -> None:
        self.size = 0
        self._is_read = is_read

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        self.size += len(data)
        if not self._is_read:
            await trio.sleep_forever()

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


class _ScriptRun:
    def __init__(self, script: Script, nursery: trio.Nursery) -> None:
        self.outcome = Outcome()
        self.ended = trio.Event()
        self._script = script
        self._nursery = nursery
        self._incoming = trio.testing.MemoryReceiveStream()
        self._sent = _Sent(is_read=script.reads)
        self._arrived = 0
        self._streams: dict[int, ResponseStream] = {}
        self._readers: dict[int, trio.CancelScope] = {}
        self.connection = Connection(
            trio.StapledStream(self._sent, self._incoming),
            address="peer:443",
            stream_window=STREAM_WINDOW,
            connection_window=CONNECTION_WINDOW,
        )

    async def serve(self) -> None:
        await self.connection.run()
        self.ended.set()

    async def play(self) -> None:
        script = self._script
        if script.sends_settings:
            await self._send(bytes(Frame(SETTINGS)))
            for reads in (True, True, False):  # the sibling, a stream that is read, and one that is not
                self._nursery.start_soon(self._request, reads)
                await trio.testing.wait_all_tasks_blocked()
            await self._send(bytes(Frame(HEADERS_FRAME, END_HEADERS, SIBLING, STATUS_200)))
        wire = bytearray()
        for step in script.steps:
            if isinstance(step, Act):
                await self._send(bytes(wire))
                wire.clear()
                await self._act(step)
            else:
                wire += bytes(step)
        await self._send(bytes(wire))

    async def _act(self, act: Act) -> None:
        if act.what == "request":
            self._nursery.start_soon(self._request, act.number % 2 == 0)
        elif others := [scope for stream_id, scope in self._readers.items() if stream_id != SIBLING]:
            others[act.number % len(others)].cancel()
        await trio.testing.wait_all_tasks_blocked()

    async def _request(self, reads: bool) -> None:  # noqa: FBT001 - a nursery passes by position
        """Make a request. Read its response, or read nothing until a cancellation or the end of the connection."""
        try:
            stream = await self.connection.request(HEADERS, b"request")
        except TransportError as error:
            self.outcome.errors.append(error)
            return
        self._streams[stream.stream_id] = stream
        with trio.CancelScope() as scope:
            self._readers[stream.stream_id] = scope
            try:
                await self._read(stream) if reads else await self.ended.wait()
            finally:
                stream.close()
                del self._readers[stream.stream_id], self._streams[stream.stream_id]

    async def _read(self, stream: ResponseStream) -> None:
        try:
            await stream.response()
            while data := await stream.receive():
                if stream.stream_id == SIBLING:
                    self.outcome.sibling += data
        except TransportError as error:
            self.outcome.errors.append(error)

    async def _send(self, wire: bytes) -> None:
        for piece in cut(wire, self._script.cuts):
            if self.ended.is_set():
                return
            self._incoming.put_data(piece)
            self._arrived += len(piece)
            await trio.testing.wait_all_tasks_blocked()
            self._check_bounds()

    def _check_bounds(self) -> None:
        for stream in self._streams.values():
            require(stream.buffered <= STREAM_WINDOW, "a stream buffers more than its window")
        require(
            self.connection.unsent <= MAX_UNSENT + _READING,
            "replies that the peer does not read are buffered without bound",
        )
        require(self._sent.size <= _MAX_OWN_BYTES + 2 * self._arrived, "we send too much for what the peer sent")
        if self.connection.closed_by is None:
            check_window(self.connection, CONNECTION_WINDOW)

    def check_sibling(self) -> None:
        """Check the bytes that the sibling got."""
        sent, got = self._script.sibling_data, self.outcome.sibling
        if not self._script.is_framed or not self._script.sends_settings:
            return
        require(sent.startswith(got), "the sibling got bytes that were not sent to it")
        if self.connection.closed_by is None and SIBLING in self._streams:
            stuck = self.connection.unsent > MAX_UNSENT  # we stop reading from the peer: back-pressure
            require(
                got == sent or stuck,
                f"the sibling got {len(got)} of {len(sent)} bytes, although the connection is open",
            )

    async def end(self) -> None:
        """Let the peer hang up or become silent, and check that the connection ends."""
        self.outcome.closed_by = self.connection.closed_by
        if self._script.closes:
            self._incoming.put_eof()
        # A silent peer is detected by PING.
        with trio.fail_after(2 * PING_INTERVAL + PING_DEADLINE + 2):
            await self.ended.wait()
        await trio.testing.wait_all_tasks_blocked()
        require(isinstance(self.connection.closed_by, TransportError), "the connection ended without a TransportError")
        require(not self._readers, "a reader still waits after its connection has ended")
        require(not self.connection.open_streams, "streams are left open")


def check_window(connection: Connection, size: int) -> None:
    """Check that no credit of the connection window is lost: bytes without a WINDOW_UPDATE must be counted."""
    manager = connection._h2._inbound_flow_control_window_manager  # noqa: SLF001 - the counters of h2 are checked
    counted = connection._received + manager._bytes_processed  # noqa: SLF001 - the same
    require(connection._h2.inbound_flow_control_window + counted == size, "credit of the connection window is lost")  # noqa: SLF001


async def _run(script: Script) -> Outcome:
    async with trio.open_nursery() as nursery:
        script_run = _ScriptRun(script, nursery)
        nursery.start_soon(script_run.serve)
        await script_run.play()
        script_run.check_sibling()
        await script_run.end()
    return script_run.outcome
