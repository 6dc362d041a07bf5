"""The value types: order and validity of checkpoints, hash-key ranges, shards, positions and leases."""

import itertools
import sys
from datetime import UTC, datetime

import pytest
from hypothesis import given, strategies as st

from efo.errors import ConfigurationError, MissingExtraError
from efo.model import (
    MAX_HASH_KEY,
    Batch,
    Checkpoint,
    HashKeyRange,
    Lease,
    Position,
    PositionType,
    Record,
    Shard,
    checkpoint_of,
)

IN_ORDER = [
    Checkpoint.AT_TIMESTAMP,
    Checkpoint.TRIM_HORIZON,
    Checkpoint.LATEST,
    Checkpoint("0"),
    Checkpoint("9"),
    Checkpoint("9", 1),
    Checkpoint("10"),
    Checkpoint("9" * 129),
    Checkpoint.SHARD_END,
]


class TestCheckpoint:
    @pytest.mark.parametrize(("less", "more"), list(itertools.combinations(IN_ORDER, 2)), ids=str)
    def test_checkpoints_have_the_order_of_kcl(self, less, more):
        assert less < more
        assert less <= more
        assert more > less
        assert more >= less
        assert less != more

    @given(st.integers(0, 10**60), st.integers(0, 9), st.integers(0, 10**60), st.integers(0, 9))
    def test_sequence_numbers_are_compared_as_numbers(self, a, sub_a, b, sub_b):
        assert (Checkpoint(str(a), sub_a) < Checkpoint(str(b), sub_b)) == ((a, sub_a) < (b, sub_b))

    @pytest.mark.parametrize(
        "text", ["", "x", "-1", "1.5", " 1", "1_0", "\u0663", "trim_horizon", "9" * 130, "9" * 5000]
    )
    @pytest.mark.scenario("G66")
    def test_an_invalid_checkpoint_is_rejected(self, text):
        with pytest.raises(ConfigurationError, match="is not a checkpoint: expected decimal digits or one of"):
            Checkpoint(text)

    @pytest.mark.parametrize("value", [7, None, b"7"])
    def test_a_sequence_number_that_is_no_text_is_rejected(self, value):
        with pytest.raises(ConfigurationError, match="expected a text of decimal digits"):
            Checkpoint(value)

    def test_a_checkpoint_has_a_short_text_form(self):
        assert [str(c) for c in (Checkpoint.TRIM_HORIZON, Checkpoint("7"), Checkpoint("7", 2))] == [
            "TRIM_HORIZON",
            "7",
            "7/2",
        ]

    def test_the_named_checkpoints_are_sentinels(self):
        assert [c.is_sentinel for c in IN_ORDER] == [True] * 3 + [False] * 5 + [True]

    def test_the_checkpoint_of_a_record_has_its_sequence_and_sub_sequence_number(self):
        record = Record("7", 0.0, b"", "k", sub_sequence_number=3)
        assert checkpoint_of(record) == Checkpoint("7", 3)


def test_a_hash_key_range_includes_both_ends():
    keys = HashKeyRange("100", "200")
    assert [key in keys for key in (99, 100, 150, 200, 201)] == [False, True, True, True, False]
    assert MAX_HASH_KEY in HashKeyRange("0", str(MAX_HASH_KEY))


@pytest.mark.parametrize(
    ("parent", "adjacent", "parents"),
    [(None, None, ()), ("a", None, ("a",)), ("a", "b", ("a", "b")), (None, "b", ("b",))],
)
def test_parents_are_the_parent_and_the_adjacent_parent(parent, adjacent, parents):
    shard = Shard("s", HashKeyRange("0", "1"), "0", None, parent, adjacent)
    assert shard.parents == parents
    assert shard.is_open


def test_a_shard_with_an_ending_sequence_number_is_closed():
    assert not Shard("s", HashKeyRange("0", "1"), "0", "9").is_open


def test_each_position_has_its_type_and_its_value():
    assert Position.trim_horizon() == Position(PositionType.TRIM_HORIZON)
    assert Position.latest() == Position(PositionType.LATEST)
    assert Position.at("7") == Position(PositionType.AT_SEQUENCE_NUMBER, sequence_number="7")
    assert Position.after("7") == Position(PositionType.AFTER_SEQUENCE_NUMBER, sequence_number="7")
    assert Position.at_timestamp(1.5) == Position(PositionType.AT_TIMESTAMP, timestamp=1.5)


@pytest.mark.parametrize("checkpoint", IN_ORDER, ids=str)
def test_only_a_lease_at_shard_end_is_finished(checkpoint):
    assert Lease("s", checkpoint).is_finished == (checkpoint is Checkpoint.SHARD_END)


def test_a_batch_as_columns_has_every_field_of_its_records():
    records = (
        Record("7", 1700000000.123, b"a", "k-0", "KMS"),
        Record("9", 0.0, b"", "k-1", sub_sequence_number=3, explicit_hash_key="12", tags=(("t", None), ("t", "v"))),
        Record("10", 0.0, b"c"),
    )
    columns = Batch("orders", "shardId-000000000000", records, "9", 0, 0).to_arrow()
    assert columns.schema.metadata == {b"stream": b"orders", b"shard_id": b"shardId-000000000000"}
    arrived = datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)
    assert columns.to_pylist() == [
        {
            "sequence_number": "7",
            "sub_sequence_number": 0,
            "approximate_arrival_timestamp": arrived,
            "partition_key": "k-0",
            "data": b"a",
            "encryption_type": "KMS",
            "explicit_hash_key": None,
            "tags": [],
        },
        {
            "sequence_number": "9",
            "sub_sequence_number": 3,
            "approximate_arrival_timestamp": None,
            "partition_key": "k-1",
            "data": b"",
            "encryption_type": None,
            "explicit_hash_key": "12",
            "tags": [{"key": "t", "value": None}, {"key": "t", "value": "v"}],
        },
        {
            "sequence_number": "10",
            "sub_sequence_number": 0,
            "approximate_arrival_timestamp": None,
            "partition_key": None,
            "data": b"c",
            "encryption_type": None,
            "explicit_hash_key": None,
            "tags": [],
        },
    ]


def test_columns_without_pyarrow_name_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'efo\[arrow\]'"):
        Batch("orders", "shardId-000000000000", (), None, 0, 0).to_arrow()
