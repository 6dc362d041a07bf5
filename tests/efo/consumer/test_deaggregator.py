"""From the records of events to user records, in parts: their limits, rule R5, and what is reported."""

import pytest

from efo import events
from efo.consumer.deaggregator import MAX_BYTES, MAX_RECORDS, Deaggregator, EventPart
from efo.model import MAX_HASH_KEY, Checkpoint, HashKeyRange, Record, checkpoint_of
from efo.protocol.aggregation import MAGIC, AggregateEntry, AggregateMode, aggregate, hash_key

START = Checkpoint.TRIM_HORIZON


class Environment:
    """A deaggregator, and the events that it reported."""

    def __init__(self, shard=None):
        self.seen = []
        self.deaggregator = Deaggregator("shard", shard, AggregateMode.FILTER, self.seen.append)

    def parts(self, *data, after=START):
        records = tuple(Record(str(number), 1.0, content, "outer") for number, content in enumerate(data, 1))
        return list(self.deaggregator.deaggregate(records, after))


def users_of(parts):
    return [user for part in parts for user in part.records]


def filtered(sequence_number, records):
    return events.RecordsFiltered("shard", sequence_number, records, AggregateMode.FILTER)


def empty(count, key="k"):
    """Return an aggregate of this many empty user records."""
    return aggregate([AggregateEntry(key, b"")] * count)


class TestParts:
    @pytest.mark.parametrize("data", [(), (b"a", b"b"), (b"a", empty(3), b"c"), (empty(0),), (empty(MAX_RECORDS),)])
    def test_a_small_event_is_one_part(self, data):
        [part] = Environment().parts(*data)
        assert part.is_last

    @pytest.mark.parametrize("byte", [b"\0", b"\xff"], ids=["below MAGIC", "above it"])
    def test_plain_records_are_not_split(self, byte):
        data = [byte * 1024 * 1024] * 20
        [part] = Environment().parts(*data)
        assert [user.data for user in part.records] == data

    @pytest.mark.parametrize("sizes", [(6000, 6000, 3000), (MAX_RECORDS, 1), (MAX_RECORDS + 1,), (25_000, 3, 12_000)])
    def test_a_part_has_at_most_ten_thousand_user_records(self, sizes):
        parts = Environment().parts(*map(empty, sizes))
        assert len(parts) > 1
        assert max(len(part.records) for part in parts) <= MAX_RECORDS
        assert [part.is_last for part in parts] == [False] * (len(parts) - 1) + [True]
        expected = [(str(n), sub) for n, size in enumerate(sizes, 1) for sub in range(size)]
        assert [(user.sequence_number, user.sub_sequence_number) for user in users_of(parts)] == expected

    def test_a_part_has_at_most_eight_mebibytes_unless_one_record_is_larger(self):
        large, small = bytes(MAX_BYTES + 1), aggregate([AggregateEntry("k", bytes(1024 * 1024 - 100))])
        sizes = [len(part.records) for part in Environment().parts(*[small] * 20, large, small)]
        assert sizes == [8, 8, 4, 1, 1]

    def test_a_large_aggregate_has_parts_of_a_mebibyte_and_a_record(self):
        data = aggregate([AggregateEntry(f"key {n}", bytes(300_000)) for n in range(30)])
        sizes = [sum(len(user.data) for user in part.records) for part in Environment().parts(data)]
        assert sum(sizes) == 30 * 300_000
        assert max(sizes) <= 1024 * 1024 + 300_000

    def test_filtered_records_count_as_work_but_are_no_records(self):
        shard = HashKeyRange("0", str(hash_key("k") - 1))
        env = Environment(shard)
        parts = env.parts(empty(6000), empty(6000), b"plain")
        assert [len(part.records) for part in parts] == [0, 1]
        assert env.seen == [filtered("1", 6000), filtered("2", 6000)]

    def test_a_large_aggregate_with_strays_is_reported_once(self):
        keys = [str(n) for n in range(99)]
        own = next(key for key in keys if hash_key(key) <= MAX_HASH_KEY // 2)
        other = next(key for key in keys if hash_key(key) > MAX_HASH_KEY // 2)
        env = Environment(HashKeyRange("0", str(MAX_HASH_KEY // 2)))
        parts = env.parts(aggregate([AggregateEntry(own if n % 3 else other, b"") for n in range(30_000)]))
        assert env.seen == [filtered("1", 10_000)]
        assert [user.sub_sequence_number for user in users_of(parts)] == [n for n in range(30_000) if n % 3]

    def test_a_poison_record_is_passed_on_whole_and_reported(self):
        env = Environment()
        data = empty(25_000, "p" * 100_000)
        users = users_of(env.parts(b"before", data, b"after"))
        assert [user.data for user in users] == [b"before", data, b"after"]
        [report] = env.seen
        assert (report.sequence_number, report.problem) == (
            "2",
            "the partition key of a user record has not 1 to 256 characters",
        )

    def test_damage_is_reported_and_passed_on(self):
        env = Environment()
        [part] = env.parts(b"before", MAGIC, b"after")
        assert [user.data for user in part.records] == [b"before", MAGIC, b"after"]
        assert env.seen == [events.AggregateDamaged("shard", "2", "the record is too short for an aggregate")]


class TestCheckpoints:
    """Rule R5: a subscription starts AT the checkpoint, so that the record of the checkpoint comes again."""

    @pytest.mark.parametrize("after", [("1", 0), ("1", 2), ("2", 0), ("2", 24_999), ("3", 0), ("4", 0)])
    def test_what_is_not_after_the_checkpoint_is_removed(self, after):
        env = Environment()
        data = (empty(5), empty(25_000), b"plain")
        expected = [user for user in users_of(env.parts(*data)) if checkpoint_of(user) > Checkpoint(*after)]
        parts = env.parts(*data, after=Checkpoint(*after))
        assert users_of(parts) == expected
        assert [part.is_last for part in parts].index(True) == len(parts) - 1

    def test_plain_records_up_to_the_checkpoint_are_removed(self):
        assert Environment().parts(b"a", b"b", after=Checkpoint("1")) == [
            EventPart((Record("2", 1.0, b"b", "outer"),), True)
        ]
