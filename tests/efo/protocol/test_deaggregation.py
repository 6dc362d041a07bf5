"""KPL deaggregation: what is valid, what is filtered, damage that loses no data, and large aggregates."""

from hashlib import md5

import aws_kinesis_agg.aggregator  # noqa: F401 - adds the directory to sys.path from which messages_pb2 imports config_pb2
import pytest
from aws_kinesis_agg import messages_pb2
from hypothesis import given, strategies as st

from efo.model import MAX_HASH_KEY, HashKeyRange, Record
from efo.protocol import aggregate_message, aggregation, deaggregation
from efo.protocol.aggregate_message import AggregateError, end_of_chunk
from efo.protocol.aggregation import MAGIC, AggregateEntry, AggregateMode, HashRangeFilter, aggregate, hash_key
from efo.protocol.deaggregation import Deaggregation, deaggregate, expand
from proofs.fuzz import plain_aggregates

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


def aggregate_record(message):
    """Return a record with an aggregate of this protobuf message and the correct MD5."""
    return outer(MAGIC + message + md5(message, usedforsecurity=False).digest())


def proto(keys=("k",), hashes=(), records=()):
    """Return an AggregatedRecord as Google's protobuf library writes it. `records`: the fields of each record."""
    message = messages_pb2.AggregatedRecord(partition_key_table=keys, explicit_hash_key_table=hashes)
    for fields in records:
        message.records.add(**fields)
    return message.SerializePartialToString()


X = {"partition_key_index": 0, "data": b"x"}


def entries_of(deaggregation):
    """Return the entries that the producer aggregated."""
    return [(user.partition_key, user.data, user.explicit_hash_key) for user in deaggregation.records]


class TestModes:
    LOW = HashKeyRange("0", "99")
    ENTRIES = (
        AggregateEntry("a", b"low", "99"),
        AggregateEntry("b", b"high", "100"),
        AggregateEntry("c", b"low too", "0"),
    )

    @pytest.mark.parametrize(
        ("mode", "kept", "filtered"),
        [
            (AggregateMode.FILTER, [b"low", b"low too"], 1),
            (AggregateMode.DROP, [], 3),
            (AggregateMode.KEEP, [b"low", b"high", b"low too"], 0),
            (AggregateMode.DEDUPLICATE, [b"low", b"high", b"low too"], 0),
        ],
    )
    @pytest.mark.scenario("G68")
    def test_the_mode_decides_about_records_of_another_shard(self, mode, kept, filtered):
        deaggregation = deaggregate(outer(aggregate(self.ENTRIES)), self.LOW, mode)
        assert [user.data for user in deaggregation.records] == kept
        assert (deaggregation.filtered, deaggregation.problem) == (filtered, None)

    @pytest.mark.parametrize("mode", AggregateMode)
    @pytest.mark.parametrize("max_fields", [100, 1], ids=["small", "large"])
    def test_an_aggregate_that_was_put_without_a_partition_key_is_kept_whole(self, mode, max_fields):
        """The service has placed it (strategy AUTO), so none of its user records belongs to another shard."""
        placed = Record("42", 1.0, aggregate(self.ENTRIES))
        found = deaggregate(placed, self.LOW, mode, max_fields=max_fields)
        assert [(user.partition_key, user.data) for user in found.records] == [
            ("a", b"low"),
            ("b", b"high"),
            ("c", b"low too"),
        ]
        assert (found.filtered, found.problem) == (0, None)

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
        users = deaggregate(outer(aggregate(self.ENTRIES)), self.LOW, AggregateMode.FILTER).records
        assert [user.sub_sequence_number for user in users] == [0, 2]

    def test_the_md5_of_the_partition_key_is_the_default_hash_key(self):
        own = int(md5(b"k", usedforsecurity=False).hexdigest(), 16)
        assert hash_key("k") == own
        record = outer(aggregate([AggregateEntry("k", b"x")]))
        assert len(deaggregate(record, HashKeyRange(str(own), str(own))).records) == 1
        assert deaggregate(record, HashKeyRange("0", str(own - 1)), AggregateMode.FILTER).filtered == 1


