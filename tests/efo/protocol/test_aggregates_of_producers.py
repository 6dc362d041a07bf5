"""Rule R17: what a reshard makes a duplicate is filtered out of aggregates, and nothing is lost of any producer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import ClassVar

import aws_kinesis_agg.aggregator as aws
import pytest
from hypothesis import example, given, settings, strategies as st

from efo.model import MAX_HASH_KEY, Checkpoint, HashKeyRange, Lease, Record, Shard
from efo.protocol.aggregation import AGGREGATE_KEY, AggregateEntry, AggregateMode, aggregate, hash_key
from efo.protocol.deaggregation import deaggregate
from efo.protocol.lineage import ancestor_ranges

MIDDLE = (MAX_HASH_KEY + 1) // 2
ALL = HashKeyRange("0", str(MAX_HASH_KEY))
LOWER, UPPER = HashKeyRange("0", str(MIDDLE - 1)), HashKeyRange(str(MIDDLE), str(MAX_HASH_KEY))
QUARTER = HashKeyRange("0", str(MIDDLE // 2 - 1))
KEYS = [f"user-{n}" for n in range(200)]


def in_range(keys: HashKeyRange, count: int, start: int = 0) -> list[str]:
    """Return some partition keys whose hash keys are in a range."""
    return [key for key in KEYS if hash_key(key) in keys][start : start + count]


def read(
    entries: Sequence[AggregateEntry],
    shard: HashKeyRange,
    ancestors: Sequence[HashKeyRange],
    outer: str | None = AGGREGATE_KEY,
    mode: AggregateMode = AggregateMode.DEDUPLICATE,
) -> tuple[list[str], int]:
    """Return the partition keys of the user records that are delivered, and how many are filtered out.

    The same for a small aggregate and for a large one, which is read in parts.
    """
    record = Record("7", 1.0, aggregate(entries), outer)  # type: ignore[arg-type] - AUTO streams have no key
    found = [
        deaggregate(record, shard, mode, ancestors=ancestors, max_fields=max_fields) for max_fields in (10_000, 3, 1)
    ]
    assert found[0] == found[1] == found[2]
    return [user.partition_key for user in found[0].records], found[0].filtered


def of_kpl(*keys: str) -> list[AggregateEntry]:
    return [AggregateEntry(key, b"x") for key in keys]


INSIDE, OUTSIDE = in_range(LOWER, 5), in_range(UPPER, 5)
MIXED = of_kpl(INSIDE[0], OUTSIDE[0], INSIDE[1], OUTSIDE[1], OUTSIDE[0])
"""An aggregate that the KPL made for a shard with all hash keys, and that arrives in its lower child."""


class TestTheKpl:
    def test_what_it_puts_again_is_filtered_out(self):
        assert read(MIXED, LOWER, [ALL]) == ([INSIDE[0], INSIDE[1]], 3)

    def test_of_a_shard_map_that_is_several_generations_old(self):
        near, far = in_range(QUARTER, 3), in_range(UPPER, 2)
        assert read(of_kpl(*near, *far), QUARTER, [LOWER, ALL]) == (near, 2)

    def test_explicit_hash_keys_are_what_counts(self):
        entries = [
            AggregateEntry("x", b"1", "0"),
            AggregateEntry("x", b"2", str(MAX_HASH_KEY)),
            AggregateEntry(INSIDE[0], b"3"),
        ]
        assert read(entries, LOWER, [ALL]) == (["x", INSIDE[0]], 1)

    def test_an_explicit_hash_key_that_is_none_does_not_count(self):
        entries = [AggregateEntry(INSIDE[0], b"1", "undefined"), AggregateEntry(OUTSIDE[0], b"2", "")]
        assert read(entries, LOWER, [ALL]) == ([INSIDE[0]], 1)

    def test_nothing_is_filtered_where_a_merge_has_made_the_shard_larger(self):
        assert read(MIXED, ALL, [LOWER, UPPER]) == ([entry.partition_key for entry in MIXED], 0)

    def test_the_range_of_a_merged_shard_before_the_split_counts_as_a_whole(self):
        # Two quarters were merged, and the result was split elsewhere: the aggregate may be of the merged one.
        merged, child = HashKeyRange("0", str(MIDDLE - 1)), QUARTER
        near, far = in_range(QUARTER, 2), [key for key in in_range(LOWER, 99) if hash_key(key) not in QUARTER][:2]
        assert read(of_kpl(*near, *far), child, [merged, QUARTER, LOWER]) == (near, 2)


class TestWhatIsDelivered:
    EVERYTHING: ClassVar = [entry.partition_key for entry in MIXED]

    def test_what_no_single_ancestor_covers(self):
        assert read(MIXED, LOWER, [LOWER, UPPER, QUARTER])[0] == self.EVERYTHING

    def test_what_has_no_known_ancestor(self):
        assert read(MIXED, LOWER, [])[0] == self.EVERYTHING

    @pytest.mark.parametrize("outer", [MIXED[0].partition_key, OUTSIDE[0], "random", "A", "aa", "", None])
    def test_of_producers_that_put_nothing_again_whatever_their_key_is(self, outer):
        assert read(MIXED, LOWER, [ALL], outer)[0] == self.EVERYTHING

    @pytest.mark.parametrize("place", [0, 2, 5])
    def test_of_those_whose_key_is_that_of_a_user_record_and_happens_to_be_the_kpls(self, place):
        entries = [*MIXED[:place], AggregateEntry("a", b"x"), *MIXED[place:]]
        assert read(entries, LOWER, [ALL])[0] == [entry.partition_key for entry in entries]

    def test_whose_first_user_record_is_outside_the_shard_since_the_kpl_puts_it_where_this_belongs(self):
        assert read(MIXED[::-1], LOWER, [ALL])[0] == self.EVERYTHING[::-1]


@pytest.mark.parametrize(
    ("mode", "delivered"),
    [
        (AggregateMode.KEEP, TestWhatIsDelivered.EVERYTHING),
        (AggregateMode.FILTER, [INSIDE[0], INSIDE[1]]),
        (AggregateMode.DROP, []),
    ],
)
@pytest.mark.parametrize("outer", [AGGREGATE_KEY, "user-1"])
def test_the_other_modes_make_no_difference_between_producers(mode, delivered, outer):
    assert read(MIXED, LOWER, [ALL], outer, mode) == (delivered, len(MIXED) - len(delivered))


@pytest.mark.parametrize("mode", AggregateMode)
def test_an_aggregate_without_a_partition_key_is_kept_whole_in_each_mode(mode):
    assert read(MIXED, LOWER, [ALL], None, mode) == (TestWhatIsDelivered.EVERYTHING, 0)


def test_nothing_is_hashed_where_nothing_can_be_filtered(monkeypatch):
    monkeypatch.setattr("efo.protocol.aggregation.md5", None)
    monkeypatch.setattr("efo.protocol.aggregation.hash_key", None)
    record = Record("7", 1.0, RECORD_OF_ANOTHER, "user-1")
    assert len(deaggregate(record, LOWER, ancestors=[ALL]).records) == len(MIXED)
    assert len(deaggregate(Record("7", 1.0, RECORD_OF_ANOTHER, "a"), LOWER, ancestors=[QUARTER]).records) == len(MIXED)


RECORD_OF_ANOTHER = aggregate(MIXED)

# --- whole histories ---------------------------------------------------------------------------------------


class Stream:
    """A stream that is resharded, its records, and producers of both kinds. `log`: what each shard has, in order."""

    def __init__(self, random: Random, shards: int) -> None:
        self.random = random
        self.open: list[Shard] = []
        self.all: dict[str, Shard] = {}
        self.log: dict[str, list[Record]] = {}
        self.sequence = self.users = 0
        bounds = [n * (MAX_HASH_KEY + 1) // shards for n in range(shards + 1)]
        for start, end in pairwise(bounds):
            self._add(start, end - 1)
        self.maps = [list(self.open) for _ in range(3)]

    def _add(self, start: int, end: int, *parents: str) -> None:
        first, second = (*parents, None, None)[:2]
        shard = Shard(f"{len(self.all):03}", HashKeyRange(str(start), str(end)), "1", None, first, second)
        self.all[shard.shard_id] = shard
        self.open.append(shard)
        self.log[shard.shard_id] = []

    def reshard(self) -> None:
        ordered = sorted(self.open, key=lambda shard: int(shard.hash_key_range.starting_hash_key))
        if len(ordered) > 1 and self.random.random() < 0.4:
            at = self.random.randrange(len(ordered) - 1)
            left, right = ordered[at : at + 2]
            self.open = [shard for shard in self.open if shard not in (left, right)]
            start, end = left.hash_key_range.starting_hash_key, right.hash_key_range.ending_hash_key
            self._add(int(start), int(end), left.shard_id, right.shard_id)
        else:
            parent = self.random.choice(ordered)
            start, end = map(int, (parent.hash_key_range.starting_hash_key, parent.hash_key_range.ending_hash_key))
            middle = (
                (start + end) // 2 if self.random.random() < 0.5 else self.random.randint(start, max(start, end - 1))
            )
            if start < end:
                self.open.remove(parent)
                self._add(start, middle, parent.shard_id)
                self._add(middle + 1, end, parent.shard_id)

    def put(self, outer: str | None, number: int, data: bytes) -> Shard:
        [shard] = [shard for shard in self.open if number in shard.hash_key_range]
        self.sequence += 1
        self.log[shard.shard_id].append(Record(str(self.sequence), 1.0, data, outer))  # type: ignore[arg-type]
        return shard

    def users_with(self, keys: Sequence[str]) -> list[AggregateEntry]:
        self.users += len(keys)
        return [AggregateEntry(key, b"%d" % (self.users - n)) for n, key in enumerate(keys)]

    def put_by_kpl(self) -> None:
        """Put user records as the KPL does: by a shard map that is refreshed when it is found to be old."""
        process = self.random.randrange(len(self.maps))
        waiting = self.users_with(self.random.choices(KEYS, k=self.random.randint(1, 12)))
        while waiting:
            by_shard: dict[str, list[AggregateEntry]] = {}
            for user in waiting:
                predicted = next(s for s in self.maps[process] if hash_key(user.partition_key) in s.hash_key_range)
                by_shard.setdefault(predicted.shard_id, []).append(user)
            waiting = []
            for users in by_shard.values():
                first = hash_key(users[0].partition_key)
                if len(users) == 1:
                    self.put(users[0].partition_key, first, users[0].data)
                else:
                    shard = self.put(AGGREGATE_KEY, first, aggregate(users))
                    waiting += [u for u in users if hash_key(u.partition_key) not in shard.hash_key_range]
            if waiting:
                self.maps[process] = list(self.open)

    def put_by_aws_kinesis_agg(self) -> None:
        """Put user records of any keys by AWS's library, with or without its explicit hash key."""
        aggregator = aws.RecordAggregator()
        for user in self.users_with(self.random.choices(KEYS, k=self.random.randint(1, 12))):
            aggregator.add_user_record(user.partition_key, user.data)
        key, explicit, data = aggregator.clear_and_get().get_contents()
        self.put(key, int(explicit) if explicit and self.random.random() < 0.5 else hash_key(key), bytes(data))

    def put_by_another(self) -> None:
        """Put user records of any keys under a random key, as the plugin of Fluent Bit does, or under none."""
        users = self.users_with(self.random.choices(KEYS, k=self.random.randint(2, 12)))
        outer = self.random.choice((None, f"{self.random.random()}", self.random.choice(users).partition_key))
        self.put(outer, self.random.randint(0, MAX_HASH_KEY), aggregate(users))

    def read(self, mode: AggregateMode, known: float = 1.0) -> Counter[bytes]:
        """Return how often each user record is delivered. `known`: the share of the shards that are still listed."""
        listed = {key: shard for key, shard in self.all.items() if self.random.random() < known}
        found: Counter[bytes] = Counter()
        for key, shard in self.all.items():
            ancestors = ancestor_ranges(key, {}, listed, shard.parents)
            for record in self.log[key]:
                found.update(
                    u.data for u in deaggregate(record, shard.hash_key_range, mode, ancestors=ancestors).records
                )
        return found


