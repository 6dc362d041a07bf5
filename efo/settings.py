"""How to consume: what `open_consumer` can be told."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final

from efo.errors import ConfigurationError
from efo.model import AT_TIMESTAMP, LATEST, TRIM_HORIZON, Checkpoint, Lease, Position, PositionType
from efo.protocol.aggregation import AggregateMode
from efo.protocol.subscription import Timing

STREAM_WINDOW: Final = 1024 * 1024
"""Bytes that the service may send on one stream before its reader takes them (the AWS SDKs' default)."""
CLEANUP_AFTER: Final = 600.0
"""Seconds after which the lease of a finished shard is deleted."""

Shards = Collection[str] | Callable[[Lease], bool]
"""Which shards to read: their ids, or what tells by a shard's lease (key, hash-key range, parents)."""

StartAt = Callable[[Lease], Position | Checkpoint | None]
"""Says where to begin a shard that was never read; None: at the initial position."""

_INITIAL: Final = {
    PositionType.TRIM_HORIZON: TRIM_HORIZON,
    PositionType.LATEST: LATEST,
    PositionType.AT_TIMESTAMP: AT_TIMESTAMP,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """How to consume. Times are in seconds, windows in bytes.

    `application`: names the group of workers that share the stream's shards.
    `consumer`: the name of the fan-out consumer, registered if there is none; `application` if not given.
    `worker_id`: names this worker; no two that are alive may have the same.
    `initial_position`: TRIM_HORIZON, LATEST or AT_TIMESTAMP; for shards that were never read. Children found at the
    end of a shard start at their beginning, whatever it is (rule R1). `start_at`: overrides it for single shards.
    `shards`: this worker takes these only; all, if not given. `subscribes_per_second`: the budget of the
    whole consumer (rule R6). `checkpoint_interval`: how often progress is saved. `failover_time`: after so long
    without a sign of its worker a lease may be taken (rule R10). `graceful_handoff`: a lease that is to move to another
    worker is asked for, so that its reader finishes and checkpoints what it holds; if he has not let go within
    `handoff_timeout` and the fail-over time, it is taken by force. `max_leases`: this worker owns no more.
    `lease_scan_interval`: how often the table of leases is read, which is when a lease that was released or handed over
    is found; if not given a twentieth of the fail-over time, less often where workers are many. Where looks cost
    (DynamoDB) it may be longer; a crashed worker's leases are then taken up to so much after the fail-over time.
    `balance_by_throughput`: the workers share out what the shards bring, and not their number. `shard_sync_interval`:
    how often ListShards is asked for shards that nobody told us of. `lease_cleanup_after`: the lease of a finished
    shard that nothing depends on any more is deleted so long after this worker first saw it so, which must be more than
    twice as long as listings may be late; None: never.
    `stream_window`: how much may arrive for one shard before its reader takes it (rule R9). `unsubscribe_idle_after`: a
    subscription that its reader wants nothing of for so long is given up, and resumed when he does (rule R9).
    `park_faults`: what the service refuses for good for one shard (KMS, access denied) stops that shard alone, instead
    of everything (rule R11). `shard_cooldown`: how long this worker then leaves it alone.
    `aggregates`: what to do with aggregated records of other shards.
    """

    application: str
    worker_id: str
    consumer: str = ""
    initial_position: Position = field(default_factory=Position.trim_horizon)
    start_at: StartAt | None = None
    shards: Shards | None = None
    subscribes_per_second: float = 20.0
    checkpoint_interval: float = 5.0
    failover_time: float = 10.0
    graceful_handoff: bool = True
    handoff_timeout: float = 30.0
    max_leases: int | None = None
    lease_scan_interval: float | None = None
    balance_by_throughput: bool = False
    shard_sync_interval: float = 60.0
    lease_cleanup_after: float | None = CLEANUP_AFTER
    stream_window: int = STREAM_WINDOW
    unsubscribe_idle_after: float = 60.0
    park_faults: bool = False
    shard_cooldown: float = 60.0
    aggregates: AggregateMode = AggregateMode.FILTER
    timing: Timing = field(default_factory=Timing)

    def __post_init__(self) -> None:
        if self.initial_position.type not in _INITIAL:
            raise ConfigurationError(
                f"initial_position {self.initial_position.type}: expected TRIM_HORIZON, LATEST or AT_TIMESTAMP"
            )
        if not self.application or not self.worker_id:
            raise ConfigurationError("application and worker_id must not be empty")
        if isinstance(self.shards, str):
            raise ConfigurationError(f"shards={self.shards!r}: expected several ids, for example [{self.shards!r}]")
        if self.handoff_timeout < 0 or (self.max_leases is not None and self.max_leases < 1):
            raise ConfigurationError(
                f"handoff_timeout={self.handoff_timeout!r}, max_leases={self.max_leases!r}: "
                "expected seconds, not below 0, and None or a number above 0"
            )
        if self.lease_scan_interval is not None and self.lease_scan_interval <= 0:
            raise ConfigurationError(
                f"lease_scan_interval={self.lease_scan_interval!r}: expected seconds above 0, or None"
            )
        if not (self.unsubscribe_idle_after > 0 and self.shard_cooldown >= 0):
            raise ConfigurationError(
                f"unsubscribe_idle_after={self.unsubscribe_idle_after!r}, shard_cooldown={self.shard_cooldown!r}: "
                "expected seconds, above 0 and not below 0"
            )

    @property
    def initial_checkpoint(self) -> Checkpoint:
        """The sentinel of `initial_position`, for the leases of shards that were never read."""
        return _INITIAL[self.initial_position.type]

    def selects(self, lease: Lease) -> bool:
        """Tell whether this worker reads the shard of this lease."""
        if self.shards is None:
            return True
        return self.shards(lease) if callable(self.shards) else lease.key in self.shards