class TestFormat:
    def test_a_record_without_a_hash_key_index_has_no_explicit_hash_key(self):
        records = [
            {"partition_key_index": 0, "data": b"none"},
            {"partition_key_index": 0, "data": b"the first", "explicit_hash_key_index": 0},
        ]
        record = aggregate_record(proto(hashes=["7"], records=records))
        deaggregation = deaggregate(record, HashKeyRange("7", "7"), AggregateMode.FILTER)
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

    def test_unknown_groups_are_skipped(self):
        [user] = deaggregate(aggregate_record(b"\x3b\x08\x01\x3c\x0a\x01k\x1a\x07\x08\0\x1a\x01x\x33\x34")).records
        assert (user.partition_key, user.data) == ("k", b"x")

    def test_the_last_one_of_repeated_indexes_and_data_counts(self):
        body = proto(keys=["k", "l"]) + b"\x1a\x0a\x08\x07\x1a\x01x\x08\x01\x1a\x01y"
        assert entries_of(deaggregate(aggregate_record(body))) == [("l", b"y", None)]

    def test_the_lowest_64_bits_of_an_index_count(self):
        body = proto() + b"\x1a\x0e\x08" + b"\x80" * 9 + b"\x02" + b"\x1a\x01x"
        assert entries_of(deaggregate(aggregate_record(body))) == [("k", b"x", None)]

    @pytest.mark.parametrize("text", ["undefined", "", "-1", "1.0", "f", "٣", str(2**128), "9" * 5000])
    def test_an_explicit_hash_key_that_is_no_hash_key_counts_as_absent(self, text):
        body = proto(hashes=[text], records=[{**X, "explicit_hash_key_index": 0}])
        for shard in (None, HashKeyRange(str(hash_key("k")), str(hash_key("k")))):
            deaggregation = deaggregate(aggregate_record(body), shard)
            assert (entries_of(deaggregation), deaggregation.problem) == ([("k", b"x", None)], None)
        shard = HashKeyRange("0", str(hash_key("k") - 1))
        assert deaggregate(aggregate_record(body), shard, AggregateMode.FILTER).filtered == 1

    def test_partition_keys_of_1_and_of_256_characters_and_unused_others_are_valid(self):
        longest = "\N{GRINNING FACE}" * 256
        body = proto(keys=[longest, "", "x" * 257, "s"], records=[X, {**X, "partition_key_index": 3}])
        assert entries_of(deaggregate(aggregate_record(body))) == [(longest, b"x", None), ("s", b"x", None)]

    def test_user_records_of_one_key_share_its_text(self):
        users = deaggregate(outer(aggregate([AggregateEntry("key", b"%d" % n) for n in range(3)]))).records
        assert users[0].partition_key is users[1].partition_key is users[2].partition_key

    def test_an_aggregate_without_records_expands_to_none(self):
        assert deaggregate(aggregate_record(proto())) == Deaggregation(())


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (MAGIC, "too short"),
        (MAGIC + bytes(16), "too short"),
        (MAGIC + md5(b"", usedforsecurity=False).digest(), "too short"),
        (MAGIC + bytes(100), "MD5"),
        (aggregate(ENTRIES)[:-1], "MD5"),
        (aggregate(ENTRIES) + b"\0", "MD5"),
        (aggregate_record(proto(records=[X, X])[:-1]).data, "does not parse"),
        (aggregate_record(b"\x08").data, "does not parse"),
        (aggregate_record(b"\x1a").data, "does not parse"),
        (aggregate_record(b"\x1a\x05x").data, "does not parse"),
        (aggregate_record(b"\x19" + bytes(7)).data, "does not parse"),
        (aggregate_record(b"\x1d" + bytes(3)).data, "does not parse"),
        (aggregate_record(b"\x08" + b"\xff" * 11).data, "does not parse"),
        (aggregate_record(b"\x0b").data, "does not parse"),
        (aggregate_record(b"\x0b\x14").data, "does not parse"),
        (aggregate_record(b"\x0e\x00").data, "does not parse"),
        (aggregate_record(bytes(4)).data, "does not parse"),
        (aggregate_record(b"\xf8\xff\xff\xff\x1f\x00").data, "does not parse"),
        (aggregate_record(b"\x0a\x01\xff").data, "does not parse"),
        (aggregate_record(proto(records=[X]) + b"\x12\x01\xff").data, "does not parse"),
        (aggregate_record(proto() + b"\x1a\x0a\x08\0\x1a\x01x\x22\x03\x0a\x01\xff").data, "does not parse"),
        (aggregate_record(proto(records=[X, {**X, "partition_key_index": 1}])).data, "outside its table"),
        (aggregate_record(proto(records=[{**X, "partition_key_index": 2**64 - 1}])).data, "outside its table"),
        (
            aggregate_record(proto(hashes=["1"], records=[{**X, "explicit_hash_key_index": 1}])).data,
            "outside its table",
        ),
        (aggregate_record(proto(records=[{**X, "explicit_hash_key_index": 0}])).data, "outside its table"),
        (aggregate_record(proto(records=[{**X, "explicit_hash_key_index": 2**64 - 1}])).data, "outside its table"),
        (aggregate_record(proto(records=[X, {**X, "explicit_hash_key_index": 2**64 - 1}])).data, "outside its table"),
        (
            aggregate_record(
                proto(hashes=["9"], records=[{"data": b"", "partition_key_index": 1, "explicit_hash_key_index": 0}])
            ).data,
            "outside its table",
        ),
        (
            aggregate_record(proto(keys=["k", ""], records=[X, {**X, "partition_key_index": 1}])).data,
            "1 to 256 characters",
        ),
        (aggregate_record(proto(keys=["x" * 257], records=[X])).data, "1 to 256 characters"),
        (aggregate([AggregateEntry("p" * 100_000, b"")] * 25_000), "1 to 256 characters"),
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
    message = messages_pb2.AggregatedRecord.FromString(record.data[4:-16])
    assert [user.data for user in deaggregation.records] == [r.data for r in message.records]


