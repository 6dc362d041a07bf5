"""Runs `protocol.subscription` over HTTP/2: the events of one shard, for as long as it is subscribed.

Each attempt is a task that calls SubscribeToShard and passes each event to `receive`, which owns the state machine. The
channel between them has no buffer. So an attempt whose event is not taken reads no further, its HTTP/2 window closes,
and the service stops sending (rule R9).
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal

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
    ignore_events,
)
from efo.kinesis.subscribe_call import EventStream, SubscribeCaller
from efo.kinesis.subscribe_limiter import SubscribeLimiter
from efo.model import ChildShard, Position
from efo.protocol.messages import SubscribeToShardEvent
from efo.protocol.subscription import (
    Action,
    Cancel,
    Closed,
    DataArrived,
    Deliver,
    Fail,
    Finish,
    GoAwayReceived,
    Input,
    Received,
    State,
    Subscribe,
    Subscription,
    SubscriptionTiming,
)

MIN_BLOCKED: Final = 0.01
"""Seconds that an event must wait for its reader before that is reported: a shorter wait is the channel itself."""


@dataclass(frozen=True, slots=True)
class ShardEnd:
    """The shard was read to its end; these are its children."""

    children: tuple[ChildShard, ...]


SubscriptionState = Literal["waiting", "connecting", "live", "renewing", "ended", "failed"]
"""The state of a subscription, see `protocol.subscription.State`."""
_STATES: Final[dict[State, SubscriptionState]] = {
    State.WAITING: "waiting",
    State.CONNECTING: "connecting",
    State.LIVE: "live",
    State.RENEWING: "renewing",
    State.ENDED: "ended",
    State.FAILED: "failed",
}


@dataclass(slots=True)
class _Attempt:
    """The task of an attempt. `reason`: why it was cancelled, if it was."""

    reason: EndReason = "shutdown"
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)


Diagnose = Callable[[ResourceNotFoundError], Awaitable[EfoError]]
"""Returns the error that explains a ResourceNotFoundException: the consumer or the shard is gone (rule R13)."""


class ShardSubscription:
    """The subscription of one shard after a position. `receive` returns one event after the other, then ShardEnd.

    Its attempts run in `nursery`, which the owner cancels at the end. `rng`: the source of jitter.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        shard_id: str,
        position: Position,
        *,
        caller: SubscribeCaller,
        limiter: SubscribeLimiter,
        diagnose: Diagnose,
        rng: random.Random,
        timing: SubscriptionTiming | None = None,
        observer: Observer = ignore_events,
    ) -> None:
        self.shard_id = shard_id
        self._nursery = nursery
        self._machine = Subscription(position, rng.random, timing=timing or SubscriptionTiming())
        self._caller = caller
        self._limiter = limiter
        self._diagnose = diagnose
        self._observer = observer
        self._attempts: dict[int, _Attempt] = {}
        self._send, self._inputs = trio.open_memory_channel[Input](0)
        self._ready: deque[Deliver | Finish | Fail] = deque()
        self._last_event_at: float | None = None
        self._receive_scope = trio.CancelScope()

    @property
    def position(self) -> Position:
        """The position at which the next attempt would start."""
        return self._machine.position

    @property
    def state(self) -> SubscriptionState:
        """The state of the subscription."""
        return _STATES[self._machine.state]

    async def receive(self) -> SubscribeToShardEvent | ShardEnd:
        """Wait for the next event. Raises the EfoError that retries cannot cure."""
        self._machine.wait_started(trio.current_time())
        while not self._ready:
            with trio.move_on_at(self._machine.deadline) as self._receive_scope:
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
        """Close the subscription and reset its attempts. `position` stays valid; do not call `receive` again."""
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

    def _on_goaway(self, attempt: int) -> None:
        """Handle the GOAWAY of an attempt's connection. The connection's task calls this while `receive` may wait."""
        self._act(self._machine.handle(GoAwayReceived(attempt), trio.current_time()))
        self._receive_scope.deadline = min(self._receive_scope.deadline, self._machine.deadline)

    def _on_data(self, attempt: int) -> None:
        """Handle the arrival of a part of an event. The attempt's task calls this while `receive` may wait."""
        self._act(self._machine.handle(DataArrived(attempt), trio.current_time()))

    async def _run(self, subscribe: Subscribe, attempt: _Attempt) -> None:
        with attempt.scope:
            outcome = await self._attempt(subscribe, attempt)
            if isinstance(outcome, ResourceNotFoundError):
                outcome = await self._diagnose(outcome)
            await self._send.send(Closed(subscribe.attempt, outcome))
        del self._attempts[subscribe.attempt]

    async def _attempt(self, subscribe: Subscribe, attempt: _Attempt) -> EfoError | None:
        """Make one call and pass its events on; return why it ended, None for a clean end."""
        waited = await self._limiter.acquire(self.shard_id, renewal=subscribe.renewal)
        called_at = trio.current_time()
        try:
            events = await self._caller.call(self.shard_id, subscribe.position)
        except EfoError as error:
            self._attempted(waited, called_at, error)
            return error
        self._limiter.succeeded(self.shard_id)
        self._attempted(waited, called_at, None)
        opened_at = trio.current_time()
        outcome: EfoError | None = None
        reason: EndReason | None = None
        try:
            async with events:
                events.notify_goaway(partial(self._on_goaway, subscribe.attempt))
                await self._pass_on(events, subscribe.attempt, opened_at)
            reason = "expired"
        except EfoError as error:
            outcome, reason = error, end_reason(error)
            if attempt.scope.cancel_called:
                reason = attempt.reason  # it was cancelled before the error arrived
            elif isinstance(error, ResourceInUseError) and self._machine.is_being_renewed(subscribe.attempt):
                reason = "renewed"  # our own candidate took over: the service says so before its first event
        finally:
            # Without a reason, the attempt was cancelled, and knows why.
            age = trio.current_time() - opened_at
            self._observer(SubscriptionEnded(self.shard_id, age, reason or attempt.reason, str(outcome or "")))
        return outcome

    async def _pass_on(self, events: EventStream, attempt: int, opened_at: float) -> None:
        # The state machine checks a live attempt for silence, since it knows when the reader was ready. Before its
        # first event an attempt is not live, so its deadline is checked here.
        timing = self._machine.timing
        received = None
        with trio.move_on_after(timing.silence_timeout) as deadline:

            def on_data() -> None:
                deadline.deadline = min(trio.current_time() + timing.silence_timeout, opened_at + timing.event_timeout)

            events.notify_data(on_data)
            received = await events.receive()
        if deadline.cancelled_caught:
            waited = trio.current_time() - opened_at
            raise SilenceError(
                f"accepted, but no event within {waited:g} s, and no data for {timing.silence_timeout:g} s"
            )
        events.notify_data(partial(self._on_data, attempt))
        while received is not None:
            event, wire_bytes = received
            arrived_at = trio.current_time()
            await self._send.send(Received(attempt, event, wire_bytes, opened_at))
            if (waited := trio.current_time() - arrived_at) >= MIN_BLOCKED:
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
    """Return the end reason to report for an error."""
    return next((reason for kind, reason in _END_REASONS if isinstance(error, kind)), "transport")
