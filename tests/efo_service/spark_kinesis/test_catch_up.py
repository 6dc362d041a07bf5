"""When a log holds what was in a stream: nothing from before is ever missing, whatever the relay and reshards do."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings, strategies as st

from efo.model import Checkpoint, ChildShard, HashKeyRange, Lease, Position, Record, Shard, checkpoint_of
from efo.protocol.lineage import child_leases, is_startable, leases_to_create
from efo_service.spark_kinesis.catch_up import MARGIN, CatchUp

KEYS = 2**16
JITTER = 2.0
"""Seconds by which arrival times differ from when a record was put."""


@dataclass
class FakeShard:
    shard: Shard
    records: list[tuple[Record, float]] = field(default_factory=list)
    """With the time at which each was put."""


class World:
    """A stream, and a relay that reads it in small steps. Time moves with `tick` alone."""

    def __init__(self, shards: int, initial: Position) -> None:
        self.now = 1000.0
        self.initial = initial
        self.shards: list[FakeShard] = []
        self.leases: dict[str, Lease] = {}
        self._sequence = 10
        for number in range(shards):
            self._open(number * KEYS // shards, (number + 1) * KEYS // shards - 1, ())

    def _open(self, start: int, end: int, parents: tuple[str, ...]) -> None:
        self._sequence += 1
        parent, adjacent = (*parents, None, None)[:2]
        shard = Shard(
            f"shardId-{len(self.shards):012}",
            HashKeyRange(str(start), str(end)),
            str(self._sequence),
            None,
            parent,
            adjacent,
        )
        self.shards.append(FakeShard(shard))

    @property
    def open(self) -> list[FakeShard]:
        return [shard for shard in self.shards if shard.shard.is_open]

    def do(self, name: str, number: int, jitter: float) -> None:
        self.now += 0.1
        match name:
            case "put":
                self.put(number, jitter)
            case "tick":
                self.now += number
            case "sync":
                self.shard_sync()
            case _:
                {"relay": self.relay, "split": self.split, "merge": self.merge}[name](number)

    def put(self, number: int, jitter: float) -> None:
        self._sequence += 1
        shard = self.open[number % len(self.open)]
        shard.records.append((Record(str(self._sequence), self.now + jitter, b"", "key"), self.now))

    def split(self, number: int) -> None:
        shard = self.open[number % len(self.open)]
        keys = shard.shard.hash_key_range
        start, end = int(keys.starting_hash_key), int(keys.ending_hash_key)
        if start < end:
            self._close(shard)
            self._open(start, (start + end) // 2, (shard.shard.shard_id,))
            self._open((start + end) // 2 + 1, end, (shard.shard.shard_id,))

    def merge(self, number: int) -> None:
        by_keys = sorted(self.open, key=lambda shard: int(shard.shard.hash_key_range.starting_hash_key))
        if len(by_keys) > 1:
            first, second = by_keys[number % (len(by_keys) - 1) :][:2]
            self._close(first)
            self._close(second)
            keys = int(first.shard.hash_key_range.starting_hash_key), int(second.shard.hash_key_range.ending_hash_key)
            self._open(*keys, (first.shard.shard_id, second.shard.shard_id))

    def _close(self, shard: FakeShard) -> None:
        self._sequence += 1
        shard.shard = replace(shard.shard, ending_sequence_number=str(self._sequence))

    def listing(self) -> list[Shard]:
        return [shard.shard for shard in self.shards]

    def shard_sync(self) -> None:
        for lease in leases_to_create(self.listing(), self.leases, Checkpoint(self.initial.type.value)):
            at = self.now if lease.checkpoint == Checkpoint.LATEST else None
            self.leases[lease.key] = replace(lease, latest_at=at)

    def relay(self, number: int) -> None:
        """Commit the next record of a shard, or end it (rule R2)."""
        shard = self.shards[number % len(self.shards)]
        key = shard.shard.shard_id
        lease = self.leases.get(key)
        if lease is None or lease.is_finished or not is_startable(lease, self.leases):
            return
        following = self.following(lease)
        if following:
            self.leases[key] = replace(lease, checkpoint=checkpoint_of(following[0]))
        elif not shard.shard.is_open:
            children = [
                ChildShard(child.shard.shard_id, child.shard.parents, child.shard.hash_key_range)
                for child in self.shards
                if key in child.shard.parents
            ]
            self.leases |= {child.key: child for child in child_leases(children, self.leases)}
            self.leases[key] = replace(lease, checkpoint=Checkpoint.SHARD_END)

    def following(self, lease: Lease) -> list[Record]:
        records = next(shard.records for shard in self.shards if shard.shard.shard_id == lease.key)
        if lease.latest_at is not None and lease.checkpoint == Checkpoint.LATEST:
            return [record for record, put_at in records if put_at >= lease.latest_at]
        if lease.checkpoint.is_sentinel:
            return [record for record, _ in records]
        return [record for record, _ in records if checkpoint_of(record) > lease.checkpoint]

    def look(self, catch_up: CatchUp, page: int = 3) -> None:
        """One round, as `Probe` makes it. A page may be empty before the tip."""
        for lease in catch_up.sync(self.listing(), self.leases):
            shard = next(shard.shard for shard in self.shards if shard.shard.shard_id == lease.key)
            following = self.following(lease)
            read = following[:page]
            is_all = len(read) == len(following)
            is_end = is_all and not shard.is_open
            catch_up.accept(lease.key, read, 0 if is_all and shard.is_open else 1, is_end=is_end)
        catch_up.sync(self.listing(), self.leases)

    def missing(self, until: float) -> list[str]:
        """Return the records that were put before a time and are not committed."""
        lost = []
        for shard in self.shards:
            lease = self.leases.get(shard.shard.shard_id)
            before = {record.sequence_number for record, put_at in shard.records if put_at < until}
            if lease is None:
                lost += before
            elif not lease.is_finished:
                lost += before.intersection(record.sequence_number for record in self.following(lease))
        return lost


def operations(*names: str) -> st.SearchStrategy[list[tuple[str, int, float]]]:
    return st.lists(st.tuples(st.sampled_from(names), st.integers(0, 20), st.floats(-JITTER, JITTER)), max_size=40)


BEFORE = operations("put", "put", "relay", "relay", "relay", "split", "merge", "tick", "sync")
AFTER = operations("put", "relay", "relay", "split", "merge", "tick", "sync", "look", "look", "look")


@settings(max_examples=300, deadline=None)
@given(shards=st.integers(1, 2), before=BEFORE, after=AFTER)
def test_every_record_of_before_is_committed_when_all_shards_are_passed(shards, before, after):
    world = World(shards, Position.trim_horizon())
    world.shard_sync()
    for name, number, jitter in before:
        world.do(name, number, jitter)
    world.now += 0.1
    catch_up = CatchUp(world.now, world.initial)
    for name, number, jitter in after:
        if name == "look":
            world.look(catch_up)
            assert not (catch_up.is_complete and world.missing(catch_up.until))
        else:
            world.do(name, number, jitter)
    # It ends, once everything is relayed.
    for _ in range(sum(len(shard.records) + 2 for shard in world.shards)):
        world.shard_sync()
        for number in range(len(world.shards)):
            world.relay(number)
    world.look(catch_up)
    assert catch_up.is_complete
    assert not world.missing(catch_up.until)


def one_shard(initial: Position = Position.trim_horizon()) -> tuple[World, CatchUp]:  # noqa: B008 - it is frozen
    world = World(1, initial)
    world.shard_sync()
    return world, CatchUp(world.now, initial)


def test_an_empty_page_before_the_tip_proves_nothing():
    world, catch_up = one_shard()
    (lease,) = catch_up.sync(world.listing(), world.leases)
    assert not catch_up.accept(lease.key, [], 1, is_end=False)
    assert catch_up.accept(lease.key, [], 0, is_end=False)


def test_records_that_arrived_within_the_margin_count_as_before():
    world, catch_up = one_shard()
    (lease,) = catch_up.sync(world.listing(), world.leases)
    assert not catch_up.accept(lease.key, [Record("99", catch_up.until + MARGIN - 0.001, b"", "k")], 0, is_end=False)
    assert catch_up.accept(lease.key, [Record("99", catch_up.until + MARGIN, b"", "k")], 9000, is_end=False)


def test_a_shard_without_a_lease_waits_for_the_shard_sync():
    world = World(2, Position.trim_horizon())
    catch_up = CatchUp(world.now, world.initial)
    assert catch_up.sync(world.listing(), {}) == []
    assert not catch_up.is_complete


def test_with_latest_shards_that_ended_before_are_not_waited_for():
    world = World(1, Position.latest())
    world.put(0, 0.0)
    world.split(0)
    world.shard_sync()
    catch_up = CatchUp(world.now, world.initial)
    world.look(catch_up)
    assert catch_up.is_complete


@pytest.mark.parametrize(
    ("lease", "initial", "expected"),
    [
        (Lease("s", Checkpoint("77", 3)), Position.trim_horizon(), Position.at("77")),
        (Lease("s", Checkpoint.TRIM_HORIZON), Position.latest(), Position.trim_horizon()),
        (Lease("s", Checkpoint.LATEST, latest_at=5.0), Position.latest(), Position.at_timestamp(5.0)),
        (Lease("s", Checkpoint.LATEST), Position.latest(), None),
        (Lease("s", Checkpoint.AT_TIMESTAMP), Position.at_timestamp(7.0), Position.at_timestamp(7.0)),
        (Lease("s", Checkpoint.AT_TIMESTAMP, latest_at=5.0), Position.latest(), Position.at_timestamp(5.0)),
    ],
)
def test_what_follows_is_read_at_the_checkpoint(lease, initial, expected):
    assert CatchUp(1000.0, initial).position(lease) == expected