@given(st.integers(min_value=0), st.integers(0, 255))
def test_a_changed_byte_with_a_valid_md5_never_raises(at, byte):
    body = bytearray(aggregate(ENTRIES)[4:-16])
    body[at % len(body)] = byte
    record = aggregate_record(bytes(body))
    deaggregation = deaggregate(record, ALL_KEYS, AggregateMode.KEEP)
    assert deaggregation.problem is None or deaggregation.records == (record,)


# --- the reader compared with a plain one ------------------------------------------------------------------

PIECES = [
    *(proto(), proto(keys=["", "x" * 257]), proto(keys=[], hashes=["7", "undefined"])),
    *(b"\x08\0", b"\x08\x01", b"\x10\0", b"\x10\x01", b"\x1a\0", b"\x1a\x01x", b"\x22\x02\x12\0", b"\x33\x34"),
    *(b"\x1a\x05\x08\0\x1a\x01x", b"\x1a\x0a\x08\0\x1a\x01x\x22\x03\x0a\x01t"),
    *(b"\x10" + b"\xff" * 9 + b"\x01", b"\x08" + b"\x80" * 9 + b"\x02"),
    *(b"\x9a\0\x05\x08\0\x1a\x01x", b"\x1a\x85\0\x08\0\x1a\x01x"),
]
"""Fields, in records and outside of them; some are incomplete, or in a form that no producer writes."""


@st.composite
def bodies(draw):
    """Return an AggregatedRecord of some pieces, and user records of others, with a few bytes changed."""
    nested = st.lists(st.sampled_from(PIECES), max_size=4).map(b"".join)
    user = nested.map(lambda body: b"\x1a" + (bytes([len(body)]) if len(body) < 128 else b"") + body)
    body = bytearray(b"".join(draw(st.lists(st.sampled_from(PIECES) | user, max_size=6))))
    for at, byte in draw(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 255)), max_size=2)):
        body[at % (len(body) + 1) : (at % (len(body) + 1)) + 1] = bytes([byte])
    return bytes(body)


@given(bodies())
def test_a_record_is_read_exactly_as_a_plain_reader_reads_it(body):
    record = aggregate_record(body)
    deaggregation = deaggregate(record)
    try:
        expected = plain_aggregates.read(record)
    except plain_aggregates.Damaged:
        assert deaggregation.problem is not None
        assert deaggregation.records == (record,)
    else:
        assert (list(deaggregation.records), deaggregation.problem) == (expected, None)


