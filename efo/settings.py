"""The settings of a consumer, and the positions that they name."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from typing import Final, Literal, get_args

from efo.arn import parse_consumer
from efo.checks import check_callable, check_number, check_tags, check_text, check_type, shown
from efo.definitions import check_settings, documented, setting
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
FAILOVER_SECONDS: Final = 10.0
"""The fail-over time, where nothing else is set."""

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

MAX_POLL_SECONDS: Final = 5.0
"""The longest `poll_seconds`: an idle shard is known to be current as often as by fan-out."""

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


@documented
@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """How a consumer reads its stream. Times are in seconds, sizes in bytes.

    A setting of the same name in the service's file means the same. Raises ConfigurationError.
    """

    initial_position: PositionLike = setting(
        "trim_horizon",
        "Where shards start that were never read: trim_horizon, latest or a time like 2026-01-31T12:00:00Z, which must"
        " not be in the future. Children found at the end of a shard always start at trim_horizon (R1).",
    )
    start_at: StartAt | None = setting(None, "Function that overrides the initial position of single shards.")
    shards: ShardSelection | None = setting(None, "The shards that this worker reads. Default: all.")
    read_mode: ReadMode = setting(
        "fanout",
        "How shards are read: fanout (enhanced fan-out), polling (GetRecords, whose limits all applications share), or"
        " auto (fan-out, and polling while the stream has all consumers that it may, or fan-out is denied).",
        choices=get_args(ReadMode),
    )
    poll_seconds: float = setting(
        1.0,
        "Most time between two GetRecords calls for a shard that is current. One that lags is read faster.",
        above=0,
        most=MAX_POLL_SECONDS,
    )
    max_record_age_seconds: float | None = setting(
        None,
        "Drop a record that arrived longer ago than this when it is its turn, and report it. Default: never.",
        above=0,
        example=86400.0,
    )
    skip_when_behind_seconds: float | None = setting(
        None,
        "Go on at the tip of a shard that is further behind it than this: what is between is not read, and is reported."
        " Default: never.",
        above=0,
        example=3600.0,
    )
    consumer_name: str | None = setting(
        None,
        "Name of the fan-out consumer, registered if it does not exist. Default: the application's name.",
        example="efo",
    )
    consumer_arn: str | None = setting(
        None,
        "ARN of a fan-out consumer that somebody else registers, as in another account, instead of a name.",
        example="arn:aws:kinesis:eu-west-1:123456789012:stream/orders/consumer/efo:1700000000",
    )
    consumer_tags: Mapping[str, str] = setting(
        {}, "Tags that the fan-out consumer gets when efo registers it. One that exists keeps its own."
    )
    ephemeral: bool = setting(
        False,
        "For scripts, notebooks and tests: register a fan-out consumer of this worker alone, and deregister it at the"
        " end, by Ctrl-C too. After a crash it stays, and is billed, until the worker runs again.",
    )
    subscribes_per_second: float = setting(
        100.0,
        "Maximum number of SubscribeToShard calls per second by this worker (R6). AWS limits the calls of each shard"
        " alone; this keeps a start with many shards from being a burst.",
        above=0,
    )
    stream_window: int = setting(
        STREAM_WINDOW,
        "HTTP/2 stream window of each shard: how many bytes may arrive before they are taken (R9).",
        least=16_384,
        most=2**31 - 1,  # RFC 9113, sections 4.2 and 6.9.1
    )
    unsubscribe_idle_seconds: float = setting(
        60.0,
        "A subscription ends if nothing is taken from it for this long. It resumes on demand (R9).",
        above=0,
    )
    timing: SubscriptionTiming = setting(SubscriptionTiming(), "Renewal and liveness of subscriptions (R7, R8).")
    aggregates: AggregateMode = setting(
        AggregateMode.DEDUPLICATE,
        "User records of an aggregate outside the shard's range: deduplicate omits what the KPL puts again after a"
        " reshard, filter all of them, drop the whole aggregate (as KCL), keep none (R17).",
        choices=tuple(AggregateMode),
    )
    checkpoint_seconds: float = setting(
        5.0, "Time between two checkpoints of a shard in the lease store; without records, some minutes.", above=0
    )
    failover_seconds: float = setting(
        FAILOVER_SECONDS,
        "Fail-over time: a lease that is not renewed for this long expires, and others take it (R10).",
        above=0,
    )
    graceful_handoff: bool = setting(
        True,
        "Whether to request a lease from its owner, so that no record is read twice. If false, the lease is stolen.",
    )
    handoff_seconds: float = setting(
        30.0,
        "A requested lease that is not released within this time and failover_seconds is stolen.",
        least=0,
    )
    max_leases: int | None = setting(
        None, "Maximum number of leases that this worker owns. Default: no limit.", least=1, example=100
    )
    max_leases_per_scan: int | None = setting(
        None,
        "Maximum number of leases that this worker takes or requests in one lease scan; its own from before a restart"
        " do not count. Default: no limit.",
        least=1,
        example=10,
    )
    assignment: Assignment = setting(
        balanced_assignment,
        "Strategy that decides which leases this worker takes, the same for all workers: see efo.leases.Assignment.",
    )
    balance: Literal["count", "throughput"] = setting(
        "count",
        "What workers share evenly: the number of shards (count) or their traffic (throughput).",
        choices=("count", "throughput"),
    )
    lease_scan_seconds: float | None = setting(
        None,
        "Time between two lease scans; leases of a crashed worker are taken up to this much later. Default: a twentieth"
        " of failover_seconds, longer with many workers.",
        above=0,
        example=5.0,
    )
    shard_sync_seconds: float = setting(
        60.0,
        "Time between two shard syncs: ListShards finds shards that have no lease yet. Each is up to a quarter sooner,"
        " at random.",
        above=0,
    )
    lease_cleanup: bool = setting(
        True, "Whether to delete the lease of a finished shard ten minutes after nothing depends on it."
    )
    shard_cooldown_seconds: float = setting(
        60.0, "How long this worker does not take the lease of an isolated shard again (R11).", least=0
    )

    def __post_init__(self) -> None:
        position = parse_position(self.initial_position, "initial_position")
        if position.type not in _INITIAL:
            raise ConfigurationError(f"initial_position {position}: expected TRIM_HORIZON, LATEST or a time")
        object.__setattr__(self, "initial_position", position)
        if self.start_at is not None:
            check_callable("start_at", self.start_at, "a function of a lease, or None", "lease")
        self._check_shards()
        check_settings(self)
        self._check_read_mode()
        self._check_consumer()
        check_callable("assignment", self.assignment, "an assignment strategy, a function of an AssignmentView", "view")
        check_type("timing", self.timing, SubscriptionTiming, "a SubscriptionTiming")
        object.__setattr__(self, "aggregates", AggregateMode(self.aggregates))

    def _check_read_mode(self) -> None:
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


def settings_from(settings: ConsumerSettings | None, initial_position: PositionLike | None) -> ConsumerSettings:
    """Return the settings that these arguments mean. Raises ConfigurationError."""
    settings = ConsumerSettings() if settings is None else settings
    check_type("settings", settings, ConsumerSettings, "a ConsumerSettings, or None")
    return settings if initial_position is None else replace(settings, initial_position=initial_position)


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
