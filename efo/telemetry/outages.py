"""Joins the failures of Kinesis, of the lease store and of a sink: one report when an outage begins, one when it ends.

An outage begins with the first failure. It ends when everything that has failed since works again, or is no longer
tried; that of puts when they have worked for some seconds. In between, thousands of retries of thousands of shards are
only counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from efo.errors import ExpiredIteratorError, LeaseStoreUnavailableError
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

PLANNED_ENDS: Final = {"expired", "renewed", "shard_end", "lease_lost", "shutdown", "idle", "seek", "throttled"}
"""Reasons for the end of a subscription that are no failure."""
_PUTTING: Final = "PutRecords"
_ORDINARY_REFUSALS: Final = {"ResourceInUseException", "throttled"}


@dataclass(frozen=True, slots=True)
class OutageBegan:
    """Something failed that worked until now. `shard_id`: of the first failure; empty if it was not of one shard."""

    system: System
    error_type: str
    detail: str = ""
    shard_id: str = ""


@dataclass(frozen=True, slots=True)
class OutageEnded:
    """Everything works again that failed. `error_type`: the cause, of the first failure. `duration`: seconds.

    `failures`: how many there were. `dropped`: metrics that were lost, if it was an outage of CloudWatch.
    """

    system: System
    error_type: str
    duration: float
    failures: int
    dropped: int = 0


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
        self._cause = ""
        self._began_at = 0.0
        self._failures = 0
        self._swept_at = 0.0

    @property
    def is_on(self) -> bool:
        """Whether an outage has begun and not ended."""
        return self._is_on

    def failed(
        self, key: str, now: float, error_type: str, detail: str = "", shard_id: str = ""
    ) -> Iterator[OutageBegan]:
        """Note a failure; yield the beginning of an outage."""
        is_first = not self._is_on
        self._is_on, self._works_since, self._failed_at = True, None, now
        self._failing[key] = now
        self._failures += 1
        if is_first:
            self._cause, self._began_at, self._failures, self._swept_at = error_type, now, 1, now
            yield OutageBegan(self._system, error_type, detail, shard_id)

    def succeeded(self, key: str, now: float) -> Iterator[OutageEnded]:
        """Note that something works, or is given up; yield the end of the outage."""
        if not self._is_on:
            return
        self._failing.pop(key, None)
        if now - self._swept_at >= 1:  # not for each event of a busy shard
            self._swept_at = now
            self._failing = {key: at for key, at in self._failing.items() if now - at < NOT_TRIED_AFTER}
        if self._failing:
            return
        self._works_since = now if self._works_since is None else self._works_since
        if now - self._failed_at >= self._quiet:
            self._is_on = False
            yield OutageEnded(self._system, self._cause, self._works_since - self._began_at, self._failures)


class Outages:
    """Finds the outages of Kinesis and of the lease store in diagnostic events. `clock`: monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kinesis = Outage("kinesis")
        self._puts = Outage("kinesis", quiet=PUTS_QUIET)
        self._lease_store = Outage("lease_store")
        self._refused_since: dict[str, float] = {}
        self._handlers: dict[type, Callable[[Any, float], Iterable[OutageBegan | OutageEnded]]] = {
            SubscribeAttempted: self._attempted,
            PollAttempted: self._polled,
            SubscriptionEnded: self._subscription_ended,
            ShardSyncFailed: self._sync_failed,
            ShardsListed: self._listed,
            ShardStopped: self._left,
            ShardFinished: self._left,
            LeaseStoreCalled: self._store_called,
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

    def observe(self, event: Event) -> Iterable[OutageBegan | OutageEnded]:
        """Return the outage that begins or ends with this event, if one does."""
        if isinstance(event, EventReceived):  # the only frequent one that matters
            return self._kinesis.succeeded(event.shard_id, self._clock()) if self._kinesis.is_on else ()
        handle = self._handlers.get(type(event))
        return () if handle is None else handle(event, self._clock())

    def _attempted(self, event: SubscribeAttempted | PollAttempted, now: float) -> Iterator[OutageBegan]:
        shard = event.shard_id
        if event.error_type is None:  # it works with its first event
            self._refused_since.pop(shard, None)
        elif not self._is_ordinary(shard, event.error_type, now):
            yield from self._kinesis.failed(shard, now, event.error_type, event.detail, shard)

    def _polled(self, event: PollAttempted, now: float) -> Iterator[OutageBegan]:
        if event.error_type != ExpiredIteratorError.error_type:  # ordinary: the reader was busy for minutes
            yield from self._attempted(event, now)

    def _subscription_ended(self, event: SubscriptionEnded, now: float) -> Iterator[OutageBegan]:
        if event.reason not in PLANNED_ENDS:
            yield from self._kinesis.failed(event.shard_id, now, event.reason, event.detail, event.shard_id)

    def _sync_failed(self, event: ShardSyncFailed, now: float) -> Iterator[OutageBegan]:
        if event.error_type == LeaseStoreUnavailableError.error_type:
            yield from self._lease_store.failed("list", now, event.error_type, event.detail)
        else:
            yield from self._kinesis.failed("", now, event.error_type, event.detail)

    def _listed(self, _event: ShardsListed, now: float) -> Iterator[OutageEnded]:
        yield from self._kinesis.succeeded("", now)

    def _left(self, event: ShardStopped | ShardFinished, now: float) -> Iterator[OutageEnded]:
        self._refused_since.pop(event.shard_id, None)
        yield from self._kinesis.succeeded(event.shard_id, now)

    def _store_called(self, event: LeaseStoreCalled, now: float) -> Iterator[OutageBegan | OutageEnded]:
        key = "list" if event.operation == "list" else "write"
        match event.error_type:
            case None | "lease_lost":  # a lost race is a response of a store that works
                if self._lease_store.is_on:
                    yield from self._lease_store.succeeded(key, now)
            case "cancelled" if event.duration < HANGS_AFTER:
                pass
            case str() as error_type:
                yield from self._lease_store.failed(key, now, error_type, shard_id=event.shard_id)

    def _put(self, event: PutRecordsCalled, now: float) -> Iterator[OutageBegan | OutageEnded]:
        if event.error_type is None:
            self._refused_since.pop(_PUTTING, None)
            yield from self._puts.succeeded(_PUTTING, now)
        elif not self._is_ordinary(_PUTTING, event.error_type, now):
            yield from self._puts.failed(_PUTTING, now, event.error_type, event.detail)

    def _is_ordinary(self, shard: str, error_type: str, now: float) -> bool:
        """Return whether this refusal belongs to a hand-off or to pacing, so that the next call may succeed."""
        if error_type not in _ORDINARY_REFUSALS:
            return False
        return now - self._refused_since.setdefault(shard, now) < ORDINARY_FOR