# --- how often a hash key is computed ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entries", "shard", "mode", "hashed"),
    [
        ([AggregateEntry(f"key {n % 3}", b"x") for n in range(50)], HashKeyRange("1", "2"), AggregateMode.FILTER, 3),
        (
            [AggregateEntry(f"key {n % 3}", b"x", "5" if n else None) for n in range(50)],
            HashKeyRange("1", "9"),
            AggregateMode.FILTER,
            1,
        ),
        ([AggregateEntry(f"key {n}", b"x", "5") for n in range(50)], HashKeyRange("1", "2"), AggregateMode.FILTER, 0),
        ([AggregateEntry(f"key {n}", b"x") for n in range(50)], ALL_KEYS, AggregateMode.DROP, 0),
        ([AggregateEntry(f"key {n}", b"x") for n in range(50)], None, AggregateMode.FILTER, 0),
        ([AggregateEntry(f"key {n}", b"x") for n in range(50)], HashKeyRange("1", "2"), AggregateMode.KEEP, 0),
        ([AggregateEntry(f"key {n}", b"x") for n in range(50)], HashKeyRange("1", "2"), AggregateMode.DEDUPLICATE, 0),
    ],
)
def test_each_partition_key_is_hashed_at_most_once_and_only_if_the_hash_matters(
    entries, shard, mode, hashed, monkeypatch
):
    def counting_md5(text, **options):
        texts.append(text)
        return original(text, **options)

    record, texts, original = outer(aggregate(entries)), [], aggregation.md5
    monkeypatch.setattr(aggregation, "md5", counting_md5)
    deaggregate(record, shard, mode)
    assert len(texts) == len(set(texts)) == hashed
    texts.clear()
    deaggregate(record, shard, mode, max_fields=5)  # a part without user records may need none of its keys
    assert len(texts) == len(set(texts)) >= hashed


# --- large aggregates --------------------------------------------------------------------------------------


