"""The log: one JSON object per line, with the worker's id, for efo's events and for warnings of libraries."""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Literal, TextIO

import structlog
import trio
from opentelemetry._logs import Logger, LogRecord, SeverityNumber
from opentelemetry.trace import format_span_id, format_trace_id, get_current_span

from efo.events import (
    AcksOverdue,
    AdviceGiven,
    AggregateDamaged,
    BatchDelivered,
    CheckpointSaved,
    ConnectionClosed,
    ConnectionOpened,
    ConsumerDeregistered,
    ConsumerFailed,
    ConsumerOpened,
    ConsumerReady,
    DeliveryBlocked,
    DistributionChanged,
    Event,
    EventReceived,
    HandlerFailed,
    HashRangeHoleFound,
    LeaseLost,
    LeasesCounted,
    LeaseStoreCalled,
    Observer,
    ParentCycleFound,
    PollAttempted,
    ProducerOpened,
    PutRecordsCalled,
    ReadModeChanged,
    RecordDeadLettered,
    RecordsDelivered,
    RecordsDropped,
    RecordsExpired,
    RecordsFiltered,
    RecordSkipped,
    RecordsNotDelivered,
    RecordsProcessed,
    ShardFinished,
    ShardGone,
    ShardIsolated,
    ShardMapChanged,
    ShardPaused,
    ShardRepositioned,
    ShardResumed,
    ShardsCounted,
    ShardsListed,
    ShardStarted,
    ShardStopped,
    ShardSyncFailed,
    SinkRecovered,
    SinkRetried,
    StartDelayed,
    StreamIdentified,
    StreamIsolated,
    StreamReset,
    StreamRestored,
    SubscribeAttempted,
    SubscriptionEnded,
    WorkerStarted,
)
from efo.identity import time_text
from efo.model import Checkpoint, Position
from efo.protocol.remedies import remedy
from efo.telemetry.filtering import Filtering
from efo.telemetry.outages import OutageBegan, OutageChange, OutageChanged, OutageEnded, Outages, Refused
from efo.third_party_errors import traceback_of


