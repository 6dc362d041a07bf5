"""KPL aggregates: round trips, interoperability with AWS's Python library, and damage that loses no data."""

import base64
from hashlib import md5

import pytest
from aws_kinesis_agg import aggregator, deaggregator, messages_pb2
from hypothesis import example, given
from hypothesis import strategies as st

from efo.model import MAX_HASH_KEY, HashKeyRange, Record
from efo.protocol.aggregation import (
    MAGIC,
    AggregateMode,
    Deaggregation,
    Entry,
    aggregate,
    deaggregate,
    hash_key,
    is_aggregate,
)

ALL_KEYS = HashKeyRange("0", str(MAX_HASH_KEY))
ENTRIES = [
    Entry("a", b"one"),
    Entry("b", b"", "0"),
    Entry("a", b"three", str(MAX_HASH_KEY)),
    Entry("ü" * 200, b"\xff" * 300, "0"),
]


def outer(data):
    """Return a Kinesis record with this data."""
    return Record("42", 1700000000.5, data, "outer key", "KMS")


def aggregate_record(message):
    """Return a record with an aggregate of this protobuf message and the correct MD5."""
    return outer(MAGIC + message + md5(message, usedforsecurity=False).digest())


def proto(keys=("k",), hashes=(), records=()):
    """Return an AggregatedRecord as Google's protobuf library writes it. `records`: the fields of each record."""
    message = messages_pb2.AggregatedRecord(partition_key_table=keys, explicit_hash_key_table=hashes)
    for fields in records:
        message.records.add(**fields)
    return message.SerializePartialToString()


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
                Entry,
                st.text(min_size=1, max_size=30),
                st.binary(max_size=300),
                st.none() | st.integers(0, MAX_HASH_KEY).map(str),
            ),
            min_size=1,
        )
    )
    @example([Entry(f"key {n}", b"x", str(n)) for n in range(300)])
    def test_arbitrary_entries_survive_a_round_trip(self, entries):
        record = outer(aggregate(entries))
        assert entries_of(deaggregate(record, ALL_KEYS)) == entries
        message = messages_pb2.AggregatedRecord.FromString(record.data[4:-16])
        assert [r.data for r in message.records] == [entry.data for entry in entries]


class TestInteroperability:
    """aws_kinesis_agg: the library that AWS publishes for producers and consumers without the KPL."""

    def test_efo_expands_an_aggregate_of_aws_kinesis_agg(self):
        record_aggregator = aggregator.RecordAggregator()
        entries = [Entry(f"key {n % 7}", b"%d" % n, str(n % 5)) for n in range(200)]
        for entry in entries:
            assert record_aggregator.add_user_record(entry.partition_key, entry.data, entry.explicit_hash_key) is None
        key, explicit, data = record_aggregator.clear_and_get().get_contents()
        assert (key, explicit) == ("key 0", "0")
        assert entries_of(deaggregate(outer(bytes(data)), ALL_KEYS)) == entries

    def test_aws_kinesis_agg_deaggregates_an_aggregate_of_efo(self):
        entries = [Entry(f"key {n % 7}", b"%d" % n, str(n % 5)) for n in range(200)]
        assert _deaggregate_with_aws_library(entries) == entries

    def test_aws_kinesis_agg_deaggregates_an_aggregate_without_explicit_hash_keys(self):
        entries = [Entry(f"key {n % 7}", b"%d" % n) for n in range(200)]
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