class TestLarge:
    """An aggregate with more user records than a step takes. Most of these tests take five."""

    ENTRIES = tuple(AggregateEntry(f"key {n % 7}", b"%d" % n, str(n % 5) if n % 3 else None) for n in range(32))

    def parts(self, body, shard=None, mode=AggregateMode.FILTER, max_fields=5):
        record = aggregate_record(body)
        return [part for part in expand(record, HashRangeFilter(shard, mode), max_fields) if part is not None]

    @pytest.mark.parametrize("mode", AggregateMode)
    @pytest.mark.parametrize("shard", [None, ALL_KEYS, HashKeyRange("2", str(2**127))])
    def test_it_expands_in_small_parts_to_what_a_small_one_expands_to(self, shard, mode):
        for entries in (self.ENTRIES, [entry._replace(explicit_hash_key=None) for entry in self.ENTRIES]):
            body = aggregate(entries)[4:-16]
            whole = deaggregate(aggregate_record(body), shard, mode)
            assert deaggregate(aggregate_record(body), shard, mode, max_fields=5) == whole
            assert max(len(part.records) for part in self.parts(body, shard, mode)) <= 5

    def test_one_at_both_limits_is_expanded_at_once_and_one_above_either_in_parts(self, monkeypatch):
        body = proto(records=[X] * 5)
        monkeypatch.setattr(deaggregation, "MAX_CHUNK", len(body))
        assert len(list(expand(aggregate_record(body), HashRangeFilter(None), 5))) == 1
        assert len(list(expand(aggregate_record(body), HashRangeFilter(None), 4))) > 1
        monkeypatch.setattr(deaggregation, "MAX_CHUNK", len(body) - 1)
        assert len(list(expand(aggregate_record(body), HashRangeFilter(None), 5))) > 1

    def test_ten_thousand_user_records_are_expanded_at_once_and_more_in_parts(self):
        body = proto(records=[X] * 10_000)
        assert len(list(expand(aggregate_record(body), HashRangeFilter(None)))) == 1
        assert len(list(expand(aggregate_record(body + proto(keys=(), records=[X])), HashRangeFilter(None)))) > 1

    def test_others_may_run_before_each_part(self):
        steps = list(expand(outer(aggregate(self.ENTRIES)), HashRangeFilter(None), 5))
        delivered = [n for n, step in enumerate(steps) if step is not None and step.records]
        assert len(delivered) >= 7
        assert all(steps[n - 1] is None for n in delivered)
        assert steps.index(None) == 0

    def test_nothing_is_delivered_of_one_whose_last_user_record_is_damaged(self):
        records = [*([X] * 20), {**X, "partition_key_index": 1}]
        record = aggregate_record(proto(records=records))
        assert [part.records for part in self.parts(proto(records=records))] == [(record,)]

    def test_the_key_table_may_follow_the_records(self):
        body = proto(keys=[], records=[X] * 20) + proto(keys=["late"])
        assert {user.partition_key for part in self.parts(body) for user in part.records} == {"late"}

    def test_a_chunk_ends_with_the_record_that_exceeds_its_bytes(self, monkeypatch):
        monkeypatch.setattr(aggregate_message, "MAX_CHUNK", 100)
        monkeypatch.setattr(deaggregation, "MAX_CHUNK", 100)
        parts = self.parts(proto(records=[{**X, "data": bytes(60)}] * 9), max_fields=100)
        assert [len(part.records) for part in parts] == [0, 2, 2, 2, 2, 1]

    def test_a_record_larger_than_a_chunk_is_read(self):
        data = bytes(3 * aggregate_message.MAX_CHUNK)
        users = deaggregate(
            outer(aggregate([AggregateEntry("a", data), AggregateEntry("b", b"x"), AggregateEntry("a", data)]))
        ).records
        assert [(user.partition_key, len(user.data)) for user in users] == [
            ("a", len(data)),
            ("b", 1),
            ("a", len(data)),
        ]

    def test_more_keys_than_a_step_takes_are_filtered(self):
        shard = HashKeyRange("0", str(MAX_HASH_KEY // 2))
        entries = [AggregateEntry(f"key {n}", b"") for n in range(12_000)]
        kept = deaggregate(outer(aggregate(entries)), shard, AggregateMode.FILTER)
        own = [entry.partition_key for entry in entries if hash_key(entry.partition_key) in shard]
        assert [user.partition_key for user in kept.records] == own
        assert kept.filtered == len(entries) - len(own)

    @pytest.mark.parametrize("field", [b"\x38\x01", b"\x39" + bytes(8), b"\x3b\x3c", b"\xba\x01\x00"])
    def test_a_field_that_cannot_be_skipped_in_a_large_one_is_damage(self, field):
        record = aggregate_record(proto(records=[X] * 9) + field)
        [part] = expand_to_parts(record, max_fields=5)
        assert (part.records, part.filtered) == ((record,), 0)
        assert "unknown wire type" in part.problem

    @pytest.mark.parametrize(
        "field", [b"\x08", b"\x0a", b"\x0a\x80", b"\x0a\x05x", b"\x1a" + b"\x80" * 2000, b"\x1a\xff\xff\xff\xff\x7f"]
    )
    def test_a_field_that_is_cut_off_in_a_large_one_is_damage(self, field):
        record = aggregate_record(proto(records=[X] * 9) + field)
        for max_fields in (5, 3, 1):
            [part] = expand_to_parts(record, max_fields=max_fields)
            assert part.records == (record,)
            assert part.problem


def expand_to_parts(record, max_fields):
    return [part for part in expand(record, HashRangeFilter(None), max_fields) if part is not None]


@pytest.mark.parametrize("data", [b"\x0a\x01", b"\x0a\x05x", b"\x0a\x80\x01" + bytes(127)])
def test_a_field_that_is_longer_than_the_data_is_refused(data):
    with pytest.raises(AggregateError, match="longer than its message"):
        end_of_chunk(data, 0, 10)
    assert end_of_chunk(b"\x0a\x00" + data + bytes(200), 0, 1) == 2


@pytest.mark.parametrize("length", [b"\x05", b"\x85\x00", b"\x85\x80\x80\x80\x00"])
@pytest.mark.parametrize("after", [b"", b"\x0a\x00"])
def test_a_length_may_have_more_bytes_than_it_needs(length, after):
    data = b"\x0a" + length + b"abcde"
    assert end_of_chunk(data + after, 0, 1) == len(data)
    assert end_of_chunk(data + after, 0, 9) == len(data + after)


def test_a_length_that_is_cut_off_ends_the_chunk_at_the_end_of_the_data():
    """The parser then refuses the chunk."""
    assert end_of_chunk(b"\x0a\x80", 0, 10) == 2