class _Worker:
    """Adds the id of the worker of this process to each line, also to those of other threads and of libraries."""

    def __init__(self) -> None:
        self.id: str | None = None

    def __call__(self, _logger: object, _name: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        if self.id is not None:
            line.setdefault("worker_id", self.id)
        return line


def _add_trace(_logger: object, _name: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add the ids of the current span, if there is one (OpenTelemetry: Trace Context in non-OTLP Log Formats)."""
    span = get_current_span().get_span_context()
    if span.is_valid:
        line["trace_id"], line["span_id"] = format_trace_id(span.trace_id), format_span_id(span.span_id)
    return line


def _traceback(exc_info: tuple[type[BaseException], BaseException, TracebackType | None]) -> str:
    """Return a traceback without the texts of exceptions: they may quote records, headers or URLs."""
    return traceback_of(exc_info[1]).rstrip()


def _without_passwords(_logger: object, _name: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Hide the user and the password of each URL in a line of a library."""
    if "_record" in line:
        for name, value in line.items():
            if isinstance(value, str) and "@" in value:
                line[name] = _USER.sub("://...@", value)
    return line


_USER: Final = re.compile(r"://[^/\s]*@")
_FIRST: Final = ("timestamp", "level", "event", "worker_id", "stream")


def _in_order(_logger: object, _name: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Put what every line has first, so that people find when and what in the same place."""
    return {**{name: line[name] for name in _FIRST if name in line}, **line}


LevelName = Literal["debug", "info", "warning", "error"]


class _Level:
    """The least severe level that is logged by this process."""

    def __init__(self) -> None:
        self.number = logging.INFO


class _OtlpLog:
    """Passes each line on to a logger of OpenTelemetry, if there is one."""

    def __init__(self) -> None:
        self.logger: Logger | None = None

    def __call__(self, _logger: object, _name: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        record = line.get("_record")  # of a library's line
        is_of_exporter = isinstance(record, logging.LogRecord) and record.name.startswith("opentelemetry")
        if self.logger is not None and not is_of_exporter:  # a failed export must not be a reason for the next one
            self.logger.emit(_otlp_record(line))
        return line


def _otlp_record(line: Mapping[str, Any]) -> LogRecord:
    """Return a line as a record of OpenTelemetry. Its trace context is that of the current span."""
    fields = {name: value for name, value in line.items() if name not in _NOT_ATTRIBUTES and not name.startswith("_")}
    level = str(line.get("level", "info"))
    now = time.time_ns()
    return LogRecord(
        timestamp=now,
        observed_timestamp=now,
        severity_text=level,
        severity_number=_SEVERITIES.get(level, SeverityNumber.INFO),
        body=str(line.get("event", "")),
        attributes={name: value if isinstance(value, _PLAIN) else str(value) for name, value in fields.items()},
    )


_NOT_ATTRIBUTES: Final = {"event", "level", "timestamp", "worker_id", "trace_id", "span_id"}
"""Fields that have places of their own in a record, or in the resource."""
_PLAIN: Final = (str, bool, int, float)
_SEVERITIES: Final = {
    "debug": SeverityNumber.DEBUG,
    "info": SeverityNumber.INFO,
    "warning": SeverityNumber.WARN,
    "error": SeverityNumber.ERROR,
    "critical": SeverityNumber.FATAL,
}
_WORKER: Final = _Worker()
_LEVEL: Final = _Level()
_OTLP: Final = _OtlpLog()
_CHAIN: Final = (
    _WORKER,
    _add_trace,
    structlog.contextvars.merge_contextvars,
    structlog.processors.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.ExceptionRenderer(_traceback),
    _without_passwords,
    _OTLP,
)
_RENDERERS: Final = (_in_order, structlog.processors.JSONRenderer())


@contextmanager
def exporting(logger: Logger) -> Iterator[None]:
    """Pass each line of this process also on to a logger of OpenTelemetry, in this context."""
    _OTLP.logger = logger
    try:
        yield
    finally:
        _OTLP.logger = None


def name_worker(worker_id: str | None) -> None:
    """Set the worker id of all later lines of this process; None: it is not known yet."""
    _WORKER.id = worker_id


def configure(level: str, output: TextIO | None = None) -> None:
    """Send log lines of `level` ("debug" to "error") and above to `output` (default: stdout).

    Libraries log from "warning" on, since efo's events cover the rest. Tracebacks are plain text without local
    variables, which could contain records or credentials. A line and its newline are one write: the workers of
    `efo run --workers N` share stdout, and must not mix their lines even if Python does not buffer.
    """
    output = output or sys.stdout
    configure_lines(level, output)
    handler = logging.StreamHandler(output)
    meta = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processors=[meta, *_RENDERERS], foreign_pre_chain=_CHAIN))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.captureWarnings(capture=True)


def configure_lines(level: str, output: TextIO) -> None:
    """Send efo's own log lines to `output`, and leave the logging of libraries to the process that efo is a part of."""
    _LEVEL.number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[*_CHAIN, *_RENDERERS],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(output),
        cache_logger_on_first_use=False,
    )


def set_level(level: str) -> None:
    """Log from another level on, from the next line on. Nothing else changes."""
    number = logging.getLevelNamesMapping()[level.upper()]
    if number == _LEVEL.number:
        return
    _LEVEL.number = number
    structlog.configure(**{**structlog.get_config(), "wrapper_class": structlog.make_filtering_bound_logger(number)})
    structlog.get_logger().info("log_level_changed", to=level)


def log_outage(change: OutageChange) -> None:
    """Log that an outage begins, ends, or has another cause: one line each, however much fails in between."""
    fields: dict[str, Any] = {"error_type": change.error_type}
    if isinstance(change, OutageBegan | OutageChanged):
        what = "began" if isinstance(change, OutageBegan) else "changed"
        texts = {name: getattr(change, name, "") for name in ("before", "detail", "shard_id")}
        texts["remedy"] = remedy(change.error_type)
        fields |= {name: text for name, text in texts.items() if text}
    elif isinstance(change, Refused):
        structlog.get_logger().warning(
            f"{change.system}_refused", **fields, detail=change.detail, dropped=change.dropped
        )
        return
    else:
        what = "ended" if isinstance(change, OutageEnded) else "given_up"
        fields |= {"duration": round(change.duration, 3), "failures": change.failures}
        if change.dropped:
            fields["dropped"] = change.dropped
    structlog.get_logger().warning(f"{change.system}_outage_{what}", **fields)


def log_events(outages: Outages | None = None, filtering: Filtering | None = None) -> Observer:
    """Return an observer that logs events: the lifecycle at "info", each batch at "debug", and outages.

    Events contain neither data nor partition keys, so neither can reach the log. `outages`, `filtering`: what it finds
    in the events, for others who tell of it.
    """
    return _EventLog(outages or Outages(trio.current_time), filtering or Filtering(trio.current_time))


class _EventLog:
    def __init__(self, outages: Outages, filtering: Filtering) -> None:
        self._logger = structlog.get_logger()
        self._outages = outages
        self._filtering = filtering
        self._counted: dict[type, Event] = {}

    def __call__(self, event: Event) -> None:
        if type(event) in _OF_EACH_BATCH and (_LEVEL.number > logging.DEBUG or isinstance(event, BatchDelivered)):
            return
        for change in self._outages.observe(event):
            log_outage(change)
        is_first = self._filtering.observe(event)
        severity = severity_of(event)
        if severity > logging.DEBUG and self._outages.explains(event):
            severity = logging.DEBUG
        if isinstance(event, RecordsFiltered | RecordsDropped) and not is_first:
            severity = logging.DEBUG
        if isinstance(event, LeasesCounted | ShardsCounted) and self._is_known(event):
            return
        if severity >= _LEVEL.number:
            self._logger.log(severity, _NAMES[type(event)], **_fields(event))

    def _is_known(self, event: Event) -> bool:
        """Return whether the last event of this type said the same."""
        known, self._counted[type(event)] = self._counted.get(type(event)), event
        return known == event


_OF_EACH_BATCH: Final = (BatchDelivered, RecordsProcessed)
"""BatchDelivered has no line: that its event came, and that it was processed, are two."""


def severity_of(event: Event) -> int:
    """Return the log level of an event: DEBUG for frequent events, WARNING for those that an operator should see.

    Failed calls of Kinesis and of the lease store are DEBUG: the outage of which they are a part has its own lines. So
    is the failure of a consumer: the service tells it with its stream, or when it ends.
    """
    match event:
        case ShardStopped(error_type=str()) | ParentCycleFound() | RecordsNotDelivered():
            return logging.ERROR
        case (
            AcksOverdue()
            | AdviceGiven(is_warning=True)
            | AggregateDamaged()
            | HandlerFailed()
            | RecordSkipped()
            | RecordDeadLettered()
            | RecordsFiltered()
            | RecordsDropped()
            | RecordsExpired()
            | ShardIsolated()
            | StreamIsolated()
            | StreamRestored()
            | ShardGone()
            | HashRangeHoleFound()
        ):
            return logging.WARNING
        case ReadModeChanged(error_type=str()) | ConsumerDeregistered(error_type=str()) | DistributionChanged():
            return logging.WARNING
        case LeaseLost(reason=reason) if reason not in {"released", "handed_over"}:
            return logging.WARNING
        case (
            ConsumerReady() | ConsumerDeregistered() | ShardStarted() | ShardFinished() | ShardStopped() | LeaseLost()
            | ShardPaused() | ShardResumed() | ShardRepositioned() | ConnectionOpened() | ConnectionClosed()
            | ShardMapChanged() | ReadModeChanged() | AdviceGiven()
        ):  # fmt: skip
            return logging.INFO
        case _:
            return logging.DEBUG


_NAMES: Final[dict[type, str]] = {
    WorkerStarted: "worker_started",
    ConsumerOpened: "consumer_opened",
    ConsumerReady: "consumer_ready",
    ConsumerDeregistered: "consumer_deregistered",
    ConsumerFailed: "consumer_failed",
    AdviceGiven: "advice_given",
    SubscribeAttempted: "subscribe_attempted",
    SubscriptionEnded: "subscription_ended",
    EventReceived: "event_received",
    PollAttempted: "poll_attempted",
    ReadModeChanged: "read_mode_changed",
    DeliveryBlocked: "delivery_blocked",
    BatchDelivered: "batch_delivered",
    RecordsProcessed: "records_processed",
    AcksOverdue: "acks_overdue",
    HandlerFailed: "handler_failed",
    RecordSkipped: "record_skipped",
    RecordDeadLettered: "record_dead_lettered",
    AggregateDamaged: "aggregate_damaged",
    RecordsDropped: "records_dropped",
    RecordsExpired: "records_expired",
    RecordsFiltered: "records_filtered",
    SinkRetried: "sink_retried",
    SinkRecovered: "sink_recovered",
    ShardStarted: "shard_started",
    ShardFinished: "shard_finished",
    ShardGone: "shard_gone",
    ShardSyncFailed: "shard_sync_failed",
    StartDelayed: "start_delayed",
    ShardsListed: "shards_listed",
    StreamIdentified: "stream_identified",
    ParentCycleFound: "parent_cycle_found",
    HashRangeHoleFound: "hash_range_hole_found",
    ShardStopped: "shard_stopped",
    ShardIsolated: "shard_isolated",
    StreamIsolated: "stream_isolated",
    StreamRestored: "stream_restored",
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
    ProducerOpened: "producer_opened",
    PutRecordsCalled: "put_records_called",
    RecordsDelivered: "records_delivered",
    RecordsNotDelivered: "records_not_delivered",
    ShardMapChanged: "shard_map_changed",
    DistributionChanged: "distribution_changed",
}


def _fields(event: Event) -> dict[str, Any]:
    values = {name: getattr(event, name) for name in event.__struct_fields__ if name != "readings"}
    if isinstance(event, RecordsExpired | RecordsDropped):
        values |= {"since": time_text(event.since), "until": time_text(event.until)}
    return {name: _plain(value) for name, value in values.items() if value is not None and value != ""}


def _plain(value: object) -> object:
    match value:
        case Checkpoint() | Position():
            return str(value)
        case float():
            return round(value, 6)
        case _:
            return value
