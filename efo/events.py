"""Typed diagnostic events: what happens inside efo, told to one Observer.

Metrics, logs and traces are subscribers of these events; the rooms that report them know none of them.
An observer runs in the reporting task: it must be quick and must not raise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from efo.model import Checkpoint, Position
from efo.protocol.failure import Action

EndReason = Literal[
    "expired", "renewed", "shard_end", "reset", "goaway", "transport", "throttled", "protocol", "service",
    "silence", "lease_lost", "shutdown", "idle", "seek",
]  # fmt: skip
"""Why a subscription ended; the value of the attribute `efo.subscription.end_reason`."""

FailedCall = Literal["handler", "dead_letter"]
"""Which of the user's callables failed."""

LeaseOperation = Literal[
    "take", "steal", "request_handoff", "withdraw", "renew", "release", "checkpoint", "prepare_checkpoint", "create",
    "save_children", "delete", "list",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class ConsumerReady:
    """The fan-out consumer is ACTIVE. `registered`: we registered it just now."""

    name: str
    arn: str
    registered: bool


@dataclass(frozen=True, slots=True)
class SubscribeAttempted:
    """One call of SubscribeToShard got its answer. Durations in seconds; `error_type` None on success.

    `waited` is the time spent for the pacing budget (rule R6), `duration` the call itself.
    """

    shard_id: str
    waited: float
    duration: float
    error_type: str | None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class SubscriptionEnded:
    """A subscription that had started is over after `age` seconds."""

    shard_id: str
    age: float
    reason: EndReason
    detail: str = ""


@dataclass(frozen=True, slots=True)
class EventReceived:
    """An event arrived. `wire_bytes` with framing; `interval` seconds since the shard's previous event."""

    shard_id: str
    records: int
    wire_bytes: int
    millis_behind_latest: int
    interval: float | None


@dataclass(frozen=True, slots=True)
class DeliveryBlocked:
    """An event that had arrived waited `duration` seconds for its reader: that is back-pressure (rule R9).

    Told once it was taken, and only where it waited for long enough to matter.
    """

    shard_id: str
    duration: float


@dataclass(frozen=True, slots=True)
class BatchDelivered:
    """A batch of so many records was given to the reader. Its ack makes it RecordsProcessed."""

    shard_id: str
    records: int


@dataclass(frozen=True, slots=True)
class RecordsProcessed:
    """The handler is done with a batch. `ages`: per record, seconds from arrival until now."""

    shard_id: str
    records: int
    duration: float
    oldest_age: float | None
    newest_age: float | None
    error_type: str | None = None


@dataclass(frozen=True, slots=True)
class HandlerFailed:
    """A handler raised, or a dead-letter sink did, and this is what happens now (rule R11).

    `sequence_number`: of the first of the `records` that it was called with. `attempt`: how often it was, from 1.
    `duration` of the call and `delay` before the next one are seconds. What the exception says is not told: it may
    hold data.
    """

    shard_id: str
    sequence_number: str
    records: int
    attempt: int
    duration: float
    error_type: str
    action: Action
    delay: float = 0.0
    call: FailedCall = "handler"


@dataclass(frozen=True, slots=True)
class RecordSkipped:
    """A record that its handler could not handle counts as done, by policy (rule R11)."""

    shard_id: str
    sequence_number: str
    sub_sequence_number: int
    error_type: str


@dataclass(frozen=True, slots=True)
class RecordDeadLettered:
    """A record that its handler could not handle is in the dead-letter sink, and so counts as done (rule R11)."""

    shard_id: str
    sequence_number: str
    sub_sequence_number: int
    error_type: str


@dataclass(frozen=True, slots=True)
class AggregateDamaged:
    """A record looks like a KPL aggregate but does not parse; it is passed on whole."""

    shard_id: str
    sequence_number: str
    problem: str


@dataclass(frozen=True, slots=True)
class RecordsFiltered:
    """Records of a KPL aggregate were left out: their hash keys are another shard's (see AggregateMode)."""

    shard_id: str
    sequence_number: str
    records: int


@dataclass(frozen=True, slots=True)
class ShardStarted:
    """We begin to read a shard from here."""

    shard_id: str
    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class ShardFinished:
    """The shard was read to its end, everything is acked and its end is checkpointed (rule R2)."""

    shard_id: str
    children: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShardGone:
    """The shard exists no longer: what it had after our checkpoint passed its retention before we read it."""

    shard_id: str
    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class ShardSyncFailed:
    """The stream's shards could not be listed; it is tried again at the next look, and known shards go on."""

    error_type: str
    detail: str


@dataclass(frozen=True, slots=True)
class HashRangeHoleFound:
    """No lease covers these hash keys, both ends included, and that for some time: the shards are listed at once."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ShardStopped:
    """We stop reading a shard before its end; `error_type` tells a fault, None a planned stop."""

    shard_id: str
    error_type: str | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ShardIsolated:
    """A shard has stopped by a fault of its own, and its lease is released: the others go on (rule R11).

    This worker may take it again after `cooldown` seconds.
    """

    shard_id: str
    cooldown: float
    error_type: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ShardPaused:
    """The reading of a shard was paused: no more batches until it is resumed."""

    shard_id: str


@dataclass(frozen=True, slots=True)
class ShardResumed:
    """The reading of a paused shard goes on."""

    shard_id: str


@dataclass(frozen=True, slots=True)
class ShardRepositioned:
    """The reading of a shard goes on from elsewhere: after a checkpoint, or at a position."""

    shard_id: str
    to: Checkpoint | Position


@dataclass(frozen=True, slots=True)
class ShardsCounted:
    """How many shards are in each state: waiting_parent, ready, consuming, finished."""

    counts: dict[str, int]


@dataclass(frozen=True, slots=True)
class LeaseStoreCalled:
    """One operation on the lease store. `duration` in seconds, `error_type` None on success."""

    operation: LeaseOperation
    shard_id: str
    duration: float
    error_type: str | None = None


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """A lease that we held is no longer ours. `reason`: taken, expired, released, handed_over or store."""

    shard_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class LeasesCounted:
    """How many leases there are of each state (held, unowned, expired), and how many workers hold any."""

    counts: dict[str, int]
    workers: int


@dataclass(frozen=True, slots=True)
class CheckpointSaved:
    """A checkpoint is in the lease store."""

    shard_id: str
    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class ConnectionOpened:
    """An HTTP/2 connection is up."""

    address: str


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    """An HTTP/2 connection is gone. `error_code`: the HTTP/2 error name, where there was one."""

    address: str
    error_code: str | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class StreamReset:
    """The peer reset one HTTP/2 stream. `error_code`: the HTTP/2 error's name."""

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

Observer = Callable[[Event], None]


def ignore(_event: Event) -> None:
    """Observe nothing: the default observer."""
