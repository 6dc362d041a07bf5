"""What a consumer reports about itself."""

from __future__ import annotations

from dataclasses import dataclass

from efo.events import AdviceGiven
from efo.health import (
    ActiveReadMode,
    Condition,
    IsolatedShard,
    LeaseCounts,
    ShardReading,
    ShardState,
    checkpoint_age,
    condition,
    event_age,
    lag as lag_of,
    read_lag,
)
from efo.model import Checkpoint


@dataclass(frozen=True, slots=True)
class ShardStatus:
    """A shard that this worker reads, or stopped reading while no other worker is known to read it.

    `checkpoint`: the checkpoint that its acks allow; it may not be saved yet. `millis_behind_latest`: of its last
    event; None before the first. `state`: of its subscription. `last_event_age`: seconds since its last event; None
    before the first. An idle shard gets an event about every 5 seconds. `lag`: seconds since what was read was known to
    be current and acked; None until that is known. `condition`: whether it is read, and if not, why. `checkpoint_age`:
    seconds since records were delivered that no saved checkpoint includes; 0 if none were. `saved_age`: seconds since
    its checkpoint was saved, or since its lease was taken. `read_mode`: how it is read; None while it has no
    subscription and is not polled. A polled shard has an event for each page of GetRecords. `read_lag`: `lag` without
    the records that were read and are not acked.
    """

    shard_id: str
    checkpoint: Checkpoint
    millis_behind_latest: int | None
    is_paused: bool = False
    state: ShardState = "unsubscribed"
    last_event_age: float | None = None
    lag: float | None = None
    condition: Condition = "current"
    checkpoint_age: float = 0.0
    saved_age: float = 0.0
    read_mode: ActiveReadMode | None = None
    read_lag: float | None = None


@dataclass(frozen=True, slots=True)
class ConsumerStatus:
    """A snapshot of a consumer.

    `worker_id`: the id of this worker. `consumer_active`: whether the fan-out consumer was found ACTIVE. `shards`:
    those that this worker reads, and those that it stopped reading while no other worker is known to read them.
    `counts`: the number of shards in each state (waiting_parent, ready, consuming, finished), by the leases of all
    workers; None while the lease table is unknown. `isolated`: shards that this worker does not read because they
    failed. `leases`: what the lease table shows; None while it is unknown. `read_mode`: how shards are read now; with
    the setting "auto", a shard may take some time to follow. `fan_out_error`: why shards are polled with that setting;
    None if they are not. `failure`: what ended the consumer, and where; None unless an error did. `advice`: the traps
    that were found, and each batch that is handled for very long now.
    """

    worker_id: str
    consumer_active: bool
    is_draining: bool
    shards: tuple[ShardStatus, ...]
    counts: dict[str, int] | None
    isolated: tuple[IsolatedShard, ...] = ()
    leases: LeaseCounts | None = None
    read_mode: ActiveReadMode = "fanout"
    fan_out_error: str | None = None
    failure: str | None = None
    advice: tuple[AdviceGiven, ...] = ()


def status_of(shard: ShardReading, now: float) -> ShardStatus:
    """Return the status of a shard from what is known of it."""
    return ShardStatus(
        shard.shard_id,
        shard.checkpoint,
        shard.millis_behind_latest,
        shard.is_paused,
        shard.state,
        event_age(shard, now),
        lag_of(shard, now),
        condition(shard, now),
        checkpoint_age(shard, now),
        max(0.0, now - shard.saved_at),
        shard.read_mode,
        read_lag(shard, now),
    )
