"""KPL aggregates: round trips, AWS's own Python library as a witness, and damage that loses nothing."""

import base64
from hashlib import md5

import pytest
from aws_kinesis_agg import aggregator, deaggregator, messages_pb2
from hypothesis import example, given
from hypothesis import strategies as st

from efo.model import MAX_HASH_KEY, HashKeyRange, Record
from efo.protocol.aggregation import MAGIC, AggregateMode, Entry, Expansion, aggregate, expand, hash_key, is_aggregate

ALL_KEYS = HashKeyRange("0", str(MAX_HASH_KEY))
ENTRIES = [
    Entry("a", b"one"),
    Entry("b", b"", "0"),
    Entry("a", b"three", str(MAX_HASH_KEY)),
    Entry("ü" * 200, b"\xff" * 300, "0"),
]


def outer(data):
    """A Kinesis record with this data."""
    return Record("42", 1700000000.5, data, "outer key", "KMS")


def sealed(message):
    """An aggregate around raw protobuf."""
    return outer(MAGIC + message + md5(message, usedforsecurity=False).digest())


def proto(keys=("k",), hashes=(), records=()):
    """Protobuf as Google's own library writes it; `records` are the members of each."""
    message = messages_pb2.AggregatedRecord(partition_key_table=keys, explicit_hash_key_table=hashes)
    for members in records:
        message.records.add(**members)
    return message.SerializePartialToString()


def told(expansion):
    """What the producer gave of each record."""
    return [(user.partition_key, user.data, user.explicit_hash_key) for user in expansion.records]


class TestRoundTrip:
    def test_everything_comes_back_in_order(self):
        expansion = expand(outer(aggregate(ENTRIES)))
        assert told(expansion) == ENTRIES
        assert (expansion.left_out, expansion.problem) == (0, None)

    def test_what_the_outer_record_says_is_passed_on(self):
        users = expand(outer(aggregate(ENTRIES))).records
        assert [user.sub_sequence_number for user in users] == [0, 1, 2, 3]
        assert {(u.sequence_number, u.approximate_arrival_timestamp, u.encryption_type) for u in users} == {
            ("42", 1700000000.5, "KMS")
        }

    def test_a_plain_record_is_itself(self):
        for data in (b"", b"plain", MAGIC[:3], b" " + MAGIC):
            record = outer(data)
            assert expand(record, ALL_KEYS) == Expansion((record,))
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
    def test_any_records(self, entries):
        record = outer(aggregate(entries))
        assert told(expand(record, ALL_KEYS)) == entries
        message = messages_pb2.AggregatedRecord.FromString(record.data[4:-16])
        assert [r.data for r in message.records] == [entry.data for entry in entries]


class TestWitness:
    """The library that AWS publishes for producers and consumers without the KPL."""

    def test_we_read_what_it_writes(self):
        theirs = aggregator.RecordAggregator()
        entries = [Entry(f"key {n % 7}", b"%d" % n, str(n % 5)) for n in range(200)]
        for entry in entries:
            assert theirs.add_user_record(entry.partition_key, entry.data, entry.explicit_hash_key) is None
        key, explicit, data = theirs.clear_and_get().get_contents()
        assert (key, explicit) == ("key 0", "0")
        assert told(expand(outer(bytes(data)), ALL_KEYS)) == entries

    def test_it_reads_what_we_write(self):
        entries = [Entry(f"key {n % 7}", b"%d" % n, str(n % 5)) for n in range(200)]
        assert _their_reading(entries) == entries

    def test_it_reads_what_we_write_without_hash_keys(self):
        entries = [Entry(f"key {n % 7}", b"%d" % n) for n in range(200)]
        assert _their_reading(entries) == entries


def _their_reading(entries):
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
        ("mode", "kept", "left_out"),
        [
            (AggregateMode.FILTER, [b"low", b"low too"], 1),
            (AggregateMode.DROP, [], 3),
            (AggregateMode.KEEP, [b"low", b"high", b"low too"], 0),
        ],
    )
    @pytest.mark.scenario("G68")
    def test_records_of_another_shard(self, mode, kept, left_out):
        expansion = expand(outer(aggregate(self.ENTRIES)), self.LOW, mode)
        assert [user.data for user in expansion.records] == kept
        assert (expansion.left_out, expansion.problem) == (left_out, None)

    @pytest.mark.parametrize("mode", AggregateMode)
    @pytest.mark.scenario("G67")
    def test_nothing_is_left_out_where_all_belong(self, mode):
        entries = (self.ENTRIES[0], self.ENTRIES[2])
        expansion = expand(outer(aggregate(entries)), self.LOW, mode)
        assert (told(expansion), expansion.left_out) == (list(entries), 0)

    @pytest.mark.parametrize("mode", AggregateMode)
    def test_without_a_range_nothing_is_left_out(self, mode):
        assert len(expand(outer(aggregate(self.ENTRIES)), None, mode).records) == 3

    @pytest.mark.parametrize("mode", AggregateMode)
    def test_plain_records_are_never_left_out(self, mode):
        record = outer(b"plain")
        assert expand(record, self.LOW, mode) == Expansion((record,))

    def test_records_keep_the_number_that_they_had(self):
        users = expand(outer(aggregate(self.ENTRIES)), self.LOW).records
        assert [user.sub_sequence_number for user in users] == [0, 2]

    def test_without_an_explicit_key_the_partition_key_decides(self):
        own = int(md5(b"k", usedforsecurity=False).hexdigest(), 16)
        assert hash_key("k") == own
        record = outer(aggregate([Entry("k", b"x")]))
        assert len(expand(record, HashKeyRange(str(own), str(own))).records) == 1
        assert expand(record, HashKeyRange("0", str(own - 1))).left_out == 1


