"""PackedRecords: a sequence of records, each of which is made when it is looked at."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
import pyarrow as pa
import pyarrow.compute
import pytest
from hypothesis import given, strategies as st

from efo.model import Record
from efo.protocol.packed import arrivals_of, filtered, packed
from tests.packing import pack

RECORDS = (
    Record("17", 1.5, b"\0\1", "k\u00e9y"),
    Record("183", 2.0, b"", None),
    Record("19", 0.0, b"data", "k"),
)


def test_it_is_a_sequence_like_the_tuple() -> None:
    found = pack(RECORDS)
    assert len(found) == 3
    assert found[0] == RECORDS[0]
    assert found[-1] == found[2] == RECORDS[-1]
    assert found[1:] == RECORDS[1:]
    assert found[1] == RECORDS[1]
    assert (*found,) == RECORDS
    assert repr(found) == repr(RECORDS)
    with pytest.raises(IndexError):
        found[3]


def test_a_record_is_made_once() -> None:
    """Who has one finds it again by its identity."""
    found = pack(RECORDS)
    first, last = found[0], found[-1]
    assert found.made()[0] is found[0] is first
    assert found.made()[-1] is found[2] is last
    assert found[:] is found
    alone = pack(RECORDS[:1])
    assert alone[0] is alone[-1] is alone.made()[0]


def test_it_equals_sequences_of_the_same_records_only() -> None:
    found = pack(RECORDS)
    assert found == RECORDS
    assert found == [*RECORDS]
    assert found != RECORDS[:2]
    assert found != RECORDS[::-1]
    assert found != {*RECORDS}


@pytest.mark.parametrize("records", [RECORDS, pack(RECORDS)], ids=["a tuple", "packed"])
def test_arrivals_are_read_and_records_are_left_out_in_either_form(records: Sequence[Record]) -> None:
    assert [*arrivals_of(records)] == [1.5, 2.0, 0.0]
    assert filtered(records, lambda record: record.sequence_number != "183") == (RECORDS[0], RECORDS[2])


def test_packed_records_are_told_from_others() -> None:
    assert packed(RECORDS) is None
    found = pack(RECORDS)
    assert packed(found) is found


@given(
    st.lists(
        st.builds(
            Record,
            sequence_number=st.integers(0, 10**56).map(str),
            approximate_arrival_timestamp=st.floats(0, 2e9),
            data=st.binary(max_size=20),
            partition_key=st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
        ),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from([None, "KMS"]),
)
def test_each_record_is_what_was_packed(records: list[Record], kind: str | None) -> None:
    records = [msgspec.structs.replace(record, encryption_type=kind) for record in records]
    found = pack(records)
    assert (found[0], found[-1], len(found)) == (records[0], records[-1], len(records))
    assert list(found) == records
    assert found.numbers == [record.sequence_number for record in records]


def test_its_hash_is_that_of_the_tuple() -> None:
    assert hash(pack(RECORDS)) == hash(RECORDS)


@pytest.mark.parametrize("keyed", [RECORDS, [Record("7", 0.0, b"", None), Record("8", 1.001, b"x", "k")]])
def test_its_columns_are_those_of_arrow(keyed: Sequence[Record]) -> None:
    table = pa.table(pack(keyed).arrow(pa))
    table.validate(full=True)
    assert {field.name: str(field.type) for field in table.schema} == {
        "sequence_number": "string",
        "sub_sequence_number": "int64",
        "approximate_arrival_timestamp": "timestamp[ms, tz=UTC]",
        "partition_key": "string",
        "data": "binary",
        "encryption_type": "string",
        "explicit_hash_key": "string",
        "tags": "list<item: struct<key: string not null, value: string>>",
    }
    assert table.to_pylist() == [
        {
            "sequence_number": record.sequence_number,
            "sub_sequence_number": 0,
            "approximate_arrival_timestamp": (
                datetime.fromtimestamp(record.approximate_arrival_timestamp, UTC)
                if record.approximate_arrival_timestamp
                else None
            ),
            "partition_key": record.partition_key,
            "data": record.data,
            "encryption_type": record.encryption_type,
            "explicit_hash_key": None,
            "tags": [],
        }
        for record in keyed
    ]