class TestModes:
    LOW = HashKeyRange("0", "99")
    ENTRIES = (Entry("a", b"low", "99"), Entry("b", b"high", "100"), Entry("c", b"low too", "0"))

    @pytest.mark.parametrize(
        ("mode", "kept", "filtered"),
        [
            (AggregateMode.FILTER, [b"low", b"low too"], 1),
            (AggregateMode.DROP, [], 3),
            (AggregateMode.KEEP, [b"low", b"high", b"low too"], 0),
        ],
    )
    @pytest.mark.scenario("G68")
    def test_the_mode_decides_about_records_of_another_shard(self, mode, kept, filtered):
        deaggregation = deaggregate(outer(aggregate(self.ENTRIES)), self.LOW, mode)
        assert [user.data for user in deaggregation.records] == kept
        assert (deaggregation.filtered, deaggregation.problem) == (filtered, None)

    @pytest.mark.parametrize("mode", AggregateMode)
    @pytest.mark.scenario("G67")
    def test_no_record_within_the_range_is_filtered_out(self, mode):
        entries = (self.ENTRIES[0], self.ENTRIES[2])
        deaggregation = deaggregate(outer(aggregate(entries)), self.LOW, mode)
        assert (entries_of(deaggregation), deaggregation.filtered) == (list(entries), 0)

    @pytest.mark.parametrize("mode", AggregateMode)
    def test_no_record_is_filtered_out_without_a_range(self, mode):
        assert len(deaggregate(outer(aggregate(self.ENTRIES)), None, mode).records) == 3

    @pytest.mark.parametrize("mode", AggregateMode)
    def test_a_plain_record_is_never_filtered_out(self, mode):
        record = outer(b"plain")
        assert deaggregate(record, self.LOW, mode) == Deaggregation((record,))

    def test_kept_records_keep_their_sub_sequence_number(self):
        users = deaggregate(outer(aggregate(self.ENTRIES)), self.LOW).records
        assert [user.sub_sequence_number for user in users] == [0, 2]

    def test_the_md5_of_the_partition_key_is_the_default_hash_key(self):
        own = int(md5(b"k", usedforsecurity=False).hexdigest(), 16)
        assert hash_key("k") == own
        record = outer(aggregate([Entry("k", b"x")]))
        assert len(deaggregate(record, HashKeyRange(str(own), str(own))).records) == 1
        assert deaggregate(record, HashKeyRange("0", str(own - 1))).filtered == 1


class TestFormat:
    def test_a_record_without_a_hash_key_index_has_no_explicit_hash_key(self):
        records = [
            {"partition_key_index": 0, "data": b"none"},
            {"partition_key_index": 0, "data": b"the first", "explicit_hash_key_index": 0},
        ]
        deaggregation = deaggregate(aggregate_record(proto(hashes=["7"], records=records)), HashKeyRange("7", "7"))
        assert entries_of(deaggregation) == [("k", b"the first", "7")]
        assert deaggregation.filtered == 1

    def test_tags_are_read_with_and_without_a_value(self):
        tags = [{"key": "a", "value": "1"}, {"key": "b"}, {"key": "a", "value": ""}]
        records = [{"partition_key_index": 0, "data": b"x", "tags": tags}]
        [user] = deaggregate(aggregate_record(proto(records=records))).records
        assert user.tags == (("a", "1"), ("b", None), ("a", ""))

    def test_the_key_table_may_follow_the_records(self):
        records = proto(keys=(), records=[{"partition_key_index": 0, "data": b"x"}])
        assert entries_of(deaggregate(aggregate_record(records + proto(keys=["late"])))) == [("late", b"x", None)]

    def test_unknown_fields_are_skipped(self):
        unknown = b"\x31" + bytes(8) + b"\x35" + bytes(4) + b"\x38\x96\x01" + b"\x42\x02hi"
        records = proto(records=[{"partition_key_index": 0, "data": b"x"}])
        assert entries_of(deaggregate(aggregate_record(unknown + records + unknown))) == [("k", b"x", None)]

    def test_an_aggregate_without_records_expands_to_none(self):
        assert deaggregate(aggregate_record(proto())) == Deaggregation(())


