"""The lineage of shards: which leases to create, to delete and to miss, and which shard may start (rules R1 and R2).

A split or a merge closes shards and opens their children. To keep the order, a parent is read to its end before its
children start. So only the oldest shards to be read need a lease. The end of each shard creates the leases of its
children, down to the open shards. `leases_to_create` finds the oldest shards, `child_leases` returns the next
generation, and `is_startable` delays a child until its parents are finished.

All three are idempotent: after a crash at any point, another run leads to the same leases. None of them requires that
a shard listing is up to date.

A shard's children get leases before its own lease is finished. So the unfinished leases cover every hash key, some
of them twice. A hole has one of three causes: a lease was deleted, a shard disappeared before its last event named
its children, or the table was read while it was written. The last one is temporary.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from efo.model import MAX_HASH_KEY, Checkpoint, ChildShard, HashKeyRange, Lease, Shard


def leases_to_create(shards: Sequence[Shard], leases: Mapping[str, Lease], initial: Checkpoint) -> list[Lease]:
    """Return the missing leases, parents before children. Create them in this order.

    `shards`: all of ListShards, open and closed. For a first start AT_TIMESTAMP, `without_ancestors` removes the shards
    that had ended by then.
    `leases`: all leases by key.
    `initial`: where a shard starts that was never read: LATEST, TRIM_HORIZON or AT_TIMESTAMP.

    Every open shard must have a lease or an ancestor with a lease. If a parent of the shard has a lease or a leased
    ancestor, every parent needs one, so that a merge finds both. Otherwise `initial` decides. TRIM_HORIZON and
    AT_TIMESTAMP start with the oldest ancestor that still exists; LATEST starts with the open shard itself. (The cases
    follow KCL's HierarchicalShardSyncer, read as a specification.)

    There are seven special cases:

    - All parents of a shard are finished, and the shard has no lease. Its lease was deleted, or a parent disappeared
      before its last event named its children. A finished lease creates no more children, so the lease is created here,
      at TRIM_HORIZON: it continues what was read.
    - A lease waits for a parent without a lease, see `is_startable`. The parent gets a lease too.
    - The same, but the parent no longer exists. It gets a finished lease.
    - An open shard has an open parent, because the pages of a listing were read at different times. Only the parent is
      read; its end creates the leases of its children.
    - A shard is listed as open, and a child of it has a lease: the listing is older than the leases. The shard was read
      and its lease deleted, or LATEST started with its children. It must not start after them, and gets no lease.
    - A lease is newer than the whole listing, has parents, and shares hash keys with a listed shard. Then descendants
      of the shard are being read, in any later generation. The shard is left to the next listing.
    - A parent has a lease but is no longer listed. It counts as a parent: its reader will detect that and finish it.
    """
    listed = {shard.shard_id: shard for shard in shards}
    # These shards are not newer than the listing. So a parent of theirs that is not listed existed and is gone.
    known = listed.keys() | {parent for shard in shards for parent in shard.parents}
    awaited = {parent: key for key, lease in leases.items() for parent in _awaited_parents(lease, leases)}
    finished = [
        _finished_lease(parent, child) for parent, child in awaited.items() if parent not in listed and child in known
    ]
    by_age = sorted(shards, key=lambda shard: (int(shard.starting_sequence_number), shard.shard_id))
    descendants = _descendants(by_age, leases)
    # A shard whose child has a lease was read or left out.
    passed = {parent for lease in leases.values() for parent in lease.parents}
    needed = {shard.shard_id for shard in shards if shard.is_open and shard.shard_id not in passed}.union(awaited)
    # Kinesis numbers shards in the order of their creation.
    newest = max(listed, default="")
    newer = [lease for key, lease in leases.items() if key > newest and lease.parents and not lease.is_finished]
    missing: list[Lease] = []
    for shard in reversed(by_age):  # children first: they decide whether their parents are needed
        if shard.shard_id in leases or shard.shard_id not in needed:
            continue
        parents = [parent for parent in shard.parents if parent in leases or parent in listed]
        if parents and all(parent in leases and leases[parent].is_finished for parent in parents):
            missing.append(_lease_of(shard, Checkpoint.TRIM_HORIZON))
            finished.extend(
                _finished_lease(parent, shard.shard_id) for parent in shard.parents if parent not in parents
            )
        elif parents and (
            initial != Checkpoint.LATEST
            or shard.shard_id in descendants
            or any(parent in listed and listed[parent].is_open for parent in parents)
        ):
            needed.update(parents)
        elif not any(_shares_hash_keys(shard, lease) for lease in newer):
            missing.append(_lease_of(shard, initial))
    return finished + missing[::-1]


def without_ancestors(shards: Sequence[Shard], keys: Collection[str]) -> list[Shard]:
    """Return the shards except the ancestors of `keys`.

    For a start AT_TIMESTAMP, `keys` are the shards that were open then. Their ancestors had ended before, and must not
    be read.
    """
    listed = {shard.shard_id: shard for shard in shards}
    ancestors: set[str] = set()
    generation = [listed[key] for key in keys if key in listed]
    while generation:
        parents = {parent for shard in generation for parent in shard.parents} - ancestors
        ancestors |= parents
        generation = [listed[parent] for parent in parents if parent in listed]
    return [shard for shard in shards if shard.shard_id not in ancestors]


def child_leases(children: Sequence[ChildShard], leases: Mapping[str, Lease]) -> list[Lease]:
    """Return the leases to create at the end of a shard: one for each child without a lease.

    They start at TRIM_HORIZON, whatever the initial position is (rules R1, R2). The first parent of a merge that ends
    creates the lease of the child; `is_startable` makes the child wait for the other parent.
    """
    return [
        Lease(child.shard_id, Checkpoint.TRIM_HORIZON, parents=child.parent_shards, hash_key_range=child.hash_key_range)
        for child in children
        if child.shard_id not in leases
    ]


def is_startable(lease: Lease, leases: Mapping[str, Lease]) -> bool:
    """Return whether the shard of this lease may be read now (rule R1). `leases`: all leases by key.

    Every parent with a lease must be finished. A parent without a lease is normally not read by this application and is
    ignored: LATEST starts with shards whose parents are not read. There is one exception: the shard has not begun, and
    its *other* parent has a lease. Then the missing lease is only late: its own parents have not ended, or a worker
    crashed before it created the lease. The shard waits for it. `leases_to_create` creates it, even if the parent no
    longer exists.

    The result depends only on the lease table, so all workers decide alike.
    """
    if lease.is_finished or not lease.parents:
        return not lease.is_finished
    return not (
        any(parent in leases and not leases[parent].is_finished for parent in lease.parents)
        or _awaited_parents(lease, leases)
    )


def ancestor_ranges(
    key: str, leases: Mapping[str, Lease], listed: Mapping[str, Shard], parents: Collection[str] = ()
) -> list[HashKeyRange]:
    """Return the hash-key ranges of a shard's ancestors, as far as leases or the last listing know them (rule R17).

    `leases`, `listed`: by shard id. An ancestor whose lease was deleted is listed until its records have expired.
    `parents`: those that the caller knows.
    """
    ranges: list[HashKeyRange] = []
    known: set[str] = set()
    generation = {*parents, *_known_parents(key, leases, listed)}
    while generation:
        known |= generation
        for parent in sorted(generation):
            keys = listed[parent].hash_key_range if parent in listed else None
            if keys is None and parent in leases:
                keys = leases[parent].hash_key_range
            if keys is not None:
                ranges.append(keys)
        generation = {older for parent in generation for older in _known_parents(parent, leases, listed)} - known
    return ranges


def _known_parents(key: str, leases: Mapping[str, Lease], listed: Mapping[str, Shard]) -> Collection[str]:
    of_lease = leases[key].parents if key in leases else ()
    return of_lease or (listed[key].parents if key in listed else ())


def parent_cycles(leases: Mapping[str, Lease]) -> list[tuple[str, ...]]:
    """Return the unfinished leases that are their own ancestors, each circle once: they wait for themselves for ever.

    Kinesis has no such shards: the rows are damaged, or written by hand.
    """
    cycles: list[tuple[str, ...]] = []
    visited: set[str] = set()
    for start in sorted(leases):
        path = dict[str, None]()  # ordered
        stack = [(start, iter(_waited_for(start, leases)))] if start not in visited else []
        path.update(dict.fromkeys(key for key, _ in stack))
        while stack:
            key, parents = stack[-1]
            parent = next(parents, None)
            if parent is None:
                stack.pop()
                del path[key]
                visited.add(key)
            elif parent in path:
                cycles.append(tuple(path)[list(path).index(parent) :])
            elif parent not in visited:
                path[parent] = None
                stack.append((parent, iter(_waited_for(parent, leases))))
    return cycles


def _waited_for(key: str, leases: Mapping[str, Lease]) -> list[str]:
    """Return the parents whose end the shard of a lease waits for."""
    lease = leases[key]
    if lease.is_finished:
        return []
    return [parent for parent in lease.parents if parent in leases and not leases[parent].is_finished]


def has_lineage(lease: Lease, leases: Mapping[str, Lease], listed: Collection[str]) -> bool:
    """Return whether a lease is known to belong to a shard of the stream: it is listed, or a parent has a lease.

    Otherwise the lease is doubtful: of an expired shard, of another stream, or written by hand.
    """
    return lease.key in listed or any(parent in leases for parent in lease.parents)


def _awaited_parents(lease: Lease, leases: Mapping[str, Lease]) -> list[str]:
    """Return the parents that must get a lease because the other parent has one."""
    if not lease.checkpoint.is_sentinel or lease.is_finished:
        return []  # the shard has begun, so its parents were finished; their leases may have been deleted since
    without = [parent for parent in lease.parents if parent not in leases]
    return without if len(without) < len(lease.parents) else []


def _descendants(by_age: Sequence[Shard], leases: Mapping[str, Lease]) -> set[str]:
    """Return the ids of all shards that have a lease or an ancestor with a lease."""
    found = set(leases)
    for shard in by_age:
        if any(parent in found for parent in shard.parents):
            found.add(shard.shard_id)
    return found


def _shares_hash_keys(shard: Shard, lease: Lease) -> bool:
    """Return whether the ranges of a lease and a shard overlap. A lease without a range may overlap."""
    shard_range, lease_range = shard.hash_key_range, lease.hash_key_range
    return lease_range is None or (
        int(shard_range.starting_hash_key) <= int(lease_range.ending_hash_key)
        and int(lease_range.starting_hash_key) <= int(shard_range.ending_hash_key)
    )


def _lease_of(shard: Shard, checkpoint: Checkpoint) -> Lease:
    return Lease(shard.shard_id, checkpoint, parents=shard.parents, hash_key_range=shard.hash_key_range)


def _finished_lease(key: str, child: str) -> Lease:
    return Lease(key, Checkpoint.SHARD_END, children=(child,))


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


CONSECUTIVE_HOLES: Final = 3
"""A hole is reported after this many consecutive observations, as in KCL."""


@dataclass(frozen=True, slots=True)
class Hole:
    """Hash keys that no lease covers, both ends included."""

    start: int
    end: int


def first_hole(ranges: Iterable[HashKeyRange]) -> Hole | None:
    """Return the lowest hash keys that none of these ranges covers, None if there are none. Ranges may overlap."""
    covered = -1
    for start, end in sorted((int(keys.starting_hash_key), int(keys.ending_hash_key)) for keys in ranges):
        if start > covered + 1:
            return Hole(covered + 1, start - 1)
        covered = max(covered, end)
    return Hole(covered + 1, MAX_HASH_KEY) if covered < MAX_HASH_KEY else None


class HashRangeAudit:
    """Observes the ranges of the unfinished leases and reports a hole that persists."""

    def __init__(self) -> None:
        self._hole: Hole | None = None
        self._observations = 0

    def observe(self, ranges: Iterable[HashKeyRange]) -> Hole | None:
        """Return the hole if this is its third consecutive observation. A hole that persists is reported once."""
        hole = first_hole(ranges)
        self._observations = self._observations + 1 if hole == self._hole else 1
        self._hole = hole
        return hole if self._observations == CONSECUTIVE_HOLES else None
