"""A subscription's body with the fault script at work on it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import trio

from efo.protocol.eventstream import Decoder
from efo.protocol.messages import SubscribeToShardEvent, parse
from efo.testing.faults.effects import effects
from efo.testing.faults.kinds import Fault, Reorder, Site
from efo.testing.faults.script import FaultScript, Target
from efo.testing.server.chunks import Body, Chunk


class FaultyBody:
    """A body that sends what `body` does, and what the script says instead. `clock`: seconds since the fake's start."""

    def __init__(self, body: Body, script: FaultScript, target: Target, clock: Callable[[], float]) -> None:
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
        """Wait for what comes next."""
        while not self._due:
            # Cancelled for a fault that is due between events; a chunk that was made is never lost by that.
            with trio.CancelScope(deadline=self._deadline()) as self._waiting:
                self._take(await self._body.next_chunk())
                continue
            if fault := self._script.take(Site.EVENT, self._target, self._clock(), occasion=False):
                self._strike(fault, None)
        return self._due.popleft()

    def close(self) -> None:
        """Free what the body holds."""
        self._script.listeners.discard(self._wake)
        self._body.close()

    def _wake(self) -> None:
        self._waiting.cancel()

    def _deadline(self) -> float:
        now = self._clock()
        return trio.current_time() + max(0.0, self._script.due(self._target, now) - now)

    def _take(self, chunk: Chunk | None) -> None:
        if not isinstance(chunk, bytes) or not self._script:
            self._release()
            self._due.append(chunk)
            return
        is_start, self._started = not self._started, True
        fault = None
        if is_start or _is_event(chunk):
            site = Site.START if is_start else Site.EVENT
            fault = self._script.take(site, self._target, self._clock())
        if isinstance(fault, Reorder) and self._held is None:
            self._held = chunk
            return
        if not _goes_on(chunk):
            self._release()  # nothing may come after the event that ends the shard
        self._strike(fault, chunk)
        self._release()

    def _strike(self, fault: Fault | None, chunk: bytes | None) -> None:
        self._due.extend([chunk] if fault is None or isinstance(fault, Reorder) else effects(fault, chunk))

    def _release(self) -> None:
        if self._held is not None:
            self._due.append(self._held)
            self._held = None


def _parsed(message: bytes) -> object:
    decoder = Decoder()
    decoder.receive_data(message)
    return parse(next(decoder.messages()))


def _is_event(message: bytes) -> bool:
    return isinstance(_parsed(message), SubscribeToShardEvent)


def _goes_on(message: bytes) -> bool:
    """Tell whether this is an event that others may follow."""
    event = _parsed(message)
    return isinstance(event, SubscribeToShardEvent) and not event.is_shard_end
