"""Which leases of finished shards may be deleted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from efo.model import Lease, Shard


def deletable(leases: Mapping[str, Lease], shards: Sequence[Shard]) -> list[str]:
    """Return the keys of leases that nothing depends on any more, oldest generation first.

    `leases`: all leases by key. `shards`: all of ListShards. A finished lease is what tells a child that it may start,
    and `leases_to_create` that a child carries on our reading and begins at its beginning. So it goes only when

    - every child of the shard has a lease and has begun: the children that its row names, those that another lease or a
      listed shard names it the parent of. Of a shard that is still listed there must be one at least.
    - the leases of its own parents are gone (KCL's rule: from the oldest down, so that no gap comes between).
    - the listing no longer shows the shard as open. A listing that comes later and is older than this one would have it
      begun anew: therefore a lease is deleted only after being deletable for longer than listings may be late.

    A child that has no lease does not count if neither is listed any more: the retention took both. A shard that is not
    finished is never touched: its reader finds out by himself that it is gone.
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

    def is_done(lease: Lease) -> bool:
        theirs = {child for child in children[lease.key] if child in leases or child in listed or lease.key in listed}
        return (
            lease.is_finished
            and (lease.key not in listed or not listed[lease.key].is_open)
            and not any(parent in leases for parent in lease.parents)
            and all(child in leases and has_begun(leases[child]) for child in theirs)
            and bool(theirs or lease.key not in listed)
        )

    return [key for key, lease in leases.items() if is_done(lease)]


def has_begun(lease: Lease) -> bool:
    """Whether something of the shard was read and checkpointed."""
    return lease.is_finished or not lease.checkpoint.is_sentinel
