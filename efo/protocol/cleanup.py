"""Which leases of finished shards may be deleted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from efo.model import Lease, Shard


def deletable_leases(leases: Mapping[str, Lease], shards: Sequence[Shard]) -> list[str]:
    """Return the keys of leases that nothing depends on any more, oldest generation first.

    `leases`: all leases by key. `shards`: all of ListShards.

    A finished lease has two uses: its child shards may start, and `leases_to_create` creates the lease of a child at
    TRIM_HORIZON. So a lease is deletable only under all of these conditions:

    - It is finished. The reader of an unfinished shard detects by itself that the shard no longer exists.
    - Every child of the shard has a lease and has begun. The children are those in its row, and those whose lease or
      listed shard names it as a parent. A shard that is still listed must have at least one child.
    - The leases of its parents are deleted (KCL's rule: the oldest first, so that no gap appears).
    - The listing does not show the shard as open.

    A later listing may be older than this one, and `leases_to_create` would create the lease again. So the caller
    deletes a lease only after it has been deletable_leases for longer than a listing can be late.

    A child without a lease does not count if neither the child nor the shard is listed: both passed their retention.
    """
    listed = {shard.shard_id: shard for shard in shards}
    children: dict[str, set[str]] = defaultdict(set)
    for key, lease in leases.items():
        children[key].update(lease.children)
        for parent in lease.parents:
            children[parent].add(key)
    for shard in shards:
        for parent in shard.parents:
            children[parent].add(shard.shard_id)

    def is_deletable(lease: Lease) -> bool:
        relevant = {child for child in children[lease.key] if child in leases or child in listed or lease.key in listed}
        return (
            lease.is_finished
            and (lease.key not in listed or not listed[lease.key].is_open)
            and not any(parent in leases for parent in lease.parents)
            and all(child in leases and has_begun(leases[child]) for child in relevant)
            and bool(relevant or lease.key not in listed)
        )

    return [key for key, lease in leases.items() if is_deletable(lease)]


def passed_shards(leases: Mapping[str, Lease], shards: Sequence[Shard]) -> list[Shard]:
    """Return the listed shards whose leases were deleted, or that a start at LATEST left out: nobody reads them again.

    They are closed, and each of their children has begun or is one of them. `leases`, `shards`: as for
    `deletable_leases`.
    """
    children: dict[str, list[str]] = defaultdict(list)
    for shard in shards:
        for parent in shard.parents:
            children[parent].append(shard.shard_id)
    behind = {key for key, lease in leases.items() if has_begun(lease)}
    passed: list[Shard] = []
    for shard in sorted(shards, key=lambda shard: int(shard.starting_sequence_number), reverse=True):
        own = children[shard.shard_id]
        if not shard.is_open and shard.shard_id not in leases and own and behind.issuperset(own):
            behind.add(shard.shard_id)
            passed.append(shard)
    return passed


def has_begun(lease: Lease) -> bool:
    """Return whether a record of the shard, or its end, was checkpointed."""
    return lease.is_finished or not lease.checkpoint.is_sentinel
