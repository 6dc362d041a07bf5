"""Diagnostic events: what happens inside efo, reported to an observer.

Metrics, logs and status pages are observers. The modules that report events know none of them. An observer runs in the
task that reports: it must be quick and must not raise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from efo.checks import check_callable
from efo.model import Checkpoint, Position
from efo.protocol.failure import FailureAction

EndReason = Literal[
    "expired", "renewed", "shard_end", "reset", "goaway", "transport", "throttled", "protocol", "service",
    "silence", "lease_lost", "shutdown", "idle", "seek",
]  # fmt: skip
"""Why a subscription ended; the value of the attribute `efo.subscription.end_reason`."""

FailedCall = Literal["handler", "dead_letter"]
"""Which of the application's functions failed."""

LeaseOperation = Literal[
    "take", "steal", "request_handoff", "withdraw", "renew", "release", "checkpoint", "prepare_checkpoint", "create",
    "save_children", "delete", "list",
]  # fmt: skip
"""A call of the lease store."""


# --- the fan-out consumer and its subscriptions ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConsumerReady:
    """The fan-out consumer is ACTIVE. `registered`: whether this worker has just registered it."""

    name: str
    arn: str
    registered: bool


@dataclass(frozen=True, slots=True)
class SubscribeAttempted:
    """A call of SubscribeToShard got its response. `error_type` is None if it was accepted.

    `waited`: seconds spent waiting for the subscribe budget (rule R6). `duration`: seconds that the call took.
    """

    shard_id: str
    waited: float
    duration: float
    error_type: str | None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class SubscriptionEnded:
    """A subscription ended that was accepted `age` seconds ago."""

    shard_id: str
    age: float
    reason: EndReason
    detail: str = ""


@dataclass(frozen=True, slots=True)
class EventReceived:
    """An event arrived. `wire_bytes`: its length with framing. `interval`: seconds since the shard's previous event."""

    shard_id: str
    records: int
    wire_bytes: int
    millis_behind_latest: int
    interval: float | None


@dataclass(frozen=True, slots=True)
class DeliveryBlocked:
    """An event waited `duration` seconds after its arrival until the reader took it: back-pressure (rule R9).

    Reported after the reader took the event, and only if the wait was long enough to matter.
    """

    shard_id: str
    duration: float


# --- batches and records -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BatchDelivered:
    """A batch of this many records was delivered to the reader. RecordsProcessed follows when it is acked."""

    shard_id: str
    records: int


@dataclass(frozen=True, slots=True)
class RecordsProcessed:
    """A batch was acked. `duration`: seconds since its delivery.

    `oldest_age`, `newest_age`: seconds from the arrival of its first and last record in Kinesis until now; None if the
    service did not send the arrival time.
    """

    shard_id: str
    records: int
    duration: float
    oldest_age: float | None
    newest_age: float | None


@dataclass(frozen=True, slots=True)
class AcksOverdue:
    """Batches were delivered and are not acked, so that the checkpoint does not move. Reported each time they double.

    `batches`, `records`: how many are in flight. `oldest`: seconds since the delivery of the first of them.
    """

    shard_id: str
    batches: int
    records: int
    oldest: float


@dataclass(frozen=True, slots=True)
class HandlerFailed:
    """A handler or a dead-letter sink raised, and the failure policy has decided what happens (rule R11).

    `sequence_number`: of the first of the `records` in the call. `attempt`: the number of this attempt, from 1.
    `duration`: seconds that the call took. `delay`: seconds until the next attempt. The exception's text is not
    included, since it may contain data.
    """

    shard_id: str
    sequence_number: str
    records: int
    attempt: int
    duration: float
    error_type: str
    action: FailureAction
    delay: float = 0.0
    call: FailedCall = "handler"


@dataclass(frozen=True, slots=True)
class RecordSkipped:
    """A record was skipped by the failure policy: its handler failed, and it counts as done (rule R11)."""

    shard_id: str
    sequence_number: str
    sub_sequence_number: int
    error_type: str


@dataclass(frozen=True, slots=True)
class RecordDeadLettered:
    """A record was written to the dead-letter sink: its handler failed, and it counts as done (rule R11)."""

    shard_id: str
    sequence_number: str
    sub_sequence_number: int
    error_type: str


@dataclass(frozen=True, slots=True)
class AggregateDamaged:
    """A record starts like a KPL aggregate but does not parse. It is delivered unchanged."""

    shard_id: str
    sequence_number: str
    problem: str


