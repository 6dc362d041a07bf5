"""Writes diagnostic events to Python's standard logging: the default observer of an application."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any, Final

from efo.checks import printable
from efo.events import (
    AcksOverdue,
    AdviceGiven,
    AggregateDamaged,
    ConnectionClosed,
    ConsumerDeregistered,
    ConsumerFailed,
    ConsumerReady,
    DistributionChanged,
    Event,
    HandlerFailed,
    HashRangeHoleFound,
    LeaseLost,
    ParentCycleFound,
    ReadModeChanged,
    RecordDeadLettered,
    RecordsDropped,
    RecordsExpired,
    RecordsFiltered,
    RecordSkipped,
    RecordsNotDelivered,
    ShardFinished,
    ShardGone,
    ShardIsolated,
    ShardMapChanged,
    ShardPaused,
    ShardRepositioned,
    ShardResumed,
    ShardStarted,
    ShardStopped,
    StreamIsolated,
    StreamRestored,
    WorkerStarted,
)
from efo.identity import time_text
from efo.protocol.aggregation import AggregateMode
from efo.protocol.remedies import remedy
from efo.telemetry.filtering import Filtering
from efo.telemetry.outages import (
    OutageBegan,
    OutageChange,
    OutageChanged,
    OutageEnded,
    OutageGivenUp,
    Outages,
    Refused,
    System,
)

LOGGER: Final = "efo"

_BILLED: Final = (
    " (registered now): AWS bills it by the shard and hour until it is deregistered (efo consumers deregister), which"
    " efo does by itself only with ephemeral=True"
)
_PLANNED_LOSSES: Final = frozenset({"released", "handed_over"})
_SYSTEMS: Final[dict[System, str]] = {
    "kinesis": "Kinesis",
    "lease_store": "the lease store",
    "sink": "the sink",
    "cloudwatch": "CloudWatch",
}

Line = tuple[int, str]


class LoggingObserver:
    """An observer that writes events to a logger, by default `efo`. Each line names the worker.

    Warnings: polling in place of enhanced fan-out; records that were skipped, dead-lettered, dropped for their age or
    lost to retention, handlers that failed, damaged aggregates, lost leases, overdue acks, advice; and the beginning
    and the end of each outage of Kinesis or of the lease store; a stream whose record distribution strategy was changed
    under a producer that depends on it. Errors: what ended the consumer, isolated shards and streams, shards that
    stopped by a failure, and records that a producer gave up. Info: the life of shards and of the fan-out consumer.
    Other events are not logged. No line contains data or a partition key.

    `clock`: returns seconds, monotonic, for the duration of outages.
    """

    def __init__(self, logger: logging.Logger | None = None, *, clock: Callable[[], float] = monotonic) -> None:
        self._logger = logger or logging.getLogger(LOGGER)
        self._worker = ""
        self._outages = Outages(clock)
        self._filtering = Filtering(clock)

    def observes(self, event_type: type) -> bool:
        """Whether an event of this type may become a line (see `combine_observers`)."""
        return event_type is WorkerStarted or event_type in _LINES or self._outages.observes(event_type)

    def __call__(self, event: Event) -> None:
        """Log one event."""
        if isinstance(event, WorkerStarted):
            self._worker = f"worker {event.worker_id}: "
        for change in self._outages.observe(event):
            self._log(logging.WARNING, outage_text(change))
        is_first = self._filtering.observe(event)
        if describe := _LINES.get(type(event)):
            level, text = describe(event)
            if self._outages.explains(event) or (isinstance(event, RecordsFiltered | RecordsDropped) and not is_first):
                level = logging.DEBUG
            self._log(level, text)

    def _log(self, level: int, text: str) -> None:
        self._logger.log(level, "%s", printable(f"{self._worker}{text}"))


def log_outage(change: OutageChange) -> None:
    """Log to the logger `efo` that an outage begins, changes or ends."""
    logging.getLogger(LOGGER).warning("%s", outage_text(change))


def outage_text(change: OutageChange) -> str:
    """Return what a line of the log says of an outage."""
    system = _SYSTEMS[change.system]
    match change:
        case OutageBegan(error_type=error_type, detail=detail):
            why = f"{error_type}{_because(detail)}"
            return f"an outage of {system} began{_at(change)}: {why}; it is tried again until it works{_do(error_type)}"
        case OutageChanged(error_type=error_type, before=before, detail=detail):
            why = f"{error_type}{_because(detail)}"
            return (
                f"the outage of {system} by {before} goes on, for another reason{_at(change)}: {why}{_do(error_type)}"
            )
        case Refused(error_type=error_type, detail=detail):
            why = f"{error_type}{_because(detail)}"
            return f"{system} refused {change.dropped} metrics for good, which are dropped: {why}{_do(error_type)}"
        case OutageEnded() | OutageGivenUp():
            how = "ended" if isinstance(change, OutageEnded) else "is no longer tried here, and has not ended,"
            text = f"the outage of {system} by {change.error_type} {how} after {change.duration:.1f} s"
            more = f"; {change.dropped} metrics were dropped" if change.dropped else ""
            return f"{text} and {change.failures} failures{more}"


def _at(change: OutageBegan | OutageChanged) -> str:
    return f" at {change.shard_id}" if change.shard_id else ""


def _do(error_type: str) -> str:
    """Return the remedy as the end of a line; empty if there is none."""
    return f"; {text}" if (text := remedy(error_type)) else ""


def _consumer_failed(event: ConsumerFailed) -> Line:
    where = f" at {', called at '.join(reversed(event.places))}" if event.places else ""
    what = f"{event.error_type}{where}{_because(event.detail)}"
    return logging.ERROR, f"the consumer was ended by {what}; it reads nothing until it is opened again"


def _lease_lost(event: LeaseLost) -> Line:
    level = logging.INFO if event.reason in _PLANNED_LOSSES else logging.WARNING
    return level, f"{event.shard_id}: the lease is no longer held: {event.reason}"


def _shard_stopped(event: ShardStopped) -> Line:
    if event.error_type is None:
        return logging.INFO, f"{event.shard_id}: stopped"
    return logging.ERROR, (
        f"{event.shard_id}: stopped by {event.error_type}{_because(event.detail)}{_do(event.error_type)}"
    )


def _connection_closed(event: ConnectionClosed) -> Line:
    return logging.INFO, f"the connection to {event.address} was closed{_because(event.detail)}"


def _acks_overdue(event: AcksOverdue) -> Line:
    return logging.WARNING, (
        f"{event.shard_id}: {event.batches} batches ({event.records} records) are delivered and not acked, the oldest "
        f"for {event.oldest:.0f} s: the checkpoint does not move; ack each batch"
    )


def _handler_failed(event: HandlerFailed) -> Line:
    what = "the dead-letter sink" if event.call == "dead_letter" else "the handler"
    wait = f" in {event.delay:.1f} s" if event.action == "retry" else ""
    return logging.WARNING, (
        f"{event.shard_id}: {what} failed with {event.error_type} at sequence number {event.sequence_number} "
        f"({event.records} records, attempt {event.attempt}): {event.action}{wait}"
    )


def _records_filtered(event: RecordsFiltered) -> Line:
    what = f"{event.shard_id}: {event.records} user records of the aggregate {event.sequence_number} are filtered out"
    return logging.WARNING, f"{what}: {filtering_text(event.mode)}; reported once an hour for this shard"


def _records_dropped(event: RecordsDropped) -> Line:
    when = f"that arrived between {time_text(event.since)} and {time_text(event.until)}"
    if event.reason == "behind":
        return logging.WARNING, (
            f"{event.shard_id}: records {when} are skipped, {event.records} of them read: the shard was "
            f"{event.until - event.since:.0f} s behind, more than skip_when_behind_seconds"
        )
    return logging.WARNING, (
        f"{event.shard_id}: {event.records} records {when} are dropped, older than max_record_age_seconds; reported "
        "once an hour for this shard"
    )


def filtering_text(mode: AggregateMode) -> str:
    """Return why user records are filtered out, and what to do about it (rule R17)."""
    if mode is AggregateMode.DEDUPLICATE:
        return "the KPL puts them again after a reshard, so they are duplicates"
    return (
        f"their hash keys are outside the shard's range, and aggregates is {mode}: unless their producer puts them"
        " again, they are lost; deduplicate delivers them"
    )


def _put_aside(how: str, event: RecordSkipped | RecordDeadLettered) -> Line:
    record = f"{event.sequence_number}/{event.sub_sequence_number}"
    why = f"{event.error_type}{_because(event.detail)}"
    return logging.WARNING, f"{event.shard_id}: record {record} was {how}: {why}"


def _read_mode_changed(event: ReadModeChanged) -> Line:
    if event.mode == "fanout":
        return logging.INFO, "enhanced fan-out is possible again: the shards are subscribed to"
    if event.error_type is None:
        return logging.INFO, "the shards are polled"
    again = "" if event.retry_after is None else f"; fan-out is tried again in {event.retry_after:g} s"
    why = f"{event.error_type}{_because(event.detail)}"
    return logging.WARNING, f"enhanced fan-out is not possible, so the shards are polled{again}: {why}"


def _distribution_changed(event: DistributionChanged) -> Line:
    text = f"the stream's record distribution strategy is {event.strategy} now"
    if event.strategy != "AUTO":
        return logging.WARNING, f"{text}: a record without a partition key is refused"
    if not event.settings:
        return logging.INFO, f"{text}: records go to any shard"
    names = " and ".join(f"{name}=True" for name in event.settings)
    return logging.WARNING, (
        f"{text}: records go to any shard, so {names} cannot be kept until it is USER_PARTITION_KEY again; records are "
        "stored all the same"
    )


def _consumer_deregistered(event: ConsumerDeregistered) -> Line:
    if event.error_type is None:
        return logging.INFO, f"the fan-out consumer {event.name} is deregistered"
    return logging.WARNING, (
        f"the fan-out consumer {event.name} could not be deregistered, so it stays and is billed: {event.error_type}"
        f"{_because(event.detail)}; run efo consumers deregister {event.name}"
    )


def _because(detail: str) -> str:
    return f": {detail}" if detail else ""


_LINES: Final[dict[type, Callable[[Any], Line]]] = {
    ConsumerFailed: _consumer_failed,
    ConsumerReady: lambda e: (
        logging.INFO,
        f"the fan-out consumer {e.name} is ACTIVE{_BILLED if e.registered else ''}",
    ),
    ConsumerDeregistered: _consumer_deregistered,
    AdviceGiven: lambda e: (logging.WARNING if e.is_warning else logging.INFO, f"{e.what}; {e.remedy}"),
    ReadModeChanged: _read_mode_changed,
    AcksOverdue: _acks_overdue,
    HandlerFailed: _handler_failed,
    RecordSkipped: partial(_put_aside, "skipped"),
    RecordDeadLettered: partial(_put_aside, "dead-lettered"),
    AggregateDamaged: lambda e: (
        logging.WARNING,
        f"{e.shard_id}: record {e.sequence_number} is a damaged KPL aggregate, delivered unchanged: {e.problem}",
    ),
    RecordsDropped: _records_dropped,
    RecordsExpired: lambda e: (
        logging.WARNING,
        (
            f"{e.shard_id}: records that arrived between {time_text(e.since)} and {time_text(e.until)} expired before "
            f"they were read, if there were any: {e.seconds:.0f} s are gone; increase the stream's retention period"
        ),
    ),
    RecordsFiltered: _records_filtered,
    ShardStarted: lambda e: (logging.INFO, f"{e.shard_id}: started after {e.checkpoint}"),
    ShardFinished: lambda e: (
        logging.INFO,
        f"{e.shard_id}: finished; children: {', '.join(e.children) or 'none'}",
    ),
    ShardGone: lambda e: (
        logging.WARNING,
        f"{e.shard_id}: the shard no longer exists; records after {e.checkpoint} expired before they were read",
    ),
    ParentCycleFound: lambda e: (
        logging.ERROR,
        f"{', '.join(e.shard_ids)}: never read, since these leases are each other's parents: run efo leases delete",
    ),
    HashRangeHoleFound: lambda e: (logging.WARNING, f"no lease covers the hash keys {e.start} to {e.end}"),
    ShardStopped: _shard_stopped,
    ShardIsolated: lambda e: (
        logging.ERROR,
        f"{e.shard_id}: isolated for {e.cooldown:g} s by {e.error_type}{_because(e.detail)}{_do(e.error_type)}",
    ),
    StreamIsolated: lambda e: (
        logging.ERROR,
        f"{e.stream}: isolated for {e.cooldown:g} s by {e.error_type}{_because(e.detail)}{_do(e.error_type)}",
    ),
    StreamRestored: lambda e: (
        logging.WARNING,
        f"{e.stream}: read again, after {e.duration:.0f} s and {e.attempts} attempts that failed by {e.error_type}",
    ),
    ShardPaused: lambda e: (logging.INFO, f"{e.shard_id}: paused"),
    ShardResumed: lambda e: (logging.INFO, f"{e.shard_id}: resumed"),
    ShardRepositioned: lambda e: (logging.INFO, f"{e.shard_id}: continues at {e.to}"),
    RecordsNotDelivered: lambda e: (
        logging.ERROR,
        f"{e.records} records were not delivered: {e.error_type}{_because(e.detail)}",
    ),
    ShardMapChanged: lambda e: (
        logging.INFO,
        f"records go to {e.shards} open shards now; {e.repeated} are sent again, since they were in another one",
    ),
    DistributionChanged: _distribution_changed,
    LeaseLost: _lease_lost,
    ConnectionClosed: _connection_closed,
}
