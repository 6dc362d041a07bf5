"""Runs `protocol.subscription` over HTTP/2: the events of one shard, for as long as it is subscribed.

Each attempt is a task that calls SubscribeToShard, waits for the first event, and at last reports the end. The events
of the live attempt are read from its stream by `receive` itself, which owns the state machine. So an event wakes one
task, and what the reader does not take closes the HTTP/2 window, so that the service stops sending (rule R9).
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Awaitable, Callable
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
    without_tracebacks,
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
from efo.health import ActiveReadMode, SubscriptionState
from efo.kinesis.pacing import PacesSubscribes
from efo.kinesis.shard_source import ShardEnd
from efo.kinesis.subscribe_call import EventStream, SubscribeCaller
from efo.kinesis.timer import Timer
from efo.model import Position
from efo.protocol.denials import is_final
from efo.protocol.messages import SubscribeToShardEvent
from efo.protocol.subscription import (
    EVENT_TIMEOUT,
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
"""Seconds that an event must wait for its reader before that is reported: a shorter wait is that of any task."""
_YIELD_BYTES: Final = 64 * 1024
"""Other tasks run at the latest after this many bytes of events, however many have arrived."""
_PART_BYTES: Final = 16 * 1024
"""What counts for the bytes that were taken from the stream without an event in them."""


_STATES: Final[dict[State, SubscriptionState]] = {
    State.WAITING: "waiting",
    State.CONNECTING: "connecting",
    State.LIVE: "live",
    State.RENEWING: "renewing",
    State.ENDED: "ended",
    State.FAILED: "failed",
}


class _Attempt:
    """An attempt: its task, and after its first event the stream that the reader reads.

    `reason`: why it was cancelled, if it was. `has_more`: whether more may have arrived than was read. `arrived_at`:
    when what is next to be read arrived, an event or the end, None if the reader was waiting for it. `over`: set when
    its stream has ended, by `error` or cleanly.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.reason: EndReason = "shutdown"
        self.scope = trio.CancelScope()
        self.over = trio.Event()
        self.error: EfoError | None = None
        self.has_more = False
        self.arrived_at: float | None = None
        self._events: EventStream | None = None

    def open(self, events: EventStream, on_change: Callable[[], None]) -> None:
        """Let the reader read this stream; call `on_change` when more of it arrives."""
        self._events, self.has_more = events, events.has_more
        events.notify_change(on_change)

    def read(self) -> Received | DataArrived | None:
        """Return the next event, or that a part of one has arrived; None if nothing has."""
        if self._events is None:
            return None
        try:
            received = self._events.read()
            if not received:
                self.has_more, self.arrived_at = False, None
                if received is not None:
                    self._end(None)
                return None
            self.has_more = self._events.has_more
        except EfoError as error:
            self._end(error)
            return None
        return DataArrived(self.number) if isinstance(received, int) else Received(self.number, *received)

    def _end(self, error: EfoError | None) -> None:
        self._events, self.error, self.arrived_at = None, error, None
        self.over.set()


Diagnose = Callable[[ResourceNotFoundError], Awaitable[EfoError]]
"""Returns the error that explains a ResourceNotFoundException: the consumer or the shard is gone (rule R13)."""


