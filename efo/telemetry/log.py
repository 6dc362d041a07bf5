"""Writes diagnostic events to Python's standard logging: the default observer of an application."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import Any, Final

from efo.checks import printable
from efo.events import (
    AcksOverdue,
    AggregateDamaged,
    ConnectionClosed,
    ConsumerReady,
    Event,
    HandlerFailed,
    HashRangeHoleFound,
    LeaseLost,
    ParentCycleFound,
    ReadModeChanged,
    RecordDeadLettered,
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
    WorkerStarted,
)
from efo.telemetry.outages import OutageBegan, OutageEnded, Outages, System

LOGGER: Final = "efo"

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

    Warnings: polling in place of enhanced fan-out; records that were skipped, dead-lettered or lost to retention,
    handlers that failed, damaged aggregates, lost leases, overdue acks; and the beginning and the end of each outage
    of Kinesis or of the lease store. Errors: isolated shards and streams, shards that stopped by a failure, and
    records that a producer gave up. Info: the life of shards and of the fan-out consumer. Other events are not
    logged. No line contains data or a partition key.

    `clock`: returns seconds, monotonic, for the duration of outages.
    """

    def __init__(self, logger: logging.Logger | None = None, *, clock: Callable[[], float] = monotonic) -> None:
        self._logger = logger or logging.getLogger(LOGGER)
        self._worker = ""
        self._outages = Outages(clock)

    def observes(self, event_type: type) -> bool:
        """Whether an event of this type may become a line (see `combine_observers`)."""
        return event_type is WorkerStarted or event_type in _LINES or self._outages.observes(event_type)

    def __call__(self, event: Event) -> None:
        """Log one event."""
        if isinstance(event, WorkerStarted):
            self._worker = f"worker {event.worker_id}: "
        for change in self._outages.observe(event):
            self._log(logging.WARNING, _outage_text(change))
        if describe := _LINES.get(type(event)):
            level, text = describe(event)
            self._log(logging.DEBUG if self._outages.explains(event) else level, text)

    def _log(self, level: int, text: str) -> None:
        self._logger.log(level, "%s", printable(f"{self._worker}{text}"))


def log_outage(change: OutageBegan | OutageEnded) -> None:
    """Log to the logger `efo` that an outage begins or ends."""
    logging.getLogger(LOGGER).warning("%s", _outage_text(change))


def _outage_text(change: OutageBegan | OutageEnded) -> str:
    if isinstance(change, OutageBegan):
        where = f" at {change.shard_id}" if change.shard_id else ""
        text = f"an outage of {_SYSTEMS[change.system]} began{where}: {change.error_type}"
        return f"{text}{_because(change.detail)}; it is tried again until it works"
    text = f"the outage of {_SYSTEMS[change.system]} by {change.error_type} ended after"
    dropped = f"; {change.dropped} metrics were dropped" if change.dropped else ""
    return f"{text} {change.duration:.1f} s and {change.failures} failures{dropped}"


def _lease_lost(event: LeaseLost) -> Line:
    level = logging.INFO if event.reason in _PLANNED_LOSSES else logging.WARNING
    return level, f"{event.shard_id}: the lease is no longer held: {event.reason}"


def _shard_stopped(event: ShardStopped) -> Line:
    if event.error_type is None:
        return logging.INFO, f"{event.shard_id}: stopped"
    return logging.ERROR, f"{event.shard_id}: stopped by {event.error_type}{_because(event.detail)}"


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


def _read_mode_changed(event: ReadModeChanged) -> Line:
    if event.mode == "fanout":
        return logging.INFO, "enhanced fan-out is possible again: the shards are subscribed to"
    if event.error_type is None:
        return logging.INFO, "the shards are polled"
    again = "" if event.retry_after is None else f"; fan-out is tried again in {event.retry_after:g} s"
    why = f"{event.error_type}{_because(event.detail)}"
    return logging.WARNING, f"enhanced fan-out is not possible, so the shards are polled{again}: {why}"


def _because(detail: str) -> str:
    return f": {detail}" if detail else ""


_LINES: Final[dict[type, Callable[[Any], Line]]] = {
    ConsumerReady: lambda e: (
        logging.INFO,
        f"the fan-out consumer {e.name} is ACTIVE{' (registered now)' if e.registered else ''}",
    ),
    ReadModeChanged: _read_mode_changed,
    AcksOverdue: _acks_overdue,
    HandlerFailed: _handler_failed,
    RecordSkipped: lambda e: (
        logging.WARNING,
        f"{e.shard_id}: record {e.sequence_number}/{e.sub_sequence_number} was skipped: {e.error_type}",
    ),
    RecordDeadLettered: lambda e: (
        logging.WARNING,
        f"{e.shard_id}: record {e.sequence_number}/{e.sub_sequence_number} was dead-lettered: {e.error_type}",
    ),
    AggregateDamaged: lambda e: (
        logging.WARNING,
        f"{e.shard_id}: record {e.sequence_number} is a damaged KPL aggregate, delivered unchanged: {e.problem}",
    ),
    RecordsFiltered: lambda e: (
        logging.DEBUG,
        f"{e.shard_id}: {e.records} records of the aggregate {e.sequence_number} belong to another shard",
    ),
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
        f"{e.shard_id}: isolated for {e.cooldown:g} s by {e.error_type}{_because(e.detail)}",
    ),
    StreamIsolated: lambda e: (
        logging.ERROR,
        f"{e.stream}: isolated for {e.cooldown:g} s by {e.error_type}{_because(e.detail)}",
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
    LeaseLost: _lease_lost,
    ConnectionClosed: _connection_closed,
}
