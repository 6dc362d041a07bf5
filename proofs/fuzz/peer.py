"""A trial of our HTTP/2 connection against a peer that sends anything: frames in any order, and bytes that are none.

Whatever it sends, the connection goes on or ends in one of efo's errors, within bounds of time (virtual) and memory,
and a stream beside it, the sibling, gets all its bytes unless the connection has ended. Everything is over memory.
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
from proofs.fuzz.target import hold

HEADERS: Final = ((":method", "POST"), (":scheme", "https"), (":authority", "peer"), (":path", "/"))
SIBLING: Final = 1
STREAM_WINDOW: Final = 64 * 1024
CONNECTION_WINDOW: Final = 256 * 1024
DATA, HEADERS_FRAME, SETTINGS = 0, 1, 4
END_HEADERS: Final = 4
STATUS_200: Final = b"\x88"
"""The response's headers, `:status: 200` alone, in HPACK."""

_MOST_ANSWERED: Final = 512 * 1024
"""Bytes that we send at most beside answers to what arrived: the requests, and window updates of all that is read."""
_READING: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame of the peer's, right in nothing but its length."""

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
    """Something that our own side does: ask anew, or give up the `number`-th of its streams."""

    what: Literal["ask", "give up"]
    number: int = 0


Step: TypeAlias = Frame | Act | bytes


@dataclass(frozen=True, slots=True)
class Script:
    """What the peer does. `steps` that are bytes are no frames, and then nobody can say what the sibling must get.

    `greets`: whether it begins with SETTINGS. `reads`: whether it takes what we send. `hangs_up`: whether it closes the
    connection at the end, or says nothing more. `cuts`: how what it sends is cut.
    """

    steps: tuple[Step, ...]
    greets: bool = True
    reads: bool = True
    hangs_up: bool = True
    cuts: int = 0

    @property
    def is_framed(self) -> bool:
        """Whether all that the peer sends is whole frames."""
        return not any(isinstance(step, bytes) for step in self.steps)

    @property
    def for_the_sibling(self) -> bytes:
        """What the sibling is sent, if nothing goes wrong: unpadded DATA on its stream."""
        return b"".join(
            step.payload
            for step in self.steps
            if isinstance(step, Frame) and (step.kind, step.stream_id) == (DATA, SIBLING)
        )


@dataclass(slots=True)
class Outcome:
    """How a trial went: why the connection ended while the peer was still there, and what the sibling got."""

    closed_by: TransportError | None = None
    sibling: bytes = b""
    errors: list[TransportError] = field(default_factory=list)


def run(script: Script) -> Outcome:
    """Play the script under virtual time. Raises AssertionError, or whatever escapes, where a property is broken."""
    return trio.run(_run, script, clock=trio.testing.MockClock(autojump_threshold=0))


class _Sent(trio.abc.SendStream):
    """What we send: counted, and refused by a peer that does not read."""

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


class _Trial:
    def __init__(self, script: Script, nursery: trio.Nursery) -> None:
        self.outcome = Outcome()
        self.ended = trio.Event()
        self._script = script
        self._nursery = nursery
        self._incoming = trio.testing.MemoryReceiveStream()
        self._sent = _Sent(is_read=script.reads)
        self._arrived = 0
        self._answers: dict[int, ResponseStream] = {}
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
        if script.greets:
            await self._send(bytes(Frame(SETTINGS)))
            for reads in (True, True, False):  # the sibling's, one that is read, one that is not
                self._nursery.start_soon(self._ask, reads)
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
        if act.what == "ask":
            self._nursery.start_soon(self._ask, act.number % 2 == 0)
        elif others := [scope for stream_id, scope in self._readers.items() if stream_id != SIBLING]:
            others[act.number % len(others)].cancel()
        await trio.testing.wait_all_tasks_blocked()

    async def _ask(self, reads: bool) -> None:  # noqa: FBT001 - a nursery passes by position
        """Make a request and read its answer; or read nothing, and wait to be told to give it up."""
        try:
            answer = await self.connection.request(HEADERS, b"ask")
        except TransportError as error:
            self.outcome.errors.append(error)
            return
        self._answers[answer.stream_id] = answer
        with trio.CancelScope() as scope:
            self._readers[answer.stream_id] = scope
            try:
                await self._read(answer) if reads else await self.ended.wait()
            finally:
                answer.close()
                del self._readers[answer.stream_id], self._answers[answer.stream_id]

    async def _read(self, answer: ResponseStream) -> None:
        try:
            await answer.response()
            while data := await answer.receive():
                if answer.stream_id == SIBLING:
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
        for answer in self._answers.values():
            hold(answer.buffered <= STREAM_WINDOW, "a stream holds more than its window")
        hold(self.connection.unsent <= MAX_UNSENT + _READING, "answers that nobody takes are held without bound")
        hold(self._sent.size <= _MOST_ANSWERED + 2 * self._arrived, "more is sent than was asked for")
        if self.connection.closed_by is None:
            check_window(self.connection, CONNECTION_WINDOW)

    def judge(self) -> None:
        """Check what the sibling has got."""
        sent, got = self._script.for_the_sibling, self.outcome.sibling
        if not self._script.is_framed or not self._script.greets:
            return
        hold(sent.startswith(got), "the sibling got what it was not sent")
        if self.connection.closed_by is None and SIBLING in self._answers:
            stuck = self.connection.unsent > MAX_UNSENT  # we read no further, and the peer is told so by TCP
            hold(got == sent or stuck, f"the sibling got {len(got)} of {len(sent)} bytes beside a sound connection")

    async def end(self) -> None:
        """Let the peer end as it does, and see that we end with it."""
        self.outcome.closed_by = self.connection.closed_by
        if self._script.hangs_up:
            self._incoming.put_eof()
        # A peer that says nothing more is found dead by PING.
        with trio.fail_after(2 * PING_INTERVAL + PING_DEADLINE + 2):
            await self.ended.wait()
        await trio.testing.wait_all_tasks_blocked()
        hold(isinstance(self.connection.closed_by, TransportError), "ended without an error of ours")
        hold(not self._readers, "a reader waits although its connection has ended")
        hold(not self.connection.open_streams, "streams are left")


def check_window(connection: Connection, size: int) -> None:
    """Hold that no byte of the connection's window is forgotten: what is not credited yet is counted."""
    manager = connection._h2._inbound_flow_control_window_manager  # noqa: SLF001 - the books of h2, to be audited
    counted = connection._received + manager._bytes_processed  # noqa: SLF001 - the same
    hold(connection._h2.inbound_flow_control_window + counted == size, "credit of the connection's window is lost")  # noqa: SLF001


async def _run(script: Script) -> Outcome:
    async with trio.open_nursery() as nursery:
        trial = _Trial(script, nursery)
        nursery.start_soon(trial.serve)
        await trial.play()
        trial.judge()
        await trial.end()
    return trial.outcome
