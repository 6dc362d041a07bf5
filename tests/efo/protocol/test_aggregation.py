"""KPL aggregates: round trips, and interoperability with AWS's Python library."""

import base64
from hashlib import md5

import pytest
from aws_kinesis_agg import aggregator, deaggregator, messages_pb2
from hypothesis import example, given, strategies as st

from efo.model import MAX_HASH_KEY, HashKeyRange, Record
from efo.protocol import aggregation, deaggregation
from efo.protocol.aggregation import (
    MAGIC,
    AggregateEntry,
    AggregateMode,
    HashRangeFilter,
    aggregate,
    digest_of,
    hash_key,
    is_aggregate,
)
from efo.protocol.deaggregation import Deaggregation, deaggregate

ALL_KEYS = HashKeyRange("0", str(MAX_HASH_KEY))
ENTRIES = [
    AggregateEntry("a", b"one"),
    AggregateEntry("b", b"", "0"),
    AggregateEntry("a", b"three", str(MAX_HASH_KEY)),
    AggregateEntry("ü" * 200, b"\xff" * 300, "0"),
]


def outer(data):
    """Return a Kinesis record with this data."""
    return Record("42", 1700000000.5, data, "outer key", "KMS")


def entries_of(deaggregation):
    """Return the entries that the producer aggregated."""
    return [(user.partition_key, user.data, user.explicit_hash_key) for user in deaggregation.records]


class TestRoundTrip:
    def test_aggregated_entries_are_expanded_in_order(self):
        deaggregation = deaggregate(outer(aggregate(ENTRIES)))
        assert entries_of(deaggregation) == ENTRIES
        assert (deaggregation.filtered, deaggregation.problem) == (0, None)

    def test_user_records_inherit_the_fields_of_the_kinesis_record(self):
        users = deaggregate(outer(aggregate(ENTRIES))).records
        assert [user.sub_sequence_number for user in users] == [0, 1, 2, 3]
        assert {(u.sequence_number, u.approximate_arrival_timestamp, u.encryption_type) for u in users} == {
            ("42", 1700000000.5, "KMS")
        }

    def test_a_plain_record_expands_to_itself(self):
        for data in (b"", b"plain", MAGIC[:3], b" " + MAGIC):
            record = outer(data)
            assert deaggregate(record, ALL_KEYS) == Deaggregation((record,))
            assert not is_aggregate(record)

    @given(
        st.lists(
            st.builds(
                AggregateEntry,
                st.text(min_size=1, max_size=30),
                st.binary(max_size=300),
                st.none() | st.integers(0, MAX_HASH_KEY).map(str),
            ),
            min_size=1,
        )
    )
    @example([AggregateEntry(f"key {n}", b"x", str(n)) for n in range(300)])
    def test_arbitrary_entries_survive_a_round_trip(self, entries):
        record = outer(aggregate(entries))
        assert entries_of(deaggregate(record, ALL_KEYS)) == entries
        message = messages_pb2.AggregatedRecord.FromString(record.data[4:-16])
        assert [r.data for r in message.records] == [entry.data for entry in entries]


class TestInteroperability:
    """aws_kinesis_agg: the library that AWS publishes for producers and consumers without the KPL."""

    def test_efo_expands_an_aggregate_of_aws_kinesis_agg(self):
        record_aggregator = aggregator.RecordAggregator()
        entries = [AggregateEntry(f"key {n % 7}", b"%d" % n, str(n % 5)) for n in range(200)]
        for entry in entries:
            assert record_aggregator.add_user_record(entry.partition_key, entry.data, entry.explicit_hash_key) is None
        key, explicit, data = record_aggregator.clear_and_get().get_contents()
        assert (key, explicit) == ("key 0", "0")
        assert entries_of(deaggregate(outer(bytes(data)), ALL_KEYS)) == entries

    def test_aws_kinesis_agg_deaggregates_an_aggregate_of_efo(self):
        entries = [AggregateEntry(f"key {n % 7}", b"%d" % n, str(n % 5)) for n in range(200)]
        assert _deaggregate_with_aws_library(entries) == entries

    def test_aws_kinesis_agg_deaggregates_an_aggregate_without_explicit_hash_keys(self):
        entries = [AggregateEntry(f"key {n % 7}", b"%d" % n) for n in range(200)]
        assert _deaggregate_with_aws_library(entries) == entries


