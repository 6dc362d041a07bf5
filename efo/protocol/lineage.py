"""The family of shards: which leases to create, and which shard may start (rules R1 and R2).

A split or a merge closes shards and opens their children. To read in order, a parent is read to its end before
its children begin. So it is enough to have a lease on the oldest shards that are to be read: the end of each
creates the leases of its children, down to the open shards. `leases_to_create` finds those oldest shards,
`child_leases` makes the next generation, and `startable` holds a child back until its parents are done.

All three are idempotent: run again after a crash at any place, they lead to the same leases. None of them
trusts a listing of shards to be new.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from efo.model import LATEST, SHARD_END, TRIM_HORIZON, Checkpoint, ChildShard, Lease, Shard


def leases_to_create(shards: Sequence[Shard], leases: Mapping[str, Lease], initial: Checkpoint) -> list[Lease]:
    """Return the leases that are missing, parents before children: create them in this order.

    `shards`: all of ListShards, open and closed. `leases`: all leases by key. `initial`: where shards start
    that we never read before: LATEST, TRIM_HORIZON or AT_TIMESTAMP.

    Every open shard must be reached. One without a lease is reached through its parents, if they are part of
    our reading; then each of these must be reached, so that a merge finds both. Otherwise it depends on `initial`:
    TRIM_HORIZON and AT_TIMESTAMP go up to the oldest shard that still exists and begin there, LATEST
    begins with the open shard itself. (Cases: KCL's HierarchicalShardSyncer, read as a specification. For a first
    reading AT_TIMESTAMP, what had ended by then is left out of `shards`: `without_ancestors`.)

    Seven cases need care:

    - A finished lease creates no children any more. If all parents are finished and the child has no lease
      (somebody deleted it, or the parent was gone before it could tell its children), it is created here, at
      TRIM_HORIZON since it carries on what was read.
    - A lease waits for a parent that has none, see `startable`: that parent is reached too.
    - The same, but that parent no longer exists: it gets a lease that is finished from the start.
    - An open shard has an open parent: the pages of a listing are not of one moment. The parent is read, and will
      tell its children at its end.
    - A shard is listed as open, and a child of it has a lease: the listing is older than the leases. The shard was read
      and its lease cleaned up, or it was left out because we began with its children; it is not begun after them.
    - A lease is of a newer shard than the whole listing, and has hash keys of one that is listed: that one's
      descendants are being read, however many generations lie between. It is left to the next listing.
    - A parent has a lease but is no longer listed. It counts: its reader will find out and finish it.
    """
    listed = {shard.shard_id: shard for shard in shards}
    # Not older than the listing, so a parent of theirs that it lacks is gone and not yet to be born.
    older = listed.keys() | {parent for shard in shards for parent in shard.parents}
    awaited = {parent: key for key, lease in leases.items() for parent in _awaited(lease, leases)}
    gone = [_gone(parent, child) for parent, child in awaited.items() if parent not in listed and child in older]
    by_age = sorted(shards, key=lambda shard: (int(shard.starting_sequence_number), shard.shard_id))
    descendants = _descendants(by_age, leases)
    passed = {parent for lease in leases.values() for parent in lease.parents}
    wanted = {shard.shard_id for shard in shards if shard.is_open and shard.shard_id not in passed}.union(awaited)
    # Kinesis numbers its shards in the order of their making.
    newest = max(listed, default="")
    newer = [lease for key, lease in leases.items() if key > newest and not lease.is_finished]
    missing: list[Lease] = []
    for shard in reversed(by_age):  # children first, so that what they want of their parents is known
        if shard.shard_id in leases or shard.shard_id not in wanted:
            continue
        parents = [parent for parent in shard.parents if parent in leases or parent in listed]
        if parents and all(parent in leases and leases[parent].is_finished for parent in parents):
            missing.append(_lease_of(shard, TRIM_HORIZON))
            gone.extend(_gone(parent, shard.shard_id) for parent in shard.parents if parent not in parents)
        elif parents and (
            initial != LATEST
            or shard.shard_id in descendants
            or any(parent in listed and listed[parent].is_open for parent in parents)
        ):
            wanted.update(parents)
        elif not any(_shares_keys(shard, lease) for lease in newer):
            missing.append(_lease_of(shard, initial))
    return gone + missing[::-1]


def without_ancestors(shards: Sequence[Shard], keys: Collection[str]) -> list[Shard]:
    """Return the shards without those from which one of `keys` descends.

    For a reading that begins at a time: what had ended when `keys` were open is before it, and to be left out.
    """
    listed = {shard.shard_id: shard for shard in shards}
    ancestors: set[str] = set()
    young = [listed[key] for key in keys if key in listed]
    while young:
        parents = {parent for shard in young for parent in shard.parents} - ancestors
        ancestors |= parents
        young = [listed[parent] for parent in parents if parent in listed]
    return [shard for shard in shards if shard.shard_id not in ancestors]


def child_leases(children: Sequence[ChildShard], leases: Mapping[str, Lease]) -> list[Lease]:
    """Return the leases that the end of a shard must create: one per child that has none yet.

    They start at TRIM_HORIZON, whatever the initial position (rules R1, R2). The child of a merge is created
    by the first parent that ends; `startable` makes it wait for the other.
    """
    return [
        Lease(child.shard_id, TRIM_HORIZON, parents=child.parent_shards, hash_key_range=child.hash_key_range)
        for child in children
        if child.shard_id not in leases
    ]


def startable(lease: Lease, leases: Mapping[str, Lease]) -> bool:
    """Tell whether the shard of this lease may be read now (rule R1). `leases`: all leases by key.

    A parent with a lease must be finished. A parent without one is not part of our reading and does not
    matter (LATEST begins with children whose parents nobody reads), with one exception: when the shard has not
    begun and its *other* parent has a lease, the lease of this one is only late (its own parents are
    not at their end yet, or a crash came between), so we wait for it. `leases_to_create` sees to it that it comes,
    also when the parent no longer exists.

    So all that can be known is in the lease table, and all workers come to the same answer.
    """
    return (
        not lease.is_finished
        and not any(parent in leases and not leases[parent].is_finished for parent in lease.parents)
        and not _awaited(lease, leases)
    )


def _awaited(lease: Lease, leases: Mapping[str, Lease]) -> list[str]:
    """Return the parents that ought to have a lease because the other parent has one."""
    if not lease.checkpoint.is_sentinel or lease.is_finished:
        return []  # it has begun, so its parents were done; their leases may have been cleaned up since
    without = [parent for parent in lease.parents if parent not in leases]
    return without if len(without) < len(lease.parents) else []


def _descendants(by_age: Sequence[Shard], leases: Mapping[str, Lease]) -> set[str]:
    """Return the ids of all shards that have a lease or descend from one that has."""
    found = set(leases)
    for shard in by_age:
        if any(parent in found for parent in shard.parents):
            found.add(shard.shard_id)
    return found


def _shares_keys(shard: Shard, lease: Lease) -> bool:
    """Tell whether a lease is of some of the shard's hash keys, or may be."""
    ours, theirs = shard.hash_key_range, lease.hash_key_range
    return theirs is None or (
        int(ours.starting_hash_key) <= int(theirs.ending_hash_key)
        and int(theirs.starting_hash_key) <= int(ours.ending_hash_key)
    )


def _lease_of(shard: Shard, checkpoint: Checkpoint) -> Lease:
    return Lease(shard.shard_id, checkpoint, parents=shard.parents, hash_key_range=shard.hash_key_range)


def _gone(key: str, child: str) -> Lease:
    return Lease(key, SHARD_END, children=(child,))
