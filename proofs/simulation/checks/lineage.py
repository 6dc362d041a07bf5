"""The lineage of the shards of a world, and which leases nothing depends on. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from efo.model import Checkpoint
from proofs.simulation.checks.ledger import ShardLedger


def generation(shards: Mapping[str, ShardLedger], shard_id: str) -> int:
    """Return the generation of a shard: 1 for those without parents."""
    return 1 + max((generation(shards, parent) for parent in shards[shard_id].parents), default=0)


def ancestry(shards: Mapping[str, ShardLedger], shard_id: str) -> Iterator[str]:
    """Yield a shard and all its ancestors, one that is reached by two ways twice."""
    yield shard_id
    for parent in shards[shard_id].parents:
        yield from ancestry(shards, parent)


def has_progress(shard: ShardLedger) -> bool:
    """Return whether a shard has a lease with a checkpoint of a record, or is finished."""
    return shard.has_lease and (shard.checkpoint == Checkpoint.SHARD_END or not shard.checkpoint.is_sentinel)


def must_be_deleted(shards: Mapping[str, ShardLedger], shard: ShardLedger) -> bool:
    """Return whether a shard is finished and has a lease that nothing depends on any more."""
    return (
        shard.checkpoint == Checkpoint.SHARD_END
        and not shard.was_deleted
        and all(has_progress(shards[child]) for child in shard.children)
        and not any(shards[parent].has_lease and not shards[parent].was_deleted for parent in shard.parents)
    )