class TestTheFormat:
    def test_an_explicit_hash_key_is_known_by_its_field_and_not_by_the_table(self):
        records = [
            {"partition_key_index": 0, "data": b"none"},
            {"partition_key_index": 0, "data": b"the first", "explicit_hash_key_index": 0},
        ]
        expansion = expand(sealed(proto(hashes=["7"], records=records)), HashKeyRange("7", "7"))
        assert told(expansion) == [("k", b"the first", "7")]
        assert expansion.left_out == 1

    def test_tags(self):
        tags = [{"key": "a", "value": "1"}, {"key": "b"}, {"key": "a", "value": ""}]
        records = [{"partition_key_index": 0, "data": b"x", "tags": tags}]
        [user] = expand(sealed(proto(records=records))).records
        assert user.tags == (("a", "1"), ("b", None), ("a", ""))

    def test_tables_may_follow_the_records(self):
        records = proto(keys=(), records=[{"partition_key_index": 0, "data": b"x"}])
        assert told(expand(sealed(records + proto(keys=["late"])))) == [("late", b"x", None)]

    def test_unknown_fields_are_skipped(self):
        unknown = b"\x31" + bytes(8) + b"\x35" + bytes(4) + b"\x38\x96\x01" + b"\x42\x02hi"
        records = proto(records=[{"partition_key_index": 0, "data": b"x"}])
        assert told(expand(sealed(unknown + records + unknown))) == [("k", b"x", None)]

    def test_an_aggregate_of_no_records_gives_none(self):
        assert expand(sealed(proto())) == Expansion(())


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
        (sealed(proto(records=[X, X])[:-1]).data, "longer than its message"),
        (sealed(b"\x08").data, "does not parse"),
        (sealed(b"\x1a").data, "does not parse"),
        (sealed(b"\x1a\x05x").data, "longer than its message"),
        (sealed(b"\x19" + bytes(7)).data, "longer than its message"),
        (sealed(b"\x1d" + bytes(3)).data, "longer than its message"),
        (sealed(b"\x08" + b"\xff" * 11).data, "64 bits"),
        (sealed(b"\x0b\x0c").data, "wire type"),
        (sealed(bytes(4)).data, "the number 0"),
        (sealed(b"\xf8\xff\xff\xff\x1f\x00").data, "no field can have the number"),
        (sealed(b"\x0a\x01\xff").data, "does not parse"),
        (sealed(proto(records=[X, {**X, "partition_key_index": 1}])).data, "does not parse"),
        (sealed(proto(records=[{**X, "partition_key_index": 2**64 - 1}])).data, "does not parse"),
        (sealed(proto(hashes=["1"], records=[{**X, "explicit_hash_key_index": 1}])).data, "does not parse"),
        (sealed(proto(records=[{**X, "explicit_hash_key_index": 0}])).data, "does not parse"),
        (sealed(proto(hashes=["f"], records=[{**X, "explicit_hash_key_index": 0}])).data, "no hash key"),
        (sealed(proto(hashes=["9" * 5000], records=[{**X, "explicit_hash_key_index": 0}])).data, "no hash key"),
        (sealed(proto(hashes=[str(2**128)], records=[{**X, "explicit_hash_key_index": 0}])).data, "no hash key"),
        (sealed(proto(records=[{"partition_key_index": 0}])).data, "no partition key or no data"),
        (sealed(proto(records=[{"data": b"x"}])).data, "no partition key or no data"),
        (sealed(proto(records=[{**X, "tags": [{"value": "v"}]}])).data, "tag without a key"),
    ],
)
@pytest.mark.parametrize("shard", [None, HashKeyRange("0", "0")])
@pytest.mark.scenario("G70")
def test_damage_is_passed_on_whole_and_told(data, problem, shard):
    expansion = expand(outer(data), shard)
    assert expansion.records == (outer(data),)
    assert expansion.left_out == 0
    assert problem in expansion.problem


@given(st.binary(max_size=200), st.booleans(), st.sampled_from(AggregateMode))
def test_any_bytes_after_the_magic_are_read_or_passed_on(body, is_sealed, mode):
    record = sealed(body) if is_sealed else outer(MAGIC + body)
    expansion = expand(record, ALL_KEYS, mode)
    assert expansion.left_out == 0
    if expansion.problem is not None:
        assert expansion.records == (record,)
        return
    # What we read, Google's protobuf reads too.
    message = messages_pb2.AggregatedRecord.FromString(record.data[4:-16])
    assert [user.data for user in expansion.records] == [r.data for r in message.records]


@given(st.integers(min_value=0), st.integers(0, 255))
def test_a_changed_byte_under_a_right_digest_never_raises(at, byte):
    body = bytearray(aggregate(ENTRIES)[4:-16])
    body[at % len(body)] = byte
    record = sealed(bytes(body))
    expansion = expand(record, ALL_KEYS, AggregateMode.KEEP)
    assert expansion.problem is None or expansion.records == (record,)
