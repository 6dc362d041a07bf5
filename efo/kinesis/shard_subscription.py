"""Drives `protocol.subscription` over HTTP/2: one shard's events, for as long as it lasts.

Each attempt is a task that makes a call and hands every event over to `receive`, which holds the state machine. The
hand-over has no buffer: an attempt whose event is not taken reads no further, so that its HTTP/2 window closes and the
service stops sending (rule R9).
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import trio

from efo.errors import (
    EfoError,
    GoAwayError,
    ProtocolError,
    ResourceInUseError,
    ResourceNotFoundError,
    ServiceError,
    SilenceError,
    StreamResetError,
    ThrottledError,
)
from efo.events import (
    DeliveryBlocked,
    EndReason,
    EventReceived,
    Observer,
    SubscribeAttempted,
    SubscriptionEnded,
    ignore,
)
from efo.kinesis.subscribe_call import EventStream, SubscribeCaller
from efo.kinesis.subscribe_limiter import SubscribeLimiter
from efo.model import ChildShard, Position
from efo.protocol.messages import SubscribeToShardEvent
from efo.protocol.subscription import (
    Action,
    Arriving,
    Cancel,
    Closed,
    Deliver,
    Fail,
    Finish,
    Input,
    Leaving,
    Received,
    Subscribe,
    Subscription,
    Timing,
)

WORTH_TELLING: Final = 0.01
"""Seconds that an event waits for its reader before that is told: less is the hand-over itself."""


@dataclass(frozen=True, slots=True)
class ShardEnd:
    """The shard was read to its end; these are its children."""

    children: tuple[ChildShard, ...]


@dataclass(slots=True)
class _Attempt:
    """An attempt's task. `reason`: why it is cancelled, when it is."""

    reason: EndReason = "shutdown"
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)


Diagnose = Callable[[ResourceNotFoundError], Awaitable[EfoError]]
"""Finds out what does not exist, the consumer or the shard (rule R13), and says so by a more telling error."""


