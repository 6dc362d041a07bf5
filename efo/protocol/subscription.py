"""The subscription of one shard as a state machine: no I/O, no clock; `now` is a parameter.

This module makes all decisions that keep a shard subscribed:

1. An *attempt* is one call of SubscribeToShard, identified by a number. At most two attempts are current: the *live*
   one, whose events are delivered, and a *candidate*, which has not delivered an event yet. Inputs of any other attempt
   are stale and ignored (R7).
2. A candidate becomes live with its first event, not with the 200 before it (R6). A call that is accepted and closes
   without an event is a failure and backs off. Until the first event of the subscription, attempts start at the
   original position (R4), later AFTER the last delivered continuation. Only a take-over resets the backoff: a renewal
   that fails repeatedly backs off, even if the live attempt works.
3. A live attempt is renewed before the service ends it (R7). The renewal is due at a jittered age, counted from the
   acceptance of the call, as the service counts. Then a candidate is opened beside the live attempt, and its first
   event takes over. A candidate that fails does not affect the live attempt, and the renewal is retried. An attempt
   whose connection received GOAWAY is renewed at once and continues until then; pacing spreads these renewals.
4. No record is delivered twice: records up to the last delivered sequence number are removed from events.
5. An event without a continuation ends the shard (R2), from either attempt. This is final.
6. An error that is final is passed to the owner, and ends the subscription. Which ones are is the owner's to say: by
   default those that are not retryable. An odd one is final when it has repeated.
7. A continuation that moves back within one attempt is a protocol error. The attempt is closed, and the next one starts
   AFTER the last valid continuation. But if later records of the shard were delivered before earlier ones, the order is
   lost. This is final: no record is skipped silently.
8. Silence of the live attempt is a failure, if the owner was waiting for input (R8). Time in which it did not wait does
   not count. The silence timeout restarts with each wait and with all data, also with a part of an event. A single
   event has a longer timeout, so that a peer that sends very slowly is detected too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Literal

import msgspec

from efo.checks import check_number
from efo.errors import (
    ConfigurationError,
    EfoError,
    EventError,
    OrderError,
    ProtocolError,
    ResourceInUseError,
    SilenceError,
)
from efo.model import ChildShard, Position, PositionType
from efo.protocol.backoff import Backoff
from efo.protocol.denials import Doubts, is_final
from efo.protocol.messages import SubscribeToShardEvent
from efo.protocol.pacing import SHARD_INTERVAL, TAKE_OVER_AFTER
from efo.protocol.packed import filtered

EVENT_TIMEOUT: Final = 300.0
"""The most seconds that one event may take to arrive."""


class State(Enum):
    """The state of a subscription."""

    __hash__ = object.__hash__  # Enum's is written in Python, and each event needs it
    WAITING = auto()
    """No attempt is current. The next one is due at a known time."""
    CONNECTING = auto()
    """There is a candidate and no live attempt."""
    LIVE = auto()
    """There is a live attempt."""
    RENEWING = auto()
    """There are a live attempt and a candidate that is to take over."""
    ENDED = auto()
    """The end of the shard was delivered."""
    FAILED = auto()
    """An error that is not retryable occurred."""


class Signal(Enum):
    """A column of the transition table: an input, or the time of the next attempt."""

    __hash__ = object.__hash__
    DUE = auto()
    """The next attempt is due."""
    CANDIDATE_EVENT = auto()
    LIVE_EVENT = auto()
    END_EVENT = auto()
    """An event of either attempt that ends the shard."""
    CANDIDATE_CLOSED = auto()
    """The candidate ended, or failed with a retryable error."""
    LIVE_CLOSED = auto()
    """The live attempt ended, or failed with a retryable error."""
    FATAL = auto()
    """Either attempt failed with an error that is not retryable."""


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
"""All transitions. Other pairs cannot occur. ENDED and FAILED are final."""


# --- inputs ----------------------------------------------------------------------------------------------


class Received(msgspec.Struct, frozen=True):
    """An attempt received an event.

    `wire_bytes`: the length of the event on the wire. `accepted_at`: when the call was accepted, if earlier than now.
    """

    attempt: int
    event: SubscribeToShardEvent
    wire_bytes: int = 0
    accepted_at: float = float("inf")


class Closed(msgspec.Struct, frozen=True):
    """An attempt closed. `error`: None for a clean end of its stream (the service ends each after 5 minutes)."""

    attempt: int
    error: EfoError | None = None


class GoAwayReceived(msgspec.Struct, frozen=True):
    """The connection of an attempt received GOAWAY: the attempt continues for now and must be replaced soon."""

    attempt: int


class DataArrived(msgspec.Struct, frozen=True):
    """A part of an event has arrived: the attempt is not silent."""

    attempt: int


Input = Received | Closed | GoAwayReceived | DataArrived


CancelReason = Literal["renewed", "silence", "shard_end", "service", "protocol"]


# --- actions ---------------------------------------------------------------------------------------------


class Subscribe(msgspec.Struct, frozen=True):
    """Open an attempt. `renewal`: whether there is a live attempt."""

    attempt: int
    position: Position
    renewal: bool


class Cancel(msgspec.Struct, frozen=True):
    """Reset the stream of an attempt, if it is still open."""

    attempt: int
    reason: CancelReason


class Deliver(msgspec.Struct, frozen=True):
    """Deliver an event. Its records were not delivered before."""

    event: SubscribeToShardEvent
    wire_bytes: int


class Finish(msgspec.Struct, frozen=True):
    """End the subscription: the shard was read to its end, and has these children."""

    children: tuple[ChildShard, ...]


class Fail(msgspec.Struct, frozen=True):
    """End the subscription with an error that is not retryable."""

    error: EfoError


Action = Subscribe | Cancel | Deliver | Finish | Fail


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionTiming:
    """The times of a subscription, in seconds.

    `renew_from`, `renew_to`: the limits of the jittered age at which a live attempt is renewed (R7).
    `silence_timeout`: the silence timeout: an attempt fails after this time without a byte (R8).
    Raises ConfigurationError.
    """

    renew_from: float = 240.0
    renew_to: float = 285.0
    silence_timeout: float = 35.0

    def __post_init__(self) -> None:
        for name in ("renew_from", "renew_to", "silence_timeout"):
            check_number(name, getattr(self, name), infinite=True, unit=" seconds")
        if self.renew_from > self.renew_to:
            raise ConfigurationError(f"renew_from={self.renew_from!r}: expected at most renew_to={self.renew_to!r}")


class _LastEvent(msgspec.Struct, frozen=True):
    """The last event of the live attempt, and the state of the subscription before it.

    `continuation`: the continuation that the service sent.
    `first`: the sequence number of its first record, None without records.
    `after`, `delivered`: those of the subscription before the event.
    """

    continuation: int
    first: int | None
    after: str | None
    delivered: int


class Subscription:
    """Keeps one shard subscribed. Call `handle` for each input, and `tick` at the `deadline`.

    `start`: where to start. `random`: returns a number from 0 to 1. `is_final`: whether an error ends the
    subscription. `live`: the number of the live attempt, None if there is none.
    """

    def __init__(
        self,
        start: Position,
        random: Callable[[], float],
        *,
        timing: SubscriptionTiming = SubscriptionTiming(),
        is_final: Callable[[EfoError], bool] = is_final,
    ) -> None:
        self.state = State.WAITING
        self.live: int | None = None
        self.timing = timing
        self._start = start
        self._after: str | None = None  # the continuation of the last event, None before the first
        self._random = random
        self._backoff = Backoff(random)
        self._doubts = Doubts(is_final)
        self._attempts = 0
        self._candidate: int | None = None
        # A candidate to renew as soon as it is live: its connection received GOAWAY.
        self._leaving: int | None = None
        # Records up to this sequence number were delivered or are before the start.
        self._delivered = last_before(start)
        self._last: _LastEvent | None = None
        # When the service began to reject candidates with ResourceInUse, if it rejected the last one.
        self._in_use_since: float | None = None
        self._due = float("-inf")
        self._silence_deadline = float("inf")
        self._event_deadline = float("inf")

    @property
    def deadline(self) -> float:
        """The time of the next `tick`, infinity if nothing is due."""
        match self.state:
            case State.LIVE:
                return min(self._due, self._silence_deadline)
            case State.WAITING:
                return self._due
            case State.RENEWING:
                return self._silence_deadline
            case _:
                return float("inf")

    @property
    def position(self) -> Position:
        """Where the next attempt starts. It moves with every event."""
        return self._start if self._after is None else Position.after(self._after)

    def is_being_renewed(self, attempt: int) -> bool:
        """Return whether this attempt is live and there is a candidate."""
        return self.state is State.RENEWING and attempt == self.live

    def wait_started(self, now: float) -> None:
        """Record that the owner starts to wait for input: the silence timeout counts from now (R8)."""
        self._silence_deadline = now + self.timing.silence_timeout
        self._event_deadline = now + EVENT_TIMEOUT

    def tick(self, now: float) -> list[Action]:
        """Return the actions that are due now."""
        if now < self.deadline:
            return []
        if self.state in (State.LIVE, State.RENEWING) and now >= self._silence_deadline:
            live = self.live
            assert live is not None  # noqa: S101 - LIVE and RENEWING have a live attempt
            error = SilenceError(f"no data of an event arrived for {self.timing.silence_timeout:g} s")
            if now >= self._event_deadline:
                error = SilenceError(f"no complete event arrived for {EVENT_TIMEOUT:g} s")
            return [Cancel(live, "silence"), *self.handle(Closed(live, error), now)]
        self._move(Signal.DUE)
        return [self._subscribe()]

    def handle(self, input_: Input, now: float) -> list[Action]:
        """Return the actions after an input. Inputs of stale attempts are ignored."""
        if input_.attempt not in (self.live, self._candidate):
            return []
        is_live = input_.attempt == self.live
        match input_:
            case Received():
                return self._received(input_, now, is_live=is_live)
            case Closed(error=error):
                return self._closed(error, now, is_live=is_live)
            case GoAwayReceived(attempt=attempt):
                if not is_live:
                    self._leaving = attempt
                elif self.state is State.LIVE:
                    self._due = min(self._due, now)
                return []
            case DataArrived():
                if is_live:
                    self._silence_deadline = min(now + self.timing.silence_timeout, self._event_deadline)
                return []

    def _received(self, received: Received, now: float, *, is_live: bool) -> list[Action]:
        event = received.event
        self.wait_started(now)
        continuation = event.continuation_sequence_number
        sent = None if continuation is None else int(continuation)
        first = int(event.records[0].sequence_number) if event.records else None
        if sent is not None:
            if is_live and self._last is not None and sent < self._last.continuation:
                return self._continuation_moved_back(event, self._last, now)
            self._last = _LastEvent(sent, first, self._after, self._delivered)
        event = self._without_delivered(event, first, sent)
        deliver = Deliver(event, received.wire_bytes)
        if sent is None:
            self._move(Signal.END_EVENT)
            return [deliver, *self._cancel_all("shard_end"), Finish(event.child_shards or ())]
        if self._delivered > 0:
            # A server without records sends zero, which is not the number of a record. The position stays (R4).
            self._after = event.continuation_sequence_number
        if is_live:
            self._move(Signal.LIVE_EVENT)
            return [deliver]
        self._move(Signal.CANDIDATE_EVENT)
        self._backoff.reset()
        self._doubts.settled()
        self._in_use_since = None
        replaced, self.live, self._candidate = self.live, self._candidate, None
        low, high = self.timing.renew_from, self.timing.renew_to
        self._due = min(now, received.accepted_at) + low + (high - low) * self._random()
        if self._leaving == self.live:
            self._due = now
        return [*([Cancel(replaced, "renewed")] if replaced is not None else []), deliver]

    def _continuation_moved_back(self, event: SubscribeToShardEvent, last: _LastEvent, now: float) -> list[Action]:
        """Close the live attempt: its event is older than its last one."""
        live = self.live
        assert live is not None  # noqa: S101 - the event is of the live attempt
        text = f"the continuation moved back from {last.continuation} to {event.continuation_sequence_number}"
        error: ProtocolError = EventError(text)
        until = last.continuation if last.first is None else last.first
        late = [r.sequence_number for r in event.records if last.delivered < int(r.sequence_number) < until]
        if late and last.first is not None:
            error = OrderError(
                f"{text}: records {late[0]} to {late[-1]} arrived after record {last.first}, which was read already"
            )
        elif late:
            # The last event was too early but had no records. The next attempt starts at the position before it.
            self._after, self._delivered = last.after, last.delivered
        actions = self._closed(error, now, is_live=True)
        return actions if self.state is State.FAILED else [Cancel(live, "protocol"), *actions]

    def _without_delivered(
        self, event: SubscribeToShardEvent, first: int | None, sent: int | None
    ) -> SubscribeToShardEvent:
        """Return the event without records that were delivered, and with a continuation that does not move back.

        `first`, `sent`: the number of its first record, and of its continuation.

        Both occur at a renewal, because the live attempt delivers while the candidate is opened. A continuation before
        the start would repeat old records at the next attempt. A replaced continuation keeps the number of digits: a
        server that pads its numbers with zeros may compare them as text, and would otherwise skip records.
        """
        delivered, records = self._delivered, event.records
        if first is not None and first <= delivered:
            records = filtered(records, lambda record: int(record.sequence_number) > delivered)
            event = msgspec.structs.replace(event, records=records)
        if records:
            delivered = self._delivered = int(records[-1].sequence_number)
        if sent is None or sent == delivered:
            return event
        if sent > delivered:
            self._delivered = sent
            return event
        digits = len(event.continuation_sequence_number or "")
        return msgspec.structs.replace(event, continuation_sequence_number=str(delivered).zfill(digits))

    def _closed(self, error: EfoError | None, now: float, *, is_live: bool) -> list[Action]:
        if error is not None and self._doubts.is_final(error):
            self._move(Signal.FATAL)
            return [*self._cancel_all("service"), Fail(error)]
        if is_live:
            self.live = None
            self._move(Signal.LIVE_CLOSED)
            # The next attempt is due at once: pacing keeps the service's intervals. If it fails without an event, the
            # one after it backs off.
            self._due = now
        else:
            self._candidate = None
            self._move(Signal.CANDIDATE_CLOSED)
            self._due = now + self._pause_after(error, now)
        return []

    def _pause_after(self, error: EfoError | None, now: float) -> float:
        """Return the seconds until the next attempt, after a candidate that failed with this error."""
        if not isinstance(error, ResourceInUseError):
            self._in_use_since = None
            return self._backoff.next(error)
        if self._in_use_since is None:
            self._in_use_since = now
        if self.live is None and now - self._in_use_since < TAKE_OVER_AFTER:
            # The last success was up to 5 s ago, for example that of a process which was killed: the next call
            # succeeds some time within 5 s. A rejected call does not start them again (R6).
            return SHARD_INTERVAL
        # Someone else subscribes too, or the consumer is not ACTIVE.
        return max(TAKE_OVER_AFTER, self._backoff.next())

    def _subscribe(self) -> Subscribe:
        self._attempts += 1
        self._candidate = self._attempts
        return Subscribe(self._attempts, self.position, renewal=self.live is not None)

    def _cancel_all(self, reason: CancelReason) -> list[Action]:
        attempts = [attempt for attempt in (self.live, self._candidate) if attempt is not None]
        self.live = self._candidate = None
        return [Cancel(attempt, reason) for attempt in attempts]

    def _move(self, signal: Signal) -> None:
        self.state = TRANSITIONS[self.state, signal]


def last_before(position: Position) -> int:
    """Return the highest sequence number before this position, -1 if the position has none."""
    if position.sequence_number is None:
        return -1
    number = int(position.sequence_number)
    return number if position.type is PositionType.AFTER_SEQUENCE_NUMBER else number - 1