def history(seed: int) -> Stream:
    random = Random(seed)
    stream = Stream(random, random.choice((1, 1, 2, 4)))
    deeds = (stream.put_by_kpl, stream.put_by_aws_kinesis_agg, stream.put_by_another, stream.reshard)
    for _ in range(60):
        random.choices(deeds, (6, 2, 2, 3))[0]()
    return stream


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32))
@example(0)
def test_each_user_record_of_each_producer_is_delivered_exactly_once(seed):
    stream = history(seed)
    found = stream.read(AggregateMode.DEDUPLICATE)
    assert found == Counter({b"%d" % n: 1 for n in range(1, stream.users + 1)})


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from((0.0, 0.3, 0.7)))
def test_nothing_is_lost_however_few_ancestors_are_known(seed, known):
    stream = history(seed)
    assert len(stream.read(AggregateMode.DEDUPLICATE, known)) == stream.users


def test_the_histories_have_what_the_rule_is_for():
    streams = [history(seed) for seed in range(20)]
    kept = [sum(stream.read(AggregateMode.KEEP).values()) - stream.users for stream in streams]
    filtered = [stream.users - len(stream.read(AggregateMode.FILTER)) for stream in streams]
    dropped = [stream.users - len(stream.read(AggregateMode.DROP)) for stream in streams]
    assert all(count > 0 for count in kept), "the KPL puts something again"
    assert all(0 < lost < more for lost, more in zip(filtered, dropped, strict=True)), "and the other modes lose some"