class ShardSubscription:
    """One shard, subscribed from a position on. `receive` gives one event after the other, and the ShardEnd at last.

    Its attempts run in `nursery`, which the owner cancels when it wants no more. `rng` gives the jitter.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        shard_id: str,
        position: Position,
        *,
        caller: SubscribeCaller,
        gate: SubscribeLimiter,
        diagnose: Diagnose,
        rng: random.Random,
        timing: Timing | None = None,
        observer: Observer = ignore,
    ) -> None:
        self.shard_id = shard_id
        self._nursery = nursery
        self._machine = Subscription(position, rng.random, timing=timing or Timing())
        self._caller = caller
        self._gate = gate
        self._diagnose = diagnose
        self._observer = observer
        self._attempts: dict[int, _Attempt] = {}
        self._send, self._inputs = trio.open_memory_channel[Input](0)
        self._ready: deque[Deliver | Finish | Fail] = deque()
        self._last_event_at: float | None = None
        self._patience = trio.CancelScope()

    @property
    def position(self) -> Position:
        """Where the next call would start."""
        return self._machine.position

    async def receive(self) -> SubscribeToShardEvent | ShardEnd:
        """Wait for the next event. Raises the EfoError that trying again cannot cure."""
        self._machine.waiting(trio.current_time())
        while not self._ready:
            with trio.move_on_at(self._machine.deadline) as self._patience:
                signal = await self._inputs.receive()
                self._act(self._machine.handle(signal, trio.current_time()))
                continue
            self._act(self._machine.tick(trio.current_time()))
        match self._ready.popleft():
            case Deliver(event=event, wire_bytes=wire_bytes):
                self._report(event, wire_bytes)
                return event
            case Finish(children=children):
                return ShardEnd(children)
            case Fail(error=error):
                raise error

    def close(self, reason: EndReason) -> None:
        """Give the subscription up: its attempts are reset. `position` stays; do not `receive` any more."""
        for attempt in self._attempts.values():
            attempt.reason = reason
            attempt.scope.cancel()

    def _act(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Subscribe():
                    attempt = self._attempts[action.attempt] = _Attempt()
                    self._nursery.start_soon(self._run, action, attempt)
                case Cancel(attempt=number, reason=reason):
                    if running := self._attempts.get(number):
                        running.reason = reason
                        running.scope.cancel()
                case Deliver() | Finish() | Fail():
                    self._ready.append(action)

    def _leaving(self, attempt: int) -> None:
        """Take the news of an attempt's connection. It comes from the connection's task, while `receive` may wait."""
        self._act(self._machine.handle(Leaving(attempt), trio.current_time()))
        self._patience.deadline = min(self._patience.deadline, self._machine.deadline)

    def _arrives(self, attempt: int) -> None:
        """Take note that a part of an event has arrived, in the attempt's task, while `receive` may wait."""
        self._act(self._machine.handle(Arriving(attempt), trio.current_time()))

    async def _run(self, subscribe: Subscribe, attempt: _Attempt) -> None:
        with attempt.scope:
            outcome = await self._attempt(subscribe, attempt)
            if isinstance(outcome, ResourceNotFoundError):
                outcome = await self._diagnose(outcome)
            await self._send.send(Closed(subscribe.attempt, outcome))
        del self._attempts[subscribe.attempt]

    async def _attempt(self, subscribe: Subscribe, attempt: _Attempt) -> EfoError | None:
        """Make one call and hand over its events; return why it ended, None for a clean end."""
        waited = await self._gate.admit(self.shard_id, renewal=subscribe.renewal)
        called_at = trio.current_time()
        try:
            events = await self._caller.call(self.shard_id, subscribe.position)
        except EfoError as error:
            self._attempted(waited, called_at, error)
            return error
        self._gate.succeeded(self.shard_id)
        self._attempted(waited, called_at, None)
        opened_at = trio.current_time()
        outcome: EfoError | None = None
        reason: EndReason | None = None
        try:
            async with events:
                events.when_leaving(partial(self._leaving, subscribe.attempt))
                await self._hand_over(events, subscribe.attempt, opened_at)
            reason = "expired"
        except EfoError as error:
            outcome, reason = error, end_reason(error)
            if attempt.scope.cancel_called:
                reason = attempt.reason  # who cancelled it has found out first
            elif isinstance(error, ResourceInUseError) and self._machine.is_being_replaced(subscribe.attempt):
                reason = "renewed"  # our own candidate took over, and the service says so before its first event
        finally:
            # Without a reason of its own the call was cancelled, and the attempt knows why.
            age = trio.current_time() - opened_at
            self._observer(SubscriptionEnded(self.shard_id, age, reason or attempt.reason, str(outcome or "")))
        return outcome

    async def _hand_over(self, events: EventStream, attempt: int, opened_at: float) -> None:
        # A live attempt's silence is judged by the state machine, which knows when we were ready to read. Until its
        # first event an attempt is not live, and this is its deadline.
        timing = self._machine.timing
        received = None
        with trio.move_on_after(timing.silence) as patience:

            def arrives() -> None:
                patience.deadline = min(trio.current_time() + timing.silence, opened_at + timing.patience)

            events.when_arriving(arrives)
            received = await events.receive()
        if patience.cancelled_caught:
            waited = trio.current_time() - opened_at
            raise SilenceError(f"accepted, but no event in {waited:g} s, and nothing of one for {timing.silence:g} s")
        events.when_arriving(partial(self._arrives, attempt))
        while received is not None:
            event, wire_bytes = received
            arrived_at = trio.current_time()
            await self._send.send(Received(attempt, event, wire_bytes, opened_at))
            if (waited := trio.current_time() - arrived_at) >= WORTH_TELLING:
                self._observer(DeliveryBlocked(self.shard_id, waited))
            received = await events.receive()

    def _attempted(self, waited: float, called_at: float, error: EfoError | None) -> None:
        duration = trio.current_time() - called_at
        error_type = error.error_type if error else None
        self._observer(SubscribeAttempted(self.shard_id, waited, duration, error_type, str(error or "")))

    def _report(self, event: SubscribeToShardEvent, wire_bytes: int) -> None:
        now = trio.current_time()
        interval = None if self._last_event_at is None else now - self._last_event_at
        self._last_event_at = now
        behind = event.millis_behind_latest
        self._observer(EventReceived(self.shard_id, len(event.records), wire_bytes, behind, interval))


_END_REASONS: Final[tuple[tuple[type[EfoError], EndReason], ...]] = (
    (StreamResetError, "reset"),
    (GoAwayError, "goaway"),
    (SilenceError, "silence"),
    (ThrottledError, "throttled"),
    (ProtocolError, "protocol"),
    (ServiceError, "service"),
)


def end_reason(error: EfoError) -> EndReason:
    """Return the end reason that an error is told as."""
    return next((reason for kind, reason in _END_REASONS if isinstance(error, kind)), "transport")
