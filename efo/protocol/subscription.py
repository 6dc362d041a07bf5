"""One shard's subscription, as a state machine: no I/O, no clock; `now` is a parameter.

Theory of operation. Everything that decides how a shard stays subscribed is in this file.

1. An *attempt* is one call of SubscribeToShard, named by a number. At most two are alive: the *live* one, whose
   events are delivered, and a *candidate*, which has not delivered yet. Whatever comes from any other attempt
   is stale and ignored by its number (R7).
2. The first event makes a candidate live, not the 200 that precedes it (R6): a call that is accepted and then
   dies without an event is a failure like any other, and backs off. Before its first event ever, an attempt
   starts at the original position (R4); afterwards AFTER the last delivered continuation. Only a take-over starts the
   backoff over: a renewal that keeps failing backs off, however well the live attempt does.
3. A live attempt is renewed before the service ends it (R7): at a jittered age, counted from the acceptance of its
   call as the service counts, a candidate is opened beside it, and its first event takes over. A candidate that fails
   changes nothing for the live attempt; the renewal is tried again. An attempt whose connection is about to go away is
   renewed at once, pacing spreads that; meanwhile it goes on.
4. What was delivered is never delivered again: records up to the last delivered sequence number are cut off.
5. An event without a continuation ends the shard (R2), whichever attempt it comes from. It is final.
6. An error that trying again cannot cure is handed out, and is final here; the owner decides what it means.
7. A continuation that goes back within one attempt is a fault of the protocol: the attempt is given up, and the next
   one starts AFTER the last good continuation. If by then records were delivered that belong after those which come
   too late, the order cannot be kept any more, and that is final: nothing is passed over in silence.
8. Silence of the live attempt while we were ready to read is a failure (R8). Time in which we were not waiting
   does not count: the deadline starts anew with each wait, and with all that arrives, be it a part of an event. One
   event has its own, longer time: a peer that only drips is given up too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Literal

import msgspec

from efo.errors import EfoError, EventError, OrderError, ProtocolError, ResourceInUseError, SilenceError
from efo.model import ChildShard, Position, PositionType
from efo.protocol.messages import SubscribeToShardEvent
from efo.protocol.pacing import TAKE_OVER_AFTER, Backoff


class State(Enum):
    """Where a subscription is."""

    WAITING = auto()
    """No attempt; the next one is due at a known time."""
    CONNECTING = auto()
    """A candidate is on its way, nothing is live."""
    LIVE = auto()
    """Events are delivered."""
    RENEWING = auto()
    """Events are delivered, and a candidate is about to take over."""
    ENDED = auto()
    """The shard's end was delivered."""
    FAILED = auto()
    """An error that trying again cannot cure."""


class Signal(Enum):
    """What can happen to a subscription."""

    DUE = auto()
    """The time came for what the state waits for."""
    CANDIDATE_EVENT = auto()
    LIVE_EVENT = auto()
    END_EVENT = auto()
    """An event that ends the shard, of either attempt."""
    CANDIDATE_CLOSED = auto()
    """The candidate failed or ended, in a way that trying again may cure."""
    LIVE_CLOSED = auto()
    FATAL = auto()
    """Either attempt failed in a way that trying again cannot cure."""


TRANSITIONS: Final[dict[tuple[State, Signal], State]] = {
    (State.WAITING, Signal.DUE): State.CONNECTING,
    (State.CONNECTING, Signal.CANDIDATE_EVENT): State.LIVE,
    (State.CONNECTING, Signal.CANDIDATE_CLOSED): State.WAITING,
    (State.CONNECTING, Signal.END_EVENT): State.ENDED,
    (State.CONNECTING, Signal.FATAL): State.FAILED,
    (State.LIVE, Signal.LIVE_EVENT): State.LIVE,
    (State.LIVE, Signal.LIVE_CLOSED): State.WAITING,
    (State.LIVE, Signal.DUE): State.RENEWING,
    (State.LIVE, Signal.END_EVENT): State.ENDED,
    (State.LIVE, Signal.FATAL): State.FAILED,
    (State.RENEWING, Signal.LIVE_EVENT): State.RENEWING,
    (State.RENEWING, Signal.CANDIDATE_EVENT): State.LIVE,
    (State.RENEWING, Signal.CANDIDATE_CLOSED): State.LIVE,
    (State.RENEWING, Signal.LIVE_CLOSED): State.CONNECTING,
    (State.RENEWING, Signal.END_EVENT): State.ENDED,
    (State.RENEWING, Signal.FATAL): State.FAILED,
}
"""The whole machine. A pair that is not here cannot happen; ENDED and FAILED have no way out."""


# --- what goes in ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Received:
    """An attempt got an event. `accepted_at`: when its call was accepted, if that was before now."""

    attempt: int
    event: SubscribeToShardEvent
    wire_bytes: int = 0
    accepted_at: float = float("inf")