@dataclass(frozen=True, slots=True)
class RecordsFiltered:
    """Records of a KPL aggregate were dropped: their hash keys belong to another shard (see AggregateMode)."""

    shard_id: str
    sequence_number: str
    records: int


# --- shards ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ShardStarted:
    """This worker starts to read a shard after this checkpoint."""

    shard_id: str
    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class ShardFinished:
    """A shard was read to its end, all its records are acked, and SHARD_END is checkpointed (rule R2)."""

    shard_id: str
    children: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShardGone:
    """A shard no longer exists. Records after this checkpoint expired before they were read."""

    shard_id: str
    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class ShardSyncFailed:
    """The stream's shards could not be listed. The next shard sync tries again; known shards are not affected."""

    error_type: str
    detail: str


@dataclass(frozen=True, slots=True)
class HashRangeHoleFound:
    """No lease has covered these hash keys (both ends included) for some time. A shard sync starts at once."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ShardStopped:
    """This worker stops reading a shard before its end. `error_type`: why; None if it was planned."""

    shard_id: str
    error_type: str | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ShardIsolated:
    """A shard failed and was isolated: its lease is released, and the other shards go on (rule R11).

    This worker does not read it for `cooldown` seconds.
    """

    shard_id: str
    cooldown: float
    error_type: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ShardPaused:
    """A shard was paused: no batches are delivered until it is resumed."""

    shard_id: str


@dataclass(frozen=True, slots=True)
class ShardResumed:
    """A paused shard was resumed."""

    shard_id: str


@dataclass(frozen=True, slots=True)
class ShardRepositioned:
    """A seek moved the reading of a shard after this checkpoint, or to this position."""

    shard_id: str
    to: Checkpoint | Position


@dataclass(frozen=True, slots=True)
class ShardsCounted:
    """The number of shards in each state: waiting_parent, ready, consuming, finished."""

    counts: dict[str, int]


# --- leases ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LeaseStoreCalled:
    """An operation of the lease store ended. `duration`: seconds. `error_type`: None if it succeeded."""

    operation: LeaseOperation
    shard_id: str
    duration: float
    error_type: str | None = None


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """This worker no longer holds a lease. `reason`: taken, expired, released, handed_over or store."""

    shard_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class LeasesCounted:
    """The number of leases in each state (held, unowned, expired), and of workers that hold any."""

    counts: dict[str, int]
    workers: int


@dataclass(frozen=True, slots=True)
class CheckpointSaved:
    """A checkpoint was written to the lease store."""

    shard_id: str
    checkpoint: Checkpoint


# --- connections -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConnectionOpened:
    """An HTTP/2 connection was opened."""

    address: str


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    """An HTTP/2 connection was closed. `error_type`: the `error_type` of the error that closed it, if there was one."""

    address: str
    error_type: str | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class StreamReset:
    """The peer reset an HTTP/2 stream. `error_code`: the name of the HTTP/2 error code, for example CANCEL."""

    address: str
    error_code: str


Event = (
    ConsumerReady
    | SubscribeAttempted
    | SubscriptionEnded
    | EventReceived
    | DeliveryBlocked
    | BatchDelivered
    | RecordsProcessed
    | AcksOverdue
    | HandlerFailed
    | RecordSkipped
    | RecordDeadLettered
    | AggregateDamaged
    | RecordsFiltered
    | ShardStarted
    | ShardFinished
    | ShardGone
    | ShardSyncFailed
    | HashRangeHoleFound
    | ShardStopped
    | ShardIsolated
    | ShardPaused
    | ShardResumed
    | ShardRepositioned
    | ShardsCounted
    | LeaseStoreCalled
    | LeaseLost
    | LeasesCounted
    | CheckpointSaved
    | ConnectionOpened
    | ConnectionClosed
    | StreamReset
)
"""Any diagnostic event."""

Observer = Callable[[Event], None]
"""A function that is called with each diagnostic event."""


def ignore_events(_event: Event) -> None:
    """Ignore a diagnostic event: the observer for applications that want silence."""


def combine_observers(*observers: Observer) -> Observer:
    """Return an observer that calls each of these observers, in this order. Raises ConfigurationError."""
    for each in observers:
        check_callable("observer", each, "a function of an event", "event")

    def observe(event: Event) -> None:
        for observer in observers:
            observer(event)

    return observe
