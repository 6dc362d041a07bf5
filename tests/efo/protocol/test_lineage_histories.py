"""Random histories of splits, merges, crashes, stale listings and shards past their retention.

The model knows the true lineage. For any order of events: no shard starts after one of its descendants, no child of a
started shard starts at LATEST, and in the end every shard is reached.
"""

from dataclasses import replace
from itertools import pairwise

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from efo.model import Checkpoint, ChildShard, HashKeyRange, Shard
from efo.protocol.lineage import child_leases, deletable_leases, is_startable, leases_to_create

BEGUN = Checkpoint("1")
PICK = st.integers(min_value=0, max_value=99)


class Histories(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.sequence = 0
        self.shards = {}  # all shards that ever existed
        self.trimmed = set()
        self.leases = {}
        self.listing = []
        self.started = set()

    # --- the stream ---

    @initialize(
        count=st.integers(min_value=1, max_value=4),
        initial=st.sampled_from([Checkpoint.LATEST, Checkpoint.TRIM_HORIZON, Checkpoint.AT_TIMESTAMP]),
    )
    def create_stream(self, count, initial):
        self.initial = initial
        for number in range(count):
            self.open_shard((), number * 1000, number * 1000 + 999)

    @rule(pick=PICK)
    def split(self, pick):
        parent = self.pick(self.open_shards(), pick)
        low, high = self.hash_keys(parent)
        if low < high:
            middle = (low + high) // 2
            self.close(parent)
            self.open_shard((parent.shard_id,), low, middle)
            self.open_shard((parent.shard_id,), middle + 1, high)

    @rule(pick=PICK)
    def merge(self, pick):
        pairs = list(pairwise(sorted(self.open_shards(), key=self.hash_keys)))
        if pairs:
            left, right = self.pick(pairs, pick)
            self.close(left)
            self.close(right)
            parents = (left.shard_id, right.shard_id)
            self.open_shard(parents, self.hash_keys(left)[0], self.hash_keys(right)[1])

    @rule()
    def trim(self):
        """Remove the shard that was closed first: it has passed its retention."""
        closed = [shard for shard in self.existing() if not shard.is_open]
        if closed:
            self.trimmed.add(min(closed, key=lambda shard: int(shard.ending_sequence_number)).shard_id)

    # --- the workers ---

    @rule()
    def list_shards(self):
        self.listing = self.existing()

    @rule(limit=st.integers(min_value=0, max_value=5))
    def sync(self, limit):
        """Create missing leases. Crash after `limit` of them; 5 means no crash."""
        missing = leases_to_create(self.listing, self.leases, self.initial)
        for lease in missing if limit == 5 else missing[:limit]:
            assert lease.key not in self.leases
            assert lease.checkpoint != Checkpoint.LATEST or not self.started.intersection(lease.parents)
            self.leases[lease.key] = lease
        if limit == 5:
            assert leases_to_create(self.listing, self.leases, self.initial) == []
            assert {shard.shard_id for shard in self.listing if shard.is_open} <= self.reached(self.listing)

    @precondition(lambda self: self.ready())
    @rule(pick=PICK, begin=st.booleans())
    def start(self, pick, begin):
        lease = self.pick(self.ready(), pick)
        if lease.key not in self.trimmed:  # no records of a trimmed shard are read, so its order does not matter
            assert not [key for key in self.started if lease.key in self.ancestors(key)], "a descendant started first"
        existing = self.ancestors(lease.key) & self.leases.keys() - self.trimmed
        assert all(self.leases[key].is_finished for key in existing)
        self.started.add(lease.key)
        if begin and lease.checkpoint.is_sentinel:
            self.leases[lease.key] = replace(lease, checkpoint=BEGUN)

    @precondition(lambda self: self.at_end())
    @rule(pick=PICK, limit=st.integers(min_value=0, max_value=3))
    def finish(self, pick, limit):
        """End a shard. Crash after `limit` child leases; 3 means no crash."""
        lease = self.pick(self.at_end(), pick)
        children = [] if lease.key in self.trimmed else self.children(lease.key)
        for child in child_leases(children, self.leases)[:limit]:
            self.leases[child.key] = child
        if limit == 3:
            ids = tuple(child.shard_id for child in children)
            self.leases[lease.key] = replace(self.leases[lease.key], checkpoint=Checkpoint.SHARD_END, children=ids)

    @rule()
    def clean_up(self):
        """Delete leases by a listing that may be stale. No later step may need a deleted lease."""
        before = dict(self.leases)
        for key in deletable_leases(self.leases, self.listing):
            assert self.leases[key].is_finished
            del self.leases[key]
        assert [key for key in self.leases if is_startable(self.leases[key], self.leases)] == [
            key for key in self.leases if is_startable(before[key], before)
        ]

    def teardown(self):
        """Assert that in the end every open shard is being read and no shard was left out."""
        if not self.shards:
            return
        for _ in range(2 * len(self.shards)):
            self.list_shards()
            self.sync(limit=5)
            while self.ready():
                self.start(pick=0, begin=True)
            while self.at_end():
                self.finish(pick=0, limit=3)
        assert {shard.shard_id for shard in self.open_shards()} <= self.started
        expected = self.reached(self.existing()) if self.initial == Checkpoint.LATEST else set(self.shards)
        assert expected - self.trimmed <= self.started

    # --- the model ---

    def pick(self, items, number):
        return items[number % len(items)]

    def existing(self):
        return [shard for shard in self.shards.values() if shard.shard_id not in self.trimmed]

    def open_shards(self):
        return [shard for shard in self.shards.values() if shard.is_open]

    def ready(self):
        return [
            lease
            for lease in self.leases.values()
            if lease.key not in self.started and is_startable(lease, self.leases)
        ]

    def at_end(self):
        return [
            lease
            for lease in self.leases.values()
            if lease.key in self.started and not lease.is_finished and not self.shards[lease.key].is_open
        ]

    def open_shard(self, parents, low, high):
        self.sequence += 1
        name = f"s{len(self.shards)}"
        parent, adjacent = (*parents, None, None)[:2]
        self.shards[name] = Shard(name, HashKeyRange(str(low), str(high)), str(self.sequence), None, parent, adjacent)

    def close(self, shard):
        self.sequence += 1
        self.shards[shard.shard_id] = replace(shard, ending_sequence_number=str(self.sequence))

    def hash_keys(self, shard):
        keys = shard.hash_key_range
        return int(keys.starting_hash_key), int(keys.ending_hash_key)

    def reached(self, known):
        """Return the shards that have a lease or descend from one. A trimmed shard without a lease breaks the chain."""
        known = {shard.shard_id for shard in known}
        found = set(self.leases)
        for key, shard in self.shards.items():  # parents come first
            if key in known and found.intersection(shard.parents):
                found.add(key)
        return found

    def children(self, key):
        return [
            ChildShard(child.shard_id, child.parents, child.hash_key_range)
            for child in self.shards.values()
            if key in child.parents
        ]

    def ancestors(self, key):
        parents = set(self.shards[key].parents)
        return parents.union(*(self.ancestors(parent) for parent in parents))


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, derandomize=True, database=None
)
