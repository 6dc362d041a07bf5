"""Joins the failures of Kinesis, of the lease store and of a sink: one report when an outage begins, one when it ends.

An outage begins with the first failure that is tried again; a refusal that is final is none. It ends when everything
that has failed since works again. It is given up if what failed is no longer tried, and nothing shows that it works. In
between, thousands of retries of thousands of shards are only counted, and a report says when the cause changes. That of
puts ends when they have worked for some seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from efo.errors import (
    ExpiredIteratorError,
    LeaseStoreCorruptError,
    LeaseStoreFullError,
    LeaseStoreLockedError,
    LeaseStoreUnavailableError,
)
from efo.events import (
    ConnectionClosed,
    ConnectionOpened,
    Event,
    EventReceived,
    LeaseLost,
    LeaseStoreCalled,
    PollAttempted,
    PutRecordsCalled,
    ShardFinished,
    ShardsListed,
    ShardStopped,
    ShardSyncFailed,
    SinkRecovered,
    SinkRetried,
    StartDelayed,
    SubscribeAttempted,
    SubscriptionEnded,
)

System = Literal["kinesis", "lease_store", "sink", "cloudwatch"]
"""What can fail."""

NOT_TRIED_AFTER: Final = 60.0
"""Seconds without a further failure after which something is no longer tried: retries come every 30 s at least."""
ORDINARY_FOR: Final = 10.0
"""Seconds for which Kinesis may refuse a shard with ResourceInUse or throttle it: hand-offs and pacing take 5 s. For as
long, puts may be throttled: a producer adapts to others in that time."""
PUTS_QUIET: Final = 5.0
"""Seconds for which puts must work until their outage ends: a request of many may fail, again and again."""
HANGS_AFTER: Final = 5.0
"""A cancelled call of the lease store counts as a failure if it had no response for this many seconds."""
SAME_CAUSE_AFTER: Final = 600.0
"""Seconds after which a cause is reported again that an outage had before, so that two that alternate are few lines."""

PLANNED_ENDS: Final = {"expired", "renewed", "shard_end", "lease_lost", "shutdown", "idle", "seek", "throttled"}
"""Reasons for the end of a subscription that are no failure."""
_PUTTING: Final = "PutRecords"
_OF_LEASE_STORE: Final = {
    error.error_type for error in (LeaseStoreUnavailableError, LeaseStoreLockedError, LeaseStoreFullError)
}
_ORDINARY_REFUSALS: Final = {"ResourceInUseException", "throttled"}


@dataclass(frozen=True, slots=True)
class OutageBegan:
    """Something failed that worked until now. `shard_id`: of the first failure; empty if it was not of one shard."""

    system: System
    error_type: str
    detail: str = ""
    shard_id: str = ""


@dataclass(frozen=True, slots=True)
class OutageChanged:
    """An outage goes on for another reason. `before`: the `error_type` until now. `shard_id`: as in OutageBegan."""

    system: System
    error_type: str
    before: str
    detail: str = ""
    shard_id: str = ""


@dataclass(frozen=True, slots=True)
class OutageEnded:
    """Everything works again that failed. `error_type`: the last cause. `duration`: seconds.

    `failures`: how many there were. `dropped`: metrics that were lost, if it was an outage of CloudWatch.
    """

    system: System
    error_type: str
    duration: float
    failures: int
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class OutageGivenUp:
    """What failed is no longer tried here, and nothing has shown that it works. The fields are those of OutageEnded."""

    system: System
    error_type: str
    duration: float
    failures: int
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class Refused:
    """Something was refused for good, and is dropped: no outage. `dropped`: how many since the last such report."""

    system: System
    error_type: str
    detail: str
    dropped: int


OutageChange = OutageBegan | OutageChanged | OutageEnded | OutageGivenUp | Refused
"""What is reported of an outage, and of what is not tried again."""


@dataclass(frozen=True, slots=True)
class KnownOutage:
    """An outage, with its last cause. `seconds`: since it began. `failures`: until now. `is_over`: it has ended."""

    system: System
    error_type: str
    detail: str
    seconds: float
    failures: int
    is_over: bool = False


class Outage:
    """The failures of one system. `key`: what failed, such as a shard. `now`: monotonic seconds.

    `quiet`: seconds without a failure until it ends, where calls may fail and work in turn.
    """

    def __init__(self, system: System, *, quiet: float = 0.0) -> None:
        self._system: System = system
        self._quiet = quiet
        self._works_since: float | None = None
        self._failed_at = 0.0
        self._is_on = False
        self._failing: dict[str, float] = {}  # the time of the last failure
        self._cause = self._detail = ""
        self._reported_at: dict[str, float] = {}  # when each cause was reported
        self._works = False  # since the last failure, something that had failed has worked
        self._began_at = 0.0
        self._failures = 0
        self._swept_at = 0.0
        self._refused = 0  # since it was reported
        self._refusal_at = -SAME_CAUSE_AFTER

    @property
    def is_on(self) -> bool:
        """Whether an outage has begun and not ended."""
        return self._is_on

    def last(self, now: float) -> KnownOutage | None:
        """Return the last outage, which may not be over; None if there was none. May be called from any thread."""
        if not self._cause:
            return None
        seconds, is_over = now - self._began_at, not self._is_on
        return KnownOutage(self._system, self._cause, self._detail, seconds, self._failures, is_over)

    def failed(
        self, key: str, now: float, error_type: str, detail: str = "", shard_id: str = ""
    ) -> Iterator[OutageBegan | OutageChanged]:
        """Note a failure that is tried again; yield the beginning of an outage, or its change."""
        is_first, before = not self._is_on, self._cause
        self._is_on, self._works_since, self._failed_at = True, None, now
        self._failing[key] = now
        self._works = False
        self._failures += 1
        if is_first:
            self._began_at, self._failures, self._swept_at, self._reported_at = now, 1, now, {error_type: now}
        self._cause, self._detail = error_type, detail
        if is_first:
            yield OutageBegan(self._system, error_type, detail, shard_id)
        elif error_type != before and now - self._reported_at.get(error_type, -SAME_CAUSE_AFTER) >= SAME_CAUSE_AFTER:
            self._reported_at[error_type] = now
            yield OutageChanged(self._system, error_type, before, detail, shard_id)

    def succeeded(self, key: str, now: float) -> Iterator[OutageEnded]:
        """Note that something works; yield the end of the outage."""
        if not self._is_on:
            return
        self._works |= self._failing.pop(key, None) is not None
        if now - self._swept_at >= 1:  # not for each event of a busy shard
            self._swept_at = now
            self._failing = {key: at for key, at in self._failing.items() if now - at < NOT_TRIED_AFTER}
        if self._failing:
            return
        self._works_since = now if self._works_since is None else self._works_since
        if now - self._failed_at >= self._quiet:
            self._is_on = False
            yield OutageEnded(self._system, self._cause, self._works_since - self._began_at, self._failures)

    def refused(self, count: int, now: float, error_type: str, detail: str) -> Iterator[Refused]:
        """Note that so much was refused for good; yield it at first, and then every ten minutes."""
        self._refused += count
        if now - self._refusal_at >= SAME_CAUSE_AFTER:
            dropped, self._refused, self._refusal_at = self._refused, 0, now
            yield Refused(self._system, error_type, detail, dropped)

    def left(self, key: str, now: float) -> Iterator[OutageEnded | OutageGivenUp]:
        """Note that something is no longer tried; yield the end of the outage, or that it is given up."""
        if self._failing.pop(key, None) is not None and not self._failing:
            self._is_on = False
            end = OutageEnded if self._works else OutageGivenUp
            yield end(self._system, self._cause, now - self._began_at, self._failures)


class Outages:
    """Finds the outages of Kinesis, the lease store and the sink in diagnostic events. `clock`: monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kinesis = Outage("kinesis")
        self._puts = Outage("kinesis", quiet=PUTS_QUIET)
        self._lease_store = Outage("lease_store")
        self._sink = Outage("sink")
        self._refused_since: dict[str, float] = {}
        self._refused: set[str] = set()  # shards whose last subscribe failed: what they get is of an older subscription
        self._handlers: dict[type, Callable[[Any, float], Iterable[OutageChange]]] = {
            SubscribeAttempted: self._subscribed,
            PollAttempted: self._polled,
            SubscriptionEnded: self._subscription_ended,
            ShardSyncFailed: self._sync_failed,
            StartDelayed: self._delayed,
            ShardsListed: self._listed,
            ShardStopped: self._left,
            ShardFinished: self._left,
            LeaseStoreCalled: self._store_called,
            SinkRetried: self._sink_retried,
            SinkRecovered: self._sink_recovered,
            PutRecordsCalled: self._put,
        }

    def explains(self, event: Event) -> bool:
        """Return whether an outage, which is reported once, explains this event, which many shards may report."""
        match event:
            case LeaseLost(reason="store" | "expired") | ShardStopped(error_type=None):
                return self._lease_store.is_on
            case ConnectionOpened() | ConnectionClosed():
                return self._kinesis.is_on or self._puts.is_on
            case _:
                return False

    def observes(self, event_type: type) -> bool:
        """Whether an outage may begin or end with an event of this type."""
        return event_type is EventReceived or event_type in self._handlers

    def ongoing(self) -> list[KnownOutage]:
        """Return the outages that have not ended. May be called from any thread."""
        return [outage for outage in self.last() if not outage.is_over]

    def last(self) -> list[KnownOutage]:
        """Return the last outage of each system that had one. May be called from any thread."""
        now = self._clock()
        found = (outage.last(now) for outage in (self._kinesis, self._puts, self._lease_store, self._sink))
        return [outage for outage in found if outage is not None]

    def observe(self, event: Event) -> Iterable[OutageChange]:
        """Return what this event changes: an outage that begins, has another cause, ends or is given up."""
        if isinstance(event, EventReceived):  # the only frequent one that matters
            if not self._kinesis.is_on or event.shard_id in self._refused:
                return ()
            return self._kinesis.succeeded(event.shard_id, self._clock())
        handle = self._handlers.get(type(event))
        return () if handle is None else handle(event, self._clock())

    def _subscribed(self, event: SubscribeAttempted, now: float) -> Iterator[OutageChange]:
        if event.error_type is not None:
            self._refused.add(event.shard_id)
        yield from self._attempted(event, now)

    def _attempted(self, event: SubscribeAttempted | PollAttempted, now: float) -> Iterator[OutageChange]:
        shard = event.shard_id
        if event.error_type is None:  # it works with its first event
            self._refused_since.pop(shard, None)
            self._refused.discard(shard)
        elif not (event.is_final or self._is_ordinary(shard, event.error_type, now)):
            yield from self._kinesis.failed(shard, now, event.error_type, event.detail, shard)

    def _polled(self, event: PollAttempted, now: float) -> Iterator[OutageChange]:
        if event.error_type != ExpiredIteratorError.error_type:  # ordinary: the reader was busy for minutes
            yield from self._attempted(event, now)

    def _subscription_ended(self, event: SubscriptionEnded, now: float) -> Iterator[OutageChange]:
        if event.reason not in PLANNED_ENDS and not event.is_final:
            cause = event.error_type or event.reason
            yield from self._kinesis.failed(event.shard_id, now, cause, event.detail, event.shard_id)

    def _sync_failed(self, event: ShardSyncFailed, now: float) -> Iterator[OutageChange]:
        if event.error_type in _OF_LEASE_STORE:
            yield from self._lease_store.failed("list", now, event.error_type, event.detail)
        else:
            yield from self._kinesis.failed("", now, event.error_type, event.detail)

    def _delayed(self, event: StartDelayed, now: float) -> Iterator[OutageChange]:
        if event.call == "leases":
            yield from self._lease_store.failed("list", now, event.error_type, event.detail)
        else:
            yield from self._kinesis.failed("", now, event.error_type, event.detail)

    def _listed(self, _event: ShardsListed, now: float) -> Iterator[OutageChange]:
        yield from self._kinesis.succeeded("", now)

    def _left(self, event: ShardStopped | ShardFinished, now: float) -> Iterator[OutageChange]:
        self._refused_since.pop(event.shard_id, None)
        self._refused.discard(event.shard_id)
        yield from self._kinesis.left(event.shard_id, now)
        yield from self._sink.left(event.shard_id, now)

    def _store_called(self, event: LeaseStoreCalled, now: float) -> Iterator[OutageChange]:
        key = "list" if event.operation == "list" else "write"
        match event.error_type:
            case None | "lease_lost":  # a lost race is a response of a store that works
                if self._lease_store.is_on:
                    yield from self._lease_store.succeeded(key, now)
            case "cancelled" if event.duration < HANGS_AFTER:
                pass
            case LeaseStoreCorruptError.error_type:  # final: it ends the consumer
                pass
            case str() as error_type:
                yield from self._lease_store.failed(key, now, error_type, event.detail, event.shard_id)

    def _sink_retried(self, event: SinkRetried, now: float) -> Iterator[OutageChange]:
        yield from self._sink.failed(event.shard_id, now, event.error_type, event.detail, event.shard_id)

    def _sink_recovered(self, event: SinkRecovered, now: float) -> Iterator[OutageChange]:
        yield from self._sink.succeeded(event.shard_id, now)

    def _put(self, event: PutRecordsCalled, now: float) -> Iterator[OutageChange]:
        if event.error_type is None:
            self._refused_since.pop(_PUTTING, None)
            yield from self._puts.succeeded(_PUTTING, now)
        elif event.again and not self._is_ordinary(_PUTTING, event.error_type, now):
            yield from self._puts.failed(_PUTTING, now, event.error_type, event.detail)

    def _is_ordinary(self, shard: str, error_type: str, now: float) -> bool:
        """Return whether this refusal belongs to a hand-off or to pacing, so that the next call may succeed."""
        if error_type not in _ORDINARY_REFUSALS:
            return False
        return now - self._refused_since.setdefault(shard, now) < ORDINARY_FOR
