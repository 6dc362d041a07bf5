"""The log: one JSON object per line, for efo's events and for warnings of libraries."""

from __future__ import annotations

import logging
import sys
from typing import Any, Final, TextIO

import structlog

from efo.events import (
    AcksOverdue,
    AggregateDamaged,
    BatchDelivered,
    CheckpointSaved,
    ConnectionClosed,
    ConnectionOpened,
    ConsumerOpened,
    ConsumerReady,
    DeliveryBlocked,
    Event,
    EventReceived,
    HandlerFailed,
    HashRangeHoleFound,
    LeaseLost,
    LeasesCounted,
    LeaseStoreCalled,
    Observer,
    ParentCycleFound,
    RecordDeadLettered,
    RecordsFiltered,
    RecordSkipped,
    RecordsProcessed,
    ShardFinished,
    ShardGone,
    ShardIsolated,
    ShardPaused,
    ShardRepositioned,
    ShardResumed,
    ShardsCounted,
    ShardStarted,
    ShardStopped,
    ShardSyncFailed,
    StreamReset,
    SubscribeAttempted,
    SubscriptionEnded,
)
from efo.model import Checkpoint, Position

_CHAIN: Final = (
    structlog.contextvars.merge_contextvars,
    structlog.processors.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.format_exc_info,
)


def configure(level: str, output: TextIO | None = None) -> None:
    """Send log lines of `level` ("debug" to "error") and above to `output` (default: stdout).

    Libraries log from "warning" on, since efo's events cover the rest. Tracebacks are plain text without local
    variables, which could contain records or credentials. A line and its newline are one write: the workers of
    `efo run --workers N` share stdout, and must not mix their lines even if Python does not buffer.
    """
    output = output or sys.stdout
    renderer = structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[*_CHAIN, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(output),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(output)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processor=renderer, foreign_pre_chain=_CHAIN))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.captureWarnings(capture=True)


def log_events(level: str) -> Observer:
    """Return an observer that logs events: the lifecycle at "info", each batch at "debug".

    Events contain neither data nor partition keys, so neither can reach the log.
    """
    logger = structlog.get_logger()
    threshold = logging.getLevelNamesMapping()[level.upper()]

    def observe(event: Event) -> None:
        severity = severity_of(event)
        if severity >= threshold:
            logger.log(severity, _NAMES[type(event)], **_fields(event))

    return observe


_RACES: Final = {"take", "steal", "request_handoff", "withdraw", "release"}
"""Operations that may fail with lease_lost in normal operation, because workers compete for the same lease."""
_PLANNED_ENDS: Final = {"expired", "renewed", "shard_end", "lease_lost", "shutdown", "idle", "seek"}


def severity_of(event: Event) -> int:  # noqa: PLR0911 - a table
    """Return the log level of an event: DEBUG for frequent events, WARNING for those that an operator should see."""
    match event:
        case ShardStopped(error_type=str()) | ParentCycleFound():
            return logging.ERROR
        case LeaseStoreCalled(operation=operation, error_type="lease_lost") if operation in _RACES:
            return logging.DEBUG
        case (
            SubscribeAttempted(error_type=str())
            | LeaseStoreCalled(error_type=str())
            | AcksOverdue()
            | AggregateDamaged()
            | HandlerFailed()
            | RecordSkipped()
            | RecordDeadLettered()
            | ShardIsolated()
            | ShardGone()
            | ShardSyncFailed()
            | HashRangeHoleFound()
        ):
            return logging.WARNING
        case SubscriptionEnded(reason=reason) if reason not in _PLANNED_ENDS:
            return logging.WARNING
        case LeaseLost(reason=reason) if reason not in {"released", "handed_over"}:
            return logging.WARNING
        case (
            ConsumerReady() | ShardStarted() | ShardFinished() | ShardStopped() | LeaseLost()
            | ShardPaused() | ShardResumed() | ShardRepositioned() | ConnectionOpened() | ConnectionClosed()
        ):  # fmt: skip
            return logging.INFO
        case _:
            return logging.DEBUG


_NAMES: Final[dict[type, str]] = {
    ConsumerOpened: "consumer_opened",
    ConsumerReady: "consumer_ready",
    SubscribeAttempted: "subscribe_attempted",
    SubscriptionEnded: "subscription_ended",
    EventReceived: "event_received",
    DeliveryBlocked: "delivery_blocked",
    BatchDelivered: "batch_delivered",
    RecordsProcessed: "records_processed",
    AcksOverdue: "acks_overdue",
    HandlerFailed: "handler_failed",
    RecordSkipped: "record_skipped",
    RecordDeadLettered: "record_dead_lettered",
    AggregateDamaged: "aggregate_damaged",
    RecordsFiltered: "records_filtered",
    ShardStarted: "shard_started",
    ShardFinished: "shard_finished",
    ShardGone: "shard_gone",
    ShardSyncFailed: "shard_sync_failed",
    ParentCycleFound: "parent_cycle_found",
    HashRangeHoleFound: "hash_range_hole_found",
    ShardStopped: "shard_stopped",
    ShardIsolated: "shard_isolated",
    ShardPaused: "shard_paused",
    ShardResumed: "shard_resumed",
    ShardRepositioned: "shard_repositioned",
    ShardsCounted: "shards_counted",
    LeaseStoreCalled: "lease_store_called",
    LeaseLost: "lease_lost",
    LeasesCounted: "leases_counted",
    CheckpointSaved: "checkpoint_saved",
    ConnectionOpened: "connection_opened",
    ConnectionClosed: "connection_closed",
    StreamReset: "stream_reset",
}


def _fields(event: Event) -> dict[str, Any]:
    values = {name: getattr(event, name) for name in event.__struct_fields__ if name != "readings"}
    return {name: _plain(value) for name, value in values.items() if value is not None and value != ""}


def _plain(value: object) -> object:
    match value:
        case Checkpoint() | Position():
            return str(value)
        case float():
            return round(value, 6)
        case _:
            return value