class ShardSubscription:
    """The subscription of one shard after a position. `receive` returns one event after the other, then ShardEnd.

    Its attempts run in `nursery`, which the owner cancels at the end. `rng`: the source of jitter. `is_final`: whether
    an error ends the subscription. `on_success`: called with the first event of each attempt.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        shard_id: str,
        position: Position,
        *,
        caller: SubscribeCaller,
        limiter: PacesSubscribes,
        diagnose: Diagnose,
        rng: random.Random,
        timing: SubscriptionTiming | None = None,
        is_final: Callable[[EfoError], bool] = is_final,
        on_success: Callable[[], None] = lambda: None,
        observer: Observer = ignore_events,
    ) -> None:
        self.shard_id = shard_id
        self._nursery = nursery
        self._is_final = is_final
        self._machine = Subscription(position, rng.random, timing=timing or SubscriptionTiming(), is_final=is_final)
        self._caller = caller
        self._limiter = limiter
        self._diagnose = diagnose
        self._on_success = on_success
        self._observer = observer
        self._now = trio.lowlevel.current_clock().current_time  # a third of the calls of trio.current_time
        self._attempts: dict[int, _Attempt] = {}
        # What tasks of attempts report: first events, and ends.
        self._inputs: deque[Received | Closed] = deque()
        self._ready: deque[Deliver | Finish | Fail] = deque()
        self._last_event_at: float | None = None
        self._waiting: trio.lowlevel.Task | None = None  # the task in `receive`, while it waits
        self._interrupted = False
        self._timer: Timer | None = None
        self._since_wait = 0  # bytes of the events that were received without a wait

    @property
    def position(self) -> Position:
        """The position at which the next attempt would start."""
        return self._machine.position

    @property
    def state(self) -> SubscriptionState:
        """The state of the subscription."""
        return _STATES[self._machine.state]

    @property
    def read_mode(self) -> ActiveReadMode:
        """How the events are read now."""
        return "fanout"

    @property
    def has_pending(self) -> bool:
        """Whether something has arrived that `receive` has not returned: the reader, not Kinesis, is what is slow."""
        return bool(self._inputs or self._ready) or self.pending_since is not None

    @property
    def pending_since(self) -> float | None:
        """When what the reader has not taken yet arrived, an event or the end; None if there is none."""
        arrived = [attempt.arrived_at for attempt in list(self._attempts.values()) if attempt.arrived_at is not None]
        return min(arrived, default=None)

    async def receive(self) -> SubscribeToShardEvent | ShardEnd | None:
        """Wait for the next event; None after `interrupt`. Raises the EfoError that retries cannot cure."""
        self._interrupted = False
        now = self._now()
        self._end_blocked(now)
        self._machine.wait_started(now)
        while not self._ready:
            if self._interrupted:
                return None
            if (input_ := self._next_input(now)) is not None:
                self._act(self._machine.handle(input_, now))
            if now >= (deadline := self._machine.deadline):
                self._act(self._machine.tick(now))
            elif input_ is None:
                await self._wait(deadline)
            elif isinstance(input_, DataArrived):  # maybe many messages that are no events
                self._since_wait += _PART_BYTES
                await self._yield_if_due()
            now = self._now()
        # Not before: while nothing has arrived, the wait lets others run. A cancellation loses nothing that is ready.
        await self._yield_if_due()
        return self._taken(self._ready.popleft(), now)

    def _taken(self, action: Deliver | Finish | Fail, now: float) -> SubscribeToShardEvent | ShardEnd:
        match action:
            case Deliver(event=event, wire_bytes=wire_bytes):
                self._since_wait += wire_bytes
                self._report(event, wire_bytes, now)
                return event
            case Finish(children=children):
                self._end_timer()
                return ShardEnd(children)
            case Fail(error=error):
                self._end_timer()
                raise error

    async def _yield_if_due(self) -> None:
        if self._since_wait >= _YIELD_BYTES:
            self._since_wait = 0
            await trio.lowlevel.checkpoint()

    def interrupt(self) -> None:
        """Let a `receive` that waits return None, without loss."""
        self._interrupted = True
        self._wake()

    def close(self, reason: EndReason) -> None:
        """Close the subscription and reset its attempts. `position` stays valid; do not call `receive` again."""
        for attempt in self._attempts.values():
            attempt.reason = reason
            attempt.scope.cancel()
        self._end_blocked(self._now())
        self._end_timer()
        self.interrupt()

    def _next_input(self, now: float) -> Input | None:
        """Return what an attempt has reported, or else what has arrived of the live attempt's stream."""
        number = self._inputs[0].attempt if self._inputs else self._machine.live
        attempt = None if number is None else self._attempts.get(number)
        input_: Input | None = None
        if self._inputs:
            input_ = self._inputs.popleft()
        elif attempt is not None and attempt.has_more:
            input_ = attempt.read()
        if attempt is not None and isinstance(input_, Received):
            attempt.arrived_at = now if attempt.has_more else None  # of what comes after this event
        return input_

    def _end_blocked(self, now: float) -> None:
        """Report how long what had arrived has waited for the reader, which is back.

        Whatever it was: the end of a subscription waits like an event, and what comes after it waits behind it.
        """
        if (since := self.pending_since) is not None:
            for attempt in self._attempts.values():
                attempt.arrived_at = None
            if now - since >= MIN_BLOCKED:
                self._observer(DeliveryBlocked(self.shard_id, now - since))

    def _on_change(self, attempt: _Attempt) -> None:
        """Handle that more of an attempt's stream has arrived. The connection's task calls this."""
        attempt.has_more = True
        if (task := self._waiting) is not None:
            self._waiting = None
            trio.lowlevel.reschedule(task)
        elif attempt.arrived_at is None:
            attempt.arrived_at = self._now()

    def _report_input(self, input_: Received | Closed) -> None:
        self._inputs.append(input_)
        self._wake()

    async def _wait(self, deadline: float) -> None:
        """Wait until an attempt reports, something arrives, the deadline, or an interrupt."""
        self._since_wait = 0
        if self._timer is None:
            self._timer = Timer(self._wake)
            self._nursery.start_soon(self._timer.run)
        self._timer.set(deadline)
        # A trio.Event per event would cost as much as the rest of the wait.
        self._waiting = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._on_cancelled)

    def _on_cancelled(self, _raise_cancelled: object) -> trio.lowlevel.Abort:
        self._waiting = None
        return trio.lowlevel.Abort.SUCCEEDED

    def _wake(self) -> None:
        task, self._waiting = self._waiting, None
        if task is not None:
            trio.lowlevel.reschedule(task)

    def _end_timer(self) -> None:
        if self._timer is not None:
            self._timer.close()
            self._timer = None  # they refer to each other

    def _act(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Deliver() | Finish() | Fail():
                    self._ready.append(action)
                case Subscribe():
                    attempt = self._attempts[action.attempt] = _Attempt(action.attempt)
                    self._nursery.start_soon(self._run, action, attempt)
                case Cancel(attempt=number, reason=reason):
                    if running := self._attempts.get(number):
                        running.reason, running.arrived_at = reason, None
                        running.scope.cancel()

    def _on_goaway(self, attempt: int) -> None:
        """Handle the GOAWAY of an attempt's connection. The connection's task calls this while `receive` may wait."""
        self._act(self._machine.handle(GoAwayReceived(attempt), self._now()))
        self._wake()

    async def _run(self, subscribe: Subscribe, attempt: _Attempt) -> None:
        with attempt.scope:
            outcome = await self._attempt(subscribe, attempt)
            if isinstance(outcome, ResourceNotFoundError):
                outcome = await self._diagnose(outcome)
            self._report_input(Closed(subscribe.attempt, outcome))
        del self._attempts[subscribe.attempt]

    async def _attempt(self, subscribe: Subscribe, attempt: _Attempt) -> EfoError | None:
        """Make one call and pass its events on; return why it ended, None for a clean end."""
        waited = await self._limiter.acquire(self.shard_id, renewal=subscribe.renewal)
        called_at = self._now()
        try:
            events = await self._caller.call(self.shard_id, subscribe.position)
        except EfoError as error:
            self._attempted(waited, called_at, error)
            return without_tracebacks(error)
        self._limiter.succeeded(self.shard_id)
        self._attempted(waited, called_at, None)
        opened_at = self._now()
        outcome: EfoError | None = None
        reason: EndReason | None = None
        try:
            async with events:
                events.notify_goaway(partial(self._on_goaway, subscribe.attempt))
                await self._read(events, attempt, opened_at)
            reason = "expired"
        except EfoError as error:
            outcome, reason = without_tracebacks(error), end_reason(error)
            if attempt.scope.cancel_called:
                reason = attempt.reason  # it was cancelled before the error arrived
            elif isinstance(error, ResourceInUseError) and self._machine.is_being_renewed(subscribe.attempt):
                reason = "renewed"  # our own candidate took over: the service says so before its first event
        finally:
            # Without a reason, the attempt was cancelled, and knows why.
            age, error_type = self._now() - opened_at, outcome.error_type if outcome else None
            self._observer(
                SubscriptionEnded(
                    self.shard_id, age, reason or attempt.reason, str(outcome or ""), error_type, self._is_over(outcome)
                )
            )
        return outcome

    async def _read(self, events: EventStream, attempt: _Attempt, opened_at: float) -> None:
        """Read the first event, let the reader read the others, and return at the end. Raises EfoError."""
        # The state machine checks a live attempt for silence, since it knows when the reader was ready. Before its
        # first event an attempt is not live, so its deadline is checked here.
        timing = self._machine.timing
        received = None
        with trio.move_on_after(timing.silence_timeout) as deadline:

            def on_change() -> None:
                deadline.deadline = min(self._now() + timing.silence_timeout, opened_at + EVENT_TIMEOUT)

            events.notify_change(on_change)
            received = await events.receive()
        if deadline.cancelled_caught:
            waited = self._now() - opened_at
            raise SilenceError(
                f"accepted, but no event within {waited:g} s, and no data for {timing.silence_timeout:g} s"
            )
        if received is None:
            return
        self._on_success()
        attempt.arrived_at = self._now()
        attempt.open(events, partial(self._on_change, attempt))
        self._report_input(Received(attempt.number, *received, opened_at))
        del received  # this task lives for minutes, and the event may have megabytes
        await attempt.over.wait()
        if attempt.error is not None:
            raise attempt.error

    def _attempted(self, waited: float, called_at: float, error: EfoError | None) -> None:
        duration = self._now() - called_at
        error_type = error.error_type if error else None
        self._observer(
            SubscribeAttempted(self.shard_id, waited, duration, error_type, str(error or ""), self._is_over(error))
        )

    def _is_over(self, error: EfoError | None) -> bool:
        """Return whether a call is not repeated after this error. What is not found is looked into first."""
        return error is not None and not isinstance(error, ResourceNotFoundError) and self._is_final(error)

    def _report(self, event: SubscribeToShardEvent, wire_bytes: int, now: float) -> None:
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