# --- the ancestors -----------------------------------------------------------------------------------------


def shard(key: str, keys: tuple[int, int], *parents: str) -> Shard:
    first, second = (*parents, None, None)[:2]
    return Shard(key, HashKeyRange(*map(str, keys)), "1", None, first, second)


class TestAncestors:
    LISTED: ClassVar = {
        each.shard_id: each
        for each in (
            shard("0", (0, 99)),
            shard("1", (100, 199)),
            shard("2", (0, 199), "0", "1"),
            shard("3", (0, 49), "2"),
            shard("4", (0, 29), "3"),
        )
    }

    def ranges(self, key, leases=(), listed=None, parents=()):
        found = ancestor_ranges(
            key, {lease.key: lease for lease in leases}, self.LISTED if listed is None else listed, parents
        )
        return sorted((int(each.starting_hash_key), int(each.ending_hash_key)) for each in found)

    def test_all_generations_that_are_listed(self):
        assert self.ranges("4") == [(0, 49), (0, 99), (0, 199), (100, 199)]
        assert self.ranges("0") == self.ranges("unknown") == []

    def test_those_that_only_leases_know(self):
        leases = [
            Lease("4", Checkpoint.TRIM_HORIZON, parents=("3",)),
            Lease("3", Checkpoint.SHARD_END, parents=("2",), hash_key_range=HashKeyRange("0", "49")),
            Lease("2", Checkpoint.SHARD_END),  # made by another library, without a range
        ]
        assert self.ranges("4", leases, listed={}) == [(0, 49)]
        assert self.ranges("4", leases) == [(0, 49), (0, 99), (0, 199), (100, 199)]

    def test_those_that_the_caller_knows_of_a_child_without_a_lease_that_no_listing_has_yet(self):
        assert self.ranges("new", parents=("4",)) == [(0, 29), (0, 49), (0, 99), (0, 199), (100, 199)]

    def test_damaged_rows_whose_parents_are_a_circle_end(self):
        circle = [Lease(key, Checkpoint.TRIM_HORIZON, parents=(other,)) for key, other in (("8", "9"), ("9", "8"))]
        assert self.ranges("8", circle) == []
        listed = {"8": shard("8", (0, 1), "9"), "9": shard("9", (0, 2), "8")}
        assert self.ranges("8", listed=listed) == [(0, 1), (0, 2)]
