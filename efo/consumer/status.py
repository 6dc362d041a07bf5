"""What a consumer reports about itself."""

from __future__ import annotations

from dataclasses import dataclass

from efo.consumer.shard_stream import ShardState
from efo.model import Checkpoint


@dataclass(frozen=True, slots=True)
class ShardStatus:
    """A shard that this worker reads.

    `checkpoint`: the checkpoint that its acks allow; it may not be saved yet. `millis_behind_latest`: of its last
    event; None before the first. `state`: of its subscription. `last_event_age`: seconds since its last event; None
    before the first. An idle shard gets an event about every 5 seconds.
    """

    shard_id: str
    checkpoint: Checkpoint
    millis_behind_latest: int | None
    is_paused: bool = False
    state: ShardState = "unsubscribed"
    last_event_age: float | None = None


@dataclass(frozen=True, slots=True)
class IsolatedShard:
    """A shard that failed, and that this worker does not read for now (rule R11).

    `error_type`: why. `seconds_left`: until this worker may read it again.
    """

    shard_id: str
    error_type: str
    seconds_left: float


@dataclass(frozen=True, slots=True)
class ConsumerStatus:
    """A snapshot of a consumer.

    `worker_id`: the id of this worker. `consumer_active`: whether the fan-out consumer was found ACTIVE. `shards`:
    those that this worker reads. `counts`: the number of shards in each state (waiting_parent, ready, consuming,
    finished), by the leases of all workers. `isolated`: shards that this worker does not read because they failed.
    """

    worker_id: str
    consumer_active: bool
    is_draining: bool
    shards: tuple[ShardStatus, ...]
    counts: dict[str, int]
    isolated: tuple[IsolatedShard, ...] = ()