def _deaggregate_with_aws_library(entries):
    record = {
        "SequenceNumber": "42",
        "ApproximateArrivalTimestamp": 1.0,
        "PartitionKey": "outer key",
        "Data": aggregate(entries),
    }
    users = [user["kinesis"] for user in deaggregator.iter_deaggregate_records([record], data_format="Boto3")]
    return [(u["partitionKey"], base64.b64decode(u["data"]), u["explicitHashKey"]) for u in users]


class TestShardFilter:
    def test_both_ends_of_a_range_are_kept(self):
        own = hash_key("k")
        assert HashRangeFilter(HashKeyRange(str(own), str(own))).keeps(["k", "l", "k"]) == [True, False, True]
        assert HashRangeFilter(HashKeyRange(str(own + 1), str(MAX_HASH_KEY))).keeps(["k"]) == [False]
        assert HashRangeFilter(HashKeyRange("0", str(own - 1))).keeps(["k"]) == [False]

    @given(st.text(), st.integers(0, MAX_HASH_KEY), st.integers(0, MAX_HASH_KEY))
    @example("k", 9, 10)
    def test_a_hash_key_is_kept_if_its_number_is_in_the_range(self, key, one, other):
        shard = HashKeyRange(str(min(one, other)), str(max(one, other)))
        shard_filter = HashRangeFilter(shard)
        assert shard_filter.keeps([key]) == [hash_key(key) in shard]
        for number in (one, other, hash_key(key), 0, MAX_HASH_KEY, 10**20):
            assert shard_filter.keeps_hash_key(str(number)) is (number in shard)

    def test_leading_zeros_do_not_change_a_hash_key(self):
        assert HashRangeFilter(HashKeyRange("007", "0010")).keeps_hash_key("09")

    @pytest.mark.parametrize(
        ("shard", "mode", "keeps_all"),
        [
            (None, AggregateMode.FILTER, True),
            (ALL_KEYS, AggregateMode.DROP, True),
            (HashKeyRange("1", str(MAX_HASH_KEY)), AggregateMode.FILTER, False),
            (HashKeyRange("0", str(MAX_HASH_KEY - 1)), AggregateMode.DROP, False),
            (HashKeyRange("0", "1"), AggregateMode.KEEP, True),
            (HashKeyRange("0", "1"), AggregateMode.DEDUPLICATE, True),
        ],
    )
    def test_no_hash_key_is_needed_where_the_shard_keeps_all(self, shard, mode, keeps_all):
        shard_filter = HashRangeFilter(shard, mode)
        assert shard_filter.keeps_all is keeps_all
        bounds = None if keeps_all else (int(shard.starting_hash_key), int(shard.ending_hash_key))
        assert shard_filter.kept == (bounds and tuple(bound.to_bytes(16) for bound in bounds))

    @pytest.mark.parametrize(
        ("ancestor", "keeps_all"),
        [(("0", "9"), False), (("6", "20"), False), (("5", "9"), True), (("6", "8"), True), (("4", "9"), False)],
    )
    def test_only_an_ancestor_with_other_hash_keys_gives_a_reason_to_look_at_them(self, ancestor, keeps_all):
        shard_filter = HashRangeFilter(HashKeyRange("5", "9"), AggregateMode.DEDUPLICATE, [HashKeyRange(*ancestor)])
        assert shard_filter.keeps_all is keeps_all

    @given(st.lists(st.integers(0, 30), min_size=1), st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30))))
    @example([0, 9], [(0, 4), (4, 9)])
    def test_an_aggregate_is_put_again_if_one_ancestor_has_all_its_hash_keys(self, numbers, bounds):
        ancestors = [HashKeyRange(str(min(pair)), str(max(pair))) for pair in bounds]
        shard_filter = HashRangeFilter(HashKeyRange("40", "41"), AggregateMode.DEDUPLICATE, ancestors)
        digests = [digest_of(b"", str(number)) for number in numbers]
        expected = any(all(number in ancestor for number in numbers) for ancestor in ancestors)
        assert shard_filter.is_put_again(min(digests), max(digests)) is expected


def test_md5_is_never_used_for_security_since_some_hosts_refuse_that(monkeypatch):
    """As hosts in FIPS mode do."""

    def refusing_md5(data, *, usedforsecurity=True):
        assert not usedforsecurity
        return md5(data, usedforsecurity=False)

    monkeypatch.setattr(aggregation, "md5", refusing_md5)
    monkeypatch.setattr(deaggregation, "md5", refusing_md5)
    entries = [AggregateEntry(key, b"x") for key in "kl"]
    shard = HashKeyRange(str(hash_key("k")), str(hash_key("k")))
    assert entries_of(deaggregate(outer(aggregate(entries)), shard, AggregateMode.FILTER)) == entries[:1]
