"""The settings of a consumer, and the positions that they name."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final, Literal, get_args

from efo.arn import parse_consumer
from efo.checks import check_callable, check_count, check_number, check_tags, check_text, check_type, shown
from efo.errors import ConfigurationError
from efo.identity import time_text
from efo.model import Checkpoint, Lease, Position, PositionType, is_decimal
from efo.protocol.aggregation import AggregateMode
from efo.protocol.assignment.balance import balanced_assignment
from efo.protocol.assignment.view import Assignment
from efo.protocol.subscription import SubscriptionTiming
from efo.protocol.until import Until

STREAM_WINDOW: Final = 1024 * 1024
"""Bytes that the service may send on one stream before its reader takes them (the AWS SDKs' default)."""
MAX_STREAM_WINDOW: Final = 2**31 - 1
"""The maximum window of HTTP/2 (RFC 9113, section 6.9.1)."""
SUBSCRIBES_PER_SECOND: Final = 100.0
"""The subscribe budget of a worker. AWS limits the calls of each shard, and documents no limit for a consumer or an
account. The budget keeps a start with many shards from being a burst of requests."""
LEASE_CLEANUP_AFTER: Final = 600.0
"""Seconds after which the lease of a finished shard is deleted."""

PositionLike = Position | str | datetime
"""A Position, "TRIM_HORIZON", "LATEST", a time in ISO 8601 with its zone, or a datetime with its zone."""

ShardSelection = Collection[str] | Callable[[Lease], bool]
"""Which shards to read: their ids, or a function of the shard's lease (key, hash-key range, parents)."""

StartAt = Callable[[Lease], PositionLike | Checkpoint | None]
"""Returns where to start a shard that was never read; None: at the initial position."""

OnServiceError = Literal["stop", "isolate"]
"""What an error of the service that retries cannot cure (KMS, access denied) does: stop everything, or its shard."""

ReadMode = Literal["fanout", "polling", "auto"]
"""How shards are read: by enhanced fan-out, by GetRecords, or by fan-out while that is possible."""

MAX_POLL_INTERVAL: Final = 5.0
"""The longest `poll_interval`: an idle shard is known to be current as often as by fan-out."""

LATEST: Final = Position.latest()
"""After the newest record."""
TRIM_HORIZON: Final = Position.trim_horizon()
"""At the oldest record that the stream retains."""

CLOCK_ERROR: Final = 300.0
"""Seconds by which a time may be in the future and still means now: what the clocks of two hosts may differ by, as far
as AWS accepts a signature."""

_MAX_CONSUMER_NAME: Final = 128
CONSUMER_NAME: Final = re.compile(r"[a-zA-Z0-9_.-]{1,128}")
"""The name of a fan-out consumer (AWS: RegisterStreamConsumer, ConsumerName)."""
_OF_A_NAME: Final = "1 to 128 letters of ASCII, digits, '_', '.' or '-'"

_INITIAL: Final = {
    PositionType.TRIM_HORIZON: Checkpoint.TRIM_HORIZON,
    PositionType.LATEST: Checkpoint.LATEST,
    PositionType.AT_TIMESTAMP: Checkpoint.AT_TIMESTAMP,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """How a consumer reads its stream. Times are in seconds, sizes in bytes.

    Where to start:
    `initial_position`: where shards start that were never read: TRIM_HORIZON (default), LATEST or a time. Children
    found at the end of a shard always start at TRIM_HORIZON (rule R1). A time must not be in the future. Shards that
    ended up to 5 s before it are taken along, since clocks differ, and their children are then read whole.
    `start_at`: overrides the initial position of single shards.
    `shards`: the shards that this worker reads; None: all.

    How to read:
    `read_mode`: "fanout" (default): by enhanced fan-out. "polling": by GetRecords, without a fan-out consumer; all
    applications that poll share 2 MiB/s and five calls per second of each shard. "auto": by fan-out, and by polling
    while the stream has as many consumers as it may, or SubscribeToShard is denied.
    `poll_interval`: the most seconds between two calls of GetRecords for a shard that is current, 5 at most. A shard
    that is behind is read as fast as AWS allows.
    `fanout_retry_interval`: with "auto", how long shards are polled until fan-out is tried again, by one shard.

    Limits of age, in seconds or as a timedelta; None: no limit. What they drop is reported as RecordsDropped.
    `max_record_age`: a record that arrived longer ago, when it is its turn to be delivered, is dropped. If `on_error`
    of the handler or processor dead-letters RecordTooOldError, it is stored there instead.
    `skip_when_behind`: a shard that is further behind its tip goes on there: what is between is not read.

    Subscriptions:
    `consumer_name`: the fan-out consumer's name; it is registered if it does not exist. None: the application's name.
    `consumer_arn`: a fan-out consumer that somebody else registers, as in another account; it is never registered here.
    `ephemeral`: for scripts, notebooks and tests: this worker registers a fan-out consumer of its own, whose name ends
    with a part for its worker id, and deregisters it at the end, by Ctrl-C too. After a crash it stays, and is billed,
    until the worker runs again. Leases and checkpoints stay in any case.
    `consumer_tags`: tags that the fan-out consumer gets when it is registered here; one that exists keeps its own.
    `subscribes_per_second`: the subscribe budget of this worker (rule R6).
    `stream_window`: how much may arrive for a shard before its reader takes it (rule R9).
    `unsubscribe_idle_after`: a subscription whose reader takes nothing for this long is closed. It is opened again
    when the reader continues (rule R9).
    `timing`: renewal and liveness of subscriptions (rules R7, R8).
    `aggregates`: what to do with user records of an aggregate whose hash key is outside the shard's range (rule R17).

    Progress and leases:
    `checkpoint_interval`: how often progress is saved; without records, every few minutes only.
    `failover_time`: other workers take a lease that was not renewed for this long (rule R10).
    `graceful_handoff`: ask the holder for a lease, so that it finishes and checkpoints first. `handoff_timeout`: take
    the lease by force if the holder has not released it within this and the fail-over time.
    `max_leases`: the maximum number of leases of this worker; None: no limit. `max_leases_per_scan`: the maximum number
    that it takes or asks for in one lease scan; its own leases from before a restart do not count. None: no limit.
    `assignment`: the strategy that decides which leases it takes, the same for all workers of the application: see
    `Assignment`, `weighted_assignment`, `zone_assignment`, `manual_assignment`.
    `lease_scan_interval`: how often the lease table is read, which is when a released lease is found. None: a twentieth
    of the fail-over time, less often with many workers. It may be longer where scans cost money (DynamoDB); leases of a
    crashed worker are then taken up to this much later.
    `balance_by_throughput`: balance the shards' throughput between workers, not their number.
    `shard_sync_interval`: how often ListShards looks for shards that no parent has announced. Each time it is up to a
    quarter sooner, at random, so that workers that started together do not call it together.
    `lease_cleanup_after`: delete the lease of a finished shard this long after this worker first saw that nothing
    depends on it. Must be more than twice as long as ListShards may lag. None: never.
    `shard_cooldown`: this worker does not read a shard that it isolated for this long (rule R11).

    Raises ConfigurationError.
    """

    initial_position: PositionLike = TRIM_HORIZON
    start_at: StartAt | None = None
    shards: ShardSelection | None = None
    read_mode: ReadMode = "fanout"
    poll_interval: float = 1.0
    fanout_retry_interval: float = 300.0
    max_record_age: float | timedelta | None = None
    skip_when_behind: float | timedelta | None = None
    consumer_name: str | None = None
    consumer_arn: str | None = None
    consumer_tags: Mapping[str, str] = field(default_factory=dict, hash=False)
    ephemeral: bool = False
    subscribes_per_second: float = SUBSCRIBES_PER_SECOND
    stream_window: int = STREAM_WINDOW
    unsubscribe_idle_after: float = 60.0
    timing: SubscriptionTiming = field(default_factory=SubscriptionTiming)
    aggregates: AggregateMode = AggregateMode.DEDUPLICATE
    checkpoint_interval: float = 5.0
    failover_time: float = 10.0
    graceful_handoff: bool = True
    handoff_timeout: float = 30.0
    max_leases: int | None = None
    max_leases_per_scan: int | None = None
    assignment: Assignment = balanced_assignment
    lease_scan_interval: float | None = None
    balance_by_throughput: bool = False
    shard_sync_interval: float = 60.0
    lease_cleanup_after: float | None = LEASE_CLEANUP_AFTER
    shard_cooldown: float = 60.0

    def __post_init__(self) -> None:
        position = parse_position(self.initial_position, "initial_position")
        if position.type not in _INITIAL:
            raise ConfigurationError(f"initial_position {position}: expected TRIM_HORIZON, LATEST or a time")
        object.__setattr__(self, "initial_position", position)
        if self.start_at is not None:
            check_callable("start_at", self.start_at, "a function of a lease, or None", "lease")
        self._check_shards()
        for name in _NUMBERS:
            value = getattr(self, name)
            if value is not None or name not in _MAY_BE_NONE:
                check_number(name, value, zero=name in _MAY_BE_ZERO, unit=_MAY_BE_NONE.get(name, ""))
        for name in ("max_record_age", "skip_when_behind"):
            object.__setattr__(self, name, _checked_duration(name, getattr(self, name)))
        for name in ("graceful_handoff", "balance_by_throughput", "ephemeral"):
            check_type(name, getattr(self, name), bool, "True or False")
        self._check_read_mode()
        self._check_consumer()
        for name in ("max_leases", "max_leases_per_scan"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name), unit=", or None")
        check_callable("assignment", self.assignment, "an assignment strategy, a function of an AssignmentView", "view")
        check_count("stream_window", self.stream_window, maximum=MAX_STREAM_WINDOW, unit=" bytes")
        check_type("timing", self.timing, SubscriptionTiming, "a SubscriptionTiming")
        if str(self.aggregates) not in {*AggregateMode}:
            raise ConfigurationError(f"aggregates={shown(self.aggregates)}: expected one of {', '.join(AggregateMode)}")
        object.__setattr__(self, "aggregates", AggregateMode(self.aggregates))

    def _check_read_mode(self) -> None:
        if self.read_mode not in get_args(ReadMode):
            raise ConfigurationError(f"read_mode={shown(self.read_mode)}: expected 'fanout', 'polling' or 'auto'")
        if self.poll_interval > MAX_POLL_INTERVAL:
            raise ConfigurationError(
                f"poll_interval={self.poll_interval!r}: expected at most {MAX_POLL_INTERVAL:g} seconds"
            )
        if self.read_mode == "polling" and self.consumer_arn is not None:
            raise ConfigurationError(
                "consumer_arn has no effect with read_mode='polling', which needs no fan-out consumer: remove it"
            )
        if self.read_mode == "polling" and self.consumer_tags:
            raise ConfigurationError(
                "consumer_tags has no effect with read_mode='polling', which registers no fan-out consumer: remove it"
            )

    def _check_consumer(self) -> None:
        if self.ephemeral and (self.read_mode == "polling" or self.consumer_arn is not None):
            why = "read_mode='polling', which registers no fan-out consumer"
            if self.consumer_arn is not None:
                why = "consumer_arn, whose consumer belongs to its owner"
            raise ConfigurationError(f"ephemeral has no effect with {why}: remove it")
        if self.consumer_name is not None:
            check_text("consumer_name", self.consumer_name, "the name of a fan-out consumer, or None")
            if not CONSUMER_NAME.fullmatch(self.consumer_name):
                raise ConfigurationError(f"consumer_name={shown(self.consumer_name)}: expected {_OF_A_NAME}")
        if self.consumer_arn is not None:
            _, name = parse_consumer(self.consumer_arn)
            if self.consumer_name not in (None, name):
                raise ConfigurationError(
                    f"consumer_name {self.consumer_name!r} is not that of consumer_arn: remove it, or write {name!r}"
                )
        check_tags("consumer_tags", self.consumer_tags)
        if self.consumer_tags and self.consumer_arn is not None:
            raise ConfigurationError(
                "consumer_tags has no effect with consumer_arn, whose consumer is registered by its owner: remove it"
            )

    def _check_shards(self) -> None:
        shards: object = self.shards
        if shards is None:
            return
        expected = "a collection of ids, such as ['shardId-000000000000'], or a function of a lease"
        if callable(shards):
            check_callable("shards", shards, expected, "lease")
            return
        if (
            isinstance(shards, str | bytes)
            or not isinstance(shards, Collection)
            or not shards
            or not all(isinstance(shard, str) for shard in shards)
        ):
            raise ConfigurationError(f"shards={shown(shards)}: expected {expected}")

    @property
    def start_position(self) -> Position:
        """`initial_position` as a Position."""
        return parse_position(self.initial_position, "initial_position")

    @property
    def initial_checkpoint(self) -> Checkpoint:
        """The sentinel of `initial_position`, for the leases of shards that were never read."""
        return _INITIAL[self.start_position.type]

    def selects(self, lease: Lease) -> bool:
        """Return whether this worker reads the shard of this lease."""
        if self.shards is None:
            return True
        return self.shards(lease) if callable(self.shards) else lease.key in self.shards


_MAY_BE_NONE: Final = {"lease_scan_interval": ", or None", "lease_cleanup_after": ", or None"}
_MAY_BE_ZERO: Final = {"handoff_timeout", "shard_cooldown"}
_NUMBERS: Final = (
    "poll_interval", "fanout_retry_interval", "subscribes_per_second", "unsubscribe_idle_after", "checkpoint_interval",
    "failover_time", "lease_scan_interval", "shard_sync_interval", "lease_cleanup_after", "handoff_timeout",
    "shard_cooldown",
)  # fmt: skip


def settings_from(settings: ConsumerSettings | None, initial_position: PositionLike | None) -> ConsumerSettings:
    """Return the settings that these arguments mean. Raises ConfigurationError."""
    settings = ConsumerSettings() if settings is None else settings
    check_type("settings", settings, ConsumerSettings, "a ConsumerSettings, or None")
    return settings if initial_position is None else replace(settings, initial_position=initial_position)


def _checked_duration(name: str, value: float | timedelta | None) -> float | None:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if seconds is not None:
        check_number(name, seconds, unit=" seconds, a timedelta, or None")
    return seconds


def seconds_of(duration: float | timedelta | None) -> float | None:
    """Return a duration in seconds; None if it is None."""
    return duration.total_seconds() if isinstance(duration, timedelta) else duration


def check_application(application: object, settings: ConsumerSettings) -> None:
    """Check the name of an application, which is that of its fan-out consumer too. Raises ConfigurationError."""
    check_text("application", application, "a name for the group of workers that share the shards")
    is_name = settings.consumer_name is None and settings.consumer_arn is None and settings.read_mode != "polling"
    if is_name and not CONSUMER_NAME.fullmatch(str(application)):
        raise ConfigurationError(
            f"application={shown(application)}: its fan-out consumer would have this name, which AWS refuses: expected"
            f" {_OF_A_NAME}; or name the consumer by ConsumerSettings(consumer_name=...)"
        )


def consumer_name_of(application: str, worker_id: str, settings: ConsumerSettings) -> str:
    """Return the name of a worker's fan-out consumer; an ephemeral one is of this worker alone."""
    name = settings.consumer_name or application
    if not settings.ephemeral:
        return name
    part = sha256(worker_id.encode()).hexdigest()[:8]
    return f"{name[: _MAX_CONSUMER_NAME - len(part) - 1]}-{part}"


def parse_position(value: PositionLike, name: str) -> Position:
    """Return a Position for a value that names one. `name`: the argument, for the error. Raises ConfigurationError."""
    match value:
        case Position():
            _check_position(value, name)
            return value
        case datetime():
            return _at(value, name)
        case str() if value.upper() in ("TRIM_HORIZON", "LATEST"):
            return TRIM_HORIZON if value.upper() == "TRIM_HORIZON" else LATEST
        case str():
            try:
                return _at(datetime.fromisoformat(value), name)
            except ValueError:
                pass
    raise ConfigurationError(
        f"{name}={shown(value)}: expected efo.TRIM_HORIZON, efo.LATEST, another efo.Position, or a time such as "
        "'2026-01-31T12:00:00Z'"
    )


UntilLike = datetime | str
"""Where a consumer ends by itself: `now`, or a time as a datetime with a zone or a text in ISO format."""


def parse_until(value: UntilLike | None) -> Until | None:
    """Return where a consumer is to end. Raises ConfigurationError."""
    if value is None or value == "now":
        return value if value is None else "now"
    try:
        time = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        time = None
    if not isinstance(time, datetime):
        raise ConfigurationError(f"until={shown(value)}: expected 'now', or a time such as '2026-01-31T12:00:00Z'")
    return _at(time, "until").timestamp


def check_ending(until: UntilLike | None, timeout: float | None) -> Until | None:
    """Return where a consumer is to end. Raises ConfigurationError, also for a wrong `timeout`."""
    if timeout is not None:
        check_number("timeout", timeout, zero=True, unit=" seconds, or None")
    return parse_until(until)


def pinned(position: Position, now: float, name: str) -> Position:
    """Return the position as a place that later records do not move: LATEST becomes the time `now`.

    A time in the future is `now` too, if the clocks of two hosts may differ by that much: Kinesis refuses times in its
    future. `now`: by the service's clock, seconds since the epoch. Raises ConfigurationError for a later time.
    """
    if position.type is PositionType.LATEST:
        return Position.at_timestamp(now)
    if position.timestamp is None or position.timestamp <= now:
        return position
    refuse_future(position.timestamp, now, name)
    return Position.at_timestamp(now)


def refuse_future(timestamp: float, now: float, name: str) -> None:
    """Raise ConfigurationError if a time is so far in the future that no error of a clock explains it."""
    if timestamp > now + CLOCK_ERROR:
        raise ConfigurationError(
            f"{name}: {time_text(timestamp)} is in the future, and it is {time_text(now)} now: no record can have that "
            "time yet; write LATEST to begin with the next record, or a time that is over"
        )


def _check_position(position: Position, name: str) -> None:
    match position:
        case Position(
            type=PositionType.AT_SEQUENCE_NUMBER | PositionType.AFTER_SEQUENCE_NUMBER, sequence_number=number
        ):
            if not isinstance(number, str) or not is_decimal(number):
                raise ConfigurationError(f"{name}: sequence_number={shown(number)}: expected a text of decimal digits")
        case Position(type=PositionType.AT_TIMESTAMP, timestamp=timestamp):
            check_number(f"{name}: timestamp", timestamp, zero=True, unit=" seconds since the epoch")
        case Position(type=kind) if kind not in (PositionType.TRIM_HORIZON, PositionType.LATEST):
            raise ConfigurationError(f"{name}: type={shown(kind)}: expected a PositionType")


def _at(time: datetime, name: str) -> Position:
    if time.tzinfo is None:
        raise ConfigurationError(f"{name}={time.isoformat()!r}: the time has no zone; append 'Z' for UTC")
    position = Position.at_timestamp(time.timestamp())
    _check_position(position, name)
    return position