X = {"partition_key_index": 0, "data": b"x"}


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (MAGIC, "too short"),
        (MAGIC + bytes(16), "too short"),
        (MAGIC + md5(b"", usedforsecurity=False).digest(), "too short"),
        (MAGIC + bytes(100), "MD5"),
        (aggregate(ENTRIES)[:-1], "MD5"),
        (aggregate(ENTRIES) + b"\0", "MD5"),
        (aggregate_record(proto(records=[X, X])[:-1]).data, "longer than its message"),
        (aggregate_record(b"\x08").data, "does not parse"),
        (aggregate_record(b"\x1a").data, "does not parse"),
        (aggregate_record(b"\x1a\x05x").data, "longer than its message"),
        (aggregate_record(b"\x19" + bytes(7)).data, "longer than its message"),
        (aggregate_record(b"\x1d" + bytes(3)).data, "longer than its message"),
        (aggregate_record(b"\x08" + b"\xff" * 11).data, "64 bits"),
        (aggregate_record(b"\x0b\x0c").data, "wire type"),
        (aggregate_record(bytes(4)).data, "field number 0 is invalid"),
        (aggregate_record(b"\xf8\xff\xff\xff\x1f\x00").data, "is invalid: expected 1 to"),
        (aggregate_record(b"\x0a\x01\xff").data, "does not parse"),
        (aggregate_record(proto(records=[X, {**X, "partition_key_index": 1}])).data, "does not parse"),
        (aggregate_record(proto(records=[{**X, "partition_key_index": 2**64 - 1}])).data, "does not parse"),
        (aggregate_record(proto(hashes=["1"], records=[{**X, "explicit_hash_key_index": 1}])).data, "does not parse"),
        (aggregate_record(proto(records=[{**X, "explicit_hash_key_index": 0}])).data, "does not parse"),
        (
            aggregate_record(proto(hashes=["f"], records=[{**X, "explicit_hash_key_index": 0}])).data,
            "is not an integer",
        ),
        (
            aggregate_record(proto(hashes=["9" * 5000], records=[{**X, "explicit_hash_key_index": 0}])).data,
            "is not an integer",
        ),
        (
            aggregate_record(proto(hashes=[str(2**128)], records=[{**X, "explicit_hash_key_index": 0}])).data,
            "is not an integer",
        ),
        (aggregate_record(proto(records=[{"partition_key_index": 0}])).data, "no partition key or no data"),
        (aggregate_record(proto(records=[{"data": b"x"}])).data, "no partition key or no data"),
        (aggregate_record(proto(records=[{**X, "tags": [{"value": "v"}]}])).data, "a tag has no key"),
    ],
)
@pytest.mark.parametrize("shard", [None, HashKeyRange("0", "0")])
@pytest.mark.scenario("G70")
def test_a_damaged_aggregate_is_one_plain_record_with_a_problem(data, problem, shard):
    deaggregation = deaggregate(outer(data), shard)
    assert deaggregation.records == (outer(data),)
    assert deaggregation.filtered == 0
    assert problem in deaggregation.problem


@given(st.binary(max_size=200), st.booleans(), st.sampled_from(AggregateMode))
def test_arbitrary_bytes_after_the_magic_are_expanded_or_passed_on(body, has_valid_md5, mode):
    record = aggregate_record(body) if has_valid_md5 else outer(MAGIC + body)
    deaggregation = deaggregate(record, ALL_KEYS, mode)
    assert deaggregation.filtered == 0
    if deaggregation.problem is not None:
        assert deaggregation.records == (record,)
        return
    # Google's protobuf library reads the same data.
    message = messages_pb2.AggregatedRecord.FromString(record.data[4:-16])
    assert [user.data for user in deaggregation.records] == [r.data for r in message.records]


@given(st.integers(min_value=0), st.integers(0, 255))
def test_a_changed_byte_with_a_valid_md5_never_raises(at, byte):
    body = bytearray(aggregate(ENTRIES)[4:-16])
    body[at % len(body)] = byte
    record = aggregate_record(bytes(body))
    deaggregation = deaggregate(record, ALL_KEYS, AggregateMode.KEEP)
    assert deaggregation.problem is None or deaggregation.records == (record,)
