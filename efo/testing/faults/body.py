"""The body of a subscription, changed by the fault script."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

import trio

from efo.protocol.eventstream import EventStreamDecoder
from efo.protocol.messages import SubscribeToShardEvent, parse_message
from efo.testing.faults.effects import effects
from efo.testing.faults.kinds import Fault, Reorder, Site
from efo.testing.faults.script import FaultScript, FaultTarget
from efo.testing.faults.wire import Body, Chunk


class FaultyBody:
    """A body that sends the chunks of `body`, changed by the script's faults.

    `clock` returns seconds since the fake's start.
    """

    def __init__(self, body: Body, script: FaultScript, target: FaultTarget, clock: Callable[[], float]) -> None:
        self._body = body
        self._script = script
        self._target = target
        self._clock = clock
        self._due: deque[Chunk | None] = deque()
        self._held: bytes | None = None
        self._started = False
        self._waiting = trio.CancelScope()
        script.listeners.add(self._wake)

    async def next_chunk(self) -> Chunk | None:
        """Wait for the next chunk and return it; return None at the end."""
        while not self._due:
            # A fault that is due between events cancels the wait. No chunk is lost by the cancellation.
            with trio.CancelScope(deadline=self._deadline()) as self._waiting:
                self._receive(await self._body.next_chunk())
                continue
            if fault := self._script.take(Site.EVENT, self._target, self._clock(), occasion=False):
                self._apply(fault, None)
        return self._due.popleft()

    def close(self) -> None:
        """Release the body."""
        self._script.listeners.discard(self._wake)
        self._body.close()

    def _wake(self) -> None:
        self._waiting.cancel()

    def _deadline(self) -> float:
        now = self._clock()
        return trio.current_time() + max(0.0, self._script.due(self._target, now) - now)

    def _receive(self, chunk: Chunk | None) -> None:
        is_start, self._started = not self._started, True  # also without a script: a fault may be added later
        if not isinstance(chunk, bytes) or not self._script:
            self._release_held()
            self._due.append(chunk)
            return
        fault = None
        if is_start or _is_event(chunk):
            site = Site.START if is_start else Site.EVENT
            fault = self._script.take(site, self._target, self._clock())
        if isinstance(fault, Reorder) and self._held is None:
            self._held = chunk
            return
        if not _may_be_followed(chunk):
            self._release_held()  # nothing may follow the event that ends the shard
        self._apply(fault, chunk)
        self._release_held()

    def _apply(self, fault: Fault | None, chunk: bytes | None) -> None:
        self._due.extend([chunk] if fault is None or isinstance(fault, Reorder) else effects(fault, chunk))

    def _release_held(self) -> None:
        if self._held is not None:
            self._due.append(self._held)
            self._held = None


class FaultyResponse:
    """The body of a response that has no events, as chunks that a fault has changed."""

    def __init__(self, chunks: Iterable[Chunk | None]) -> None:
        self._chunks = deque(chunks)

    async def next_chunk(self) -> Chunk | None:
        """Return the next chunk; None at the end."""
        await trio.lowlevel.checkpoint()
        return self._chunks.popleft() if self._chunks else None

    def close(self) -> None:
        """Release the body."""
        self._chunks.clear()


def _parsed(message: bytes) -> object:
    decoder = EventStreamDecoder()
    decoder.receive_data(message)
    return parse_message(next(decoder.messages()))


def _is_event(message: bytes) -> bool:
    return isinstance(_parsed(message), SubscribeToShardEvent)


def _may_be_followed(message: bytes) -> bool:
    """Return whether this is an event that other events may follow."""
    event = _parsed(message)
    return isinstance(event, SubscribeToShardEvent) and not event.is_shard_end
