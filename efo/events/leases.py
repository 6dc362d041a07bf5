"""What happens to a worker: its leases and the lease store, and advice to whoever wrote its program."""

from __future__ import annotations

from typing import Literal

import msgspec

from efo.model import Checkpoint

LeaseOperation = Literal[
    "take", "steal", "request_handoff", "withdraw", "renew", "release", "checkpoint", "create",
    "save_children", "delete", "list",
]  # fmt: skip
"""A call of the lease store."""


class LeaseStoreCalled(msgspec.Struct, frozen=True):
    """An operation of the lease store ended. `duration`: seconds. `error_type`: None if it succeeded.

    `leases`: the number of leases. If it is more than one, they were written in one batch, and `shard_id` is empty.
    `detail`: why the store could not be used.
    """

    operation: LeaseOperation
    shard_id: str
    duration: float
    error_type: str | None = None
    leases: int = 1
    detail: str = ""


class LeaseLost(msgspec.Struct, frozen=True):
    """This worker no longer holds a lease. `reason`: taken, expired, released, handed_over or store."""

    shard_id: str
    reason: str


class LeasesCounted(msgspec.Struct, frozen=True):
    """The number of leases in each state (held, unowned, expired), and of workers that hold any."""

    counts: dict[str, int]
    workers: int


class CheckpointSaved(msgspec.Struct, frozen=True):
    """A checkpoint was written to the lease store."""

    shard_id: str
    checkpoint: Checkpoint


AdviceTopic = Literal[
    "unacked", "unknown_shards", "initial_position", "worker_id", "lease_file", "subscribe_wait", "taken_over",
    "blocked_loop", "slow_batch",
]  # fmt: skip
"""What an advice is about; docs/troubleshooting.md has each."""


class AdviceGiven(msgspec.Struct, frozen=True):
    """A trap was found: reported once on each topic by a consumer, and kept in its `status().advice`.

    `what`: what was found, and where. `remedy`: what to do about it. `is_warning`: whether something goes wrong; False:
    it may be as it is meant. Neither text contains data.
    """

    topic: AdviceTopic
    what: str
    remedy: str
    is_warning: bool = True