@dataclass(frozen=True, slots=True)
class Closed:
    """An attempt is over: `error` None for a clean end of its stream (the service ends each after 5 minutes)."""

    attempt: int
    error: EfoError | None = None


@dataclass(frozen=True, slots=True)
class Leaving:
    """An attempt's connection is about to go away (GOAWAY): it goes on for now, and should be replaced soon."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Arriving:
    """A part of an event has arrived: the attempt is slow, and not silent."""

    attempt: int


Input = Received | Closed | Leaving | Arriving


CancelReason = Literal["renewed", "silence", "shard_end", "service", "protocol"]


# --- what comes out --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Open an attempt. `renewal`: something is live meanwhile."""

    attempt: int
    position: Position
    renewal: bool


@dataclass(frozen=True, slots=True)
class Cancel:
    """Reset an attempt's stream, if it still is open."""

    attempt: int
    reason: CancelReason


@dataclass(frozen=True, slots=True)
class Deliver:
    """Hand an event out. Its records were not delivered before."""

    event: SubscribeToShardEvent
    wire_bytes: int


@dataclass(frozen=True, slots=True)
class Finish:
    """The shard is read to its end; these are its children."""

    children: tuple[ChildShard, ...]


@dataclass(frozen=True, slots=True)
class Fail:
    """Trying again cannot cure this."""

    error: EfoError


Action = Subscribe | Cancel | Deliver | Finish | Fail


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The machine's times, in seconds. `renew_from` and `renew_to`: the jittered age of a renewal (R7).

    `silence`: after so long without a byte an attempt is dead (R8). `patience`: so long may one event take to arrive.
    """

    renew_from: float = 240.0
    renew_to: float = 285.0
    silence: float = 35.0
    patience: float = 300.0


@dataclass(frozen=True, slots=True)
class _Last:
    """The live attempt's last event, and where the subscription was before it.

    `continuation`: as it was sent. `first`: the number of its first record, None for none.
    """

    continuation: int
    first: int | None
    position: Position
    delivered: int


class Subscription:
    """Keeps one shard subscribed: `start`, then `handle` each input and `tick` when `deadline` has come.

    `position`: where to start; it moves on with every event. `random` returns a number from 0 to 1.
    """

    def __init__(
        self,
        position: Position,
        random: Callable[[], float],
        *,
        timing: Timing = Timing(),
    ) -> None:
        self.state = State.WAITING
        self.position = position
        self.timing = timing
        self._random = random
        self._backoff = Backoff(random)
        self._attempts = 0
        self._live: int | None = None
        self._candidate: int | None = None
        # A candidate that is to be replaced as soon as it lives.
        self._leaving: int | None = None
        # Records up to this sequence number were delivered, or are before the start.
        self._delivered = _before(position)
        self._last: _Last | None = None
        self._due = float("-inf")
        self._silent_at = float("inf")
        self._slow_at = float("inf")

    @property
    def deadline(self) -> float:
        """When to call `tick`; infinity while nothing is due."""
        match self.state:
            case State.WAITING:
                return self._due
            case State.LIVE:
                return min(self._due, self._silent_at)
            case State.RENEWING:
                return self._silent_at
            case _:
                return float("inf")

    def is_being_replaced(self, attempt: int) -> bool:
        """Tell whether this attempt is the live one, with a candidate on its way."""
        return self.state is State.RENEWING and attempt == self._live

    def waiting(self, now: float) -> None:
        """Take note that the owner begins to wait for input: the silence is counted from now (R8)."""
        self._silent_at = now + self.timing.silence
        self._slow_at = now + self.timing.patience

    def tick(self, now: float) -> list[Action]:
        """Do what is due."""
        if now < self.deadline:
            return []
        if self.state in (State.LIVE, State.RENEWING) and now >= self._silent_at:
            live = self._live
            assert live is not None  # noqa: S101 - what LIVE and RENEWING mean
            error = SilenceError(f"no event arrived, and nothing of one for {self.timing.silence:g} s")
            if now >= self._slow_at:
                error = SilenceError(f"an event took longer than {self.timing.patience:g} s to arrive")
            return [Cancel(live, "silence"), *self.handle(Closed(live, error), now)]
        self._move(Signal.DUE)
        return [self._subscribe()]

    def handle(self, signal: Input, now: float) -> list[Action]:
        """Take what happened to an attempt; stale attempts are ignored."""
        if signal.attempt not in (self._live, self._candidate):
            return []
        is_live = signal.attempt == self._live
        match signal:
            case Received():
                return self._received(signal, now, is_live=is_live)
            case Closed(error=error):
                return self._closed(error, now, is_live=is_live)
            case Leaving(attempt=attempt):
                if not is_live:
                    self._leaving = attempt
                elif self.state is State.LIVE:
                    self._due = min(self._due, now)
                return []
            case Arriving():
                if is_live:
                    self._silent_at = min(now + self.timing.silence, self._slow_at)
                return []

    def _received(self, received: Received, now: float, *, is_live: bool) -> list[Action]:
        event = received.event
        self.waiting(now)
        if event.continuation_sequence_number is not None:
            sent, first = int(event.continuation_sequence_number), event.records[0] if event.records else None
            if is_live and self._last is not None and sent < self._last.continuation:
                return self._gone_back(event, self._last, now)
            self._last = _Last(sent, int(first.sequence_number) if first else None, self.position, self._delivered)
        event = self._cut(event)
        deliver = Deliver(event, received.wire_bytes)
        if event.continuation_sequence_number is None:
            self._move(Signal.END_EVENT)
            return [deliver, *self._cancel_all("shard_end"), Finish(event.child_shards or ())]
        if int(event.continuation_sequence_number):
            # Zero is no record's number: a server that knows of none yet says so, and we begin where we began (R4).
            self.position = Position.after(event.continuation_sequence_number)
        if is_live:
            self._move(Signal.LIVE_EVENT)
            return [deliver]
        self._move(Signal.CANDIDATE_EVENT)
        self._backoff.reset()
        replaced, self._live, self._candidate = self._live, self._candidate, None
        low, high = self.timing.renew_from, self.timing.renew_to
        self._due = min(now, received.accepted_at) + low + (high - low) * self._random()
        if self._leaving == self._live:
            self._due = now
        return [*([Cancel(replaced, "renewed")] if replaced is not None else []), deliver]

    def _gone_back(self, event: SubscribeToShardEvent, last: _Last, now: float) -> list[Action]:
        """Give the live attempt up: its event is of before the last one."""
        live = self._live
        assert live is not None  # noqa: S101 - whose event it is
        text = f"the continuation went back from {last.continuation} to {event.continuation_sequence_number}"
        error: ProtocolError = EventError(text)
        until = last.continuation if last.first is None else last.first
        late = [r.sequence_number for r in event.records if last.delivered < int(r.sequence_number) < until]
        if late and last.first is not None:
            error = OrderError(
                f"{text}: records {late[0]} to {late[-1]} came after {last.first}, which is read already"
            )
        elif late:
            # The event that came too early had no records: all is well again from before it.
            self.position, self._delivered = last.position, last.delivered
        actions = self._closed(error, now, is_live=True)
        return actions if self.state is State.FAILED else [Cancel(live, "protocol"), *actions]

    def _cut(self, event: SubscribeToShardEvent) -> SubscribeToShardEvent:
        """Return the event without what was delivered before: records, and a continuation that goes back.

        Both happen at a renewal, where the live attempt went on while the candidate was on its way. A continuation
        that is before the start would bring old records back at the next attempt. It is as wide as it came: whoever
        pads his numbers with zeros may compare them as text, and would then pass over records.
        """
        delivered = self._delivered
        records = event.records
        if records and int(records[0].sequence_number) <= delivered:
            records = tuple(record for record in records if int(record.sequence_number) > delivered)
            event = msgspec.structs.replace(event, records=records)
        if records:
            self._delivered = int(records[-1].sequence_number)
        continuation = event.continuation_sequence_number
        if continuation is None or int(continuation) >= self._delivered:
            self._delivered = max(self._delivered, int(continuation or 0))
            return event
        furthest = str(self._delivered).zfill(len(continuation))
        return msgspec.structs.replace(event, continuation_sequence_number=furthest)

    def _closed(self, error: EfoError | None, now: float, *, is_live: bool) -> list[Action]:
        if error is not None and not error.retryable:
            self._move(Signal.FATAL)
            return [*self._cancel_all("service"), Fail(error)]
        if is_live:
            self._live = None
            self._move(Signal.LIVE_CLOSED)
            # The first try after a live attempt is made at once: pacing keeps the service's intervals. A second
            # failure without an event between backs off.
            self._due = now
        else:
            self._candidate = None
            self._move(Signal.CANDIDATE_CLOSED)
            # ResourceInUse means wait until 5 s have passed since the last success (R6), whoever had it.
            floor = TAKE_OVER_AFTER if isinstance(error, ResourceInUseError) else 0.0
            self._due = now + max(floor, self._backoff.next())
        return []

    def _subscribe(self) -> Subscribe:
        self._attempts += 1
        self._candidate = self._attempts
        return Subscribe(self._attempts, self.position, renewal=self._live is not None)

    def _cancel_all(self, reason: CancelReason) -> list[Action]:
        attempts = [attempt for attempt in (self._live, self._candidate) if attempt is not None]
        self._live = self._candidate = None
        return [Cancel(attempt, reason) for attempt in attempts]

    def _move(self, signal: Signal) -> None:
        self.state = TRANSITIONS[self.state, signal]


def _before(position: Position) -> int:
    """Return the highest sequence number that is before this position, -1 where it names none."""
    if position.sequence_number is None:
        return -1
    number = int(position.sequence_number)
    return number if position.type is PositionType.AFTER_SEQUENCE_NUMBER else number - 1
