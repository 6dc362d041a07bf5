"""LazyBatch: a batch like any other, whose records are made when somebody looks."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace

import msgspec
import pyarrow as pa
import pytest
from hypothesis import example, given, strategies as st

from efo.model import Batch, Record
from efo.protocol.lazy_batch import LazyBatch, batch_of, records_of
from tests.packing import pack

RECORDS = (Record("17", 1.5, b"\0\1", "k"), Record("18", 0.0, b"", None))
PLAIN = Batch("orders", "shard", RECORDS, "19", 7, 3)


def lazy(batch: Batch = PLAIN) -> Batch:
    return batch_of(replace(batch, records=pack(batch.records)))


def test_only_packed_records_make_a_batch_lazy() -> None:
    assert type(batch_of(PLAIN)) is Batch
    assert isinstance(lazy(), LazyBatch)
    assert isinstance(lazy(), Batch)
    assert type(lazy()).__name__ == "Batch"


def test_its_number_and_its_ends_are_no_look() -> None:
    batch = lazy()
    assert (len(batch), records_of(batch)[0], records_of(batch)[-1]) == (2, *RECORDS)
    assert (batch.stream, batch.shard_id, batch.continuation, batch.number) == ("orders", "shard", "19", 3)
    assert batch.to_arrow().equals(PLAIN.to_arrow(), check_metadata=True)
    assert type(batch) is LazyBatch


@pytest.mark.parametrize(
    "look",
    [
        lambda batch: batch.records == RECORDS,
        lambda batch: (*batch,) == RECORDS,
        lambda batch: batch == PLAIN,
        lambda batch: PLAIN == batch,  # noqa: SIM300 - the other side
        lambda batch: batch == lazy(),
        lambda batch: hash(batch) == hash(PLAIN),
        lambda batch: repr(batch) == repr(PLAIN),
        lambda batch: copy.copy(batch) == PLAIN,
        lambda batch: pickle.loads(pickle.dumps(batch)) == PLAIN,  # noqa: S301 - its own
        lambda batch: replace(batch, number=4) == replace(PLAIN, number=4),
    ],
)
def test_after_a_look_it_is_an_ordinary_batch(look: Callable[[Batch], bool]) -> None:
    batch = lazy()
    ends = records_of(batch)[0], records_of(batch)[-1]
    assert look(batch)
    assert type(batch) is Batch
    assert type(batch.records) is tuple
    assert ends[0] is batch.records[0]
    assert ends[1] is batch.records[-1]
    assert batch.to_arrow().equals(PLAIN.to_arrow(), check_metadata=True)


def test_a_copy_with_other_records_is_an_ordinary_batch() -> None:
    part = replace(lazy(), records=RECORDS[:1])
    assert type(part) is Batch
    assert part == replace(PLAIN, records=RECORDS[:1])


@pytest.mark.parametrize("name", ["number", "records", "note"])
def test_its_fields_cannot_be_assigned(name: str) -> None:
    with pytest.raises((FrozenInstanceError, TypeError)) as plain:
        setattr(replace(PLAIN), name, ())
    with pytest.raises(plain.type) as refused:
        setattr(lazy(), name, ())
    assert str(refused.value) == str(plain.value)


records = st.builds(
    Record,
    sequence_number=st.integers(0, 10**129 - 1).map(str),
    approximate_arrival_timestamp=st.floats(0, allow_nan=False, allow_infinity=False)
    | st.integers(0, 4 * 10**12).map(lambda halves: halves / 2000),
    data=st.binary(max_size=20),
    partition_key=st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
)


def arrow(batch: Batch) -> object:
    try:
        columns = batch.to_arrow()
    except (pa.ArrowException, OverflowError) as error:
        return repr(error)
    columns.validate(full=True)
    return columns


@given(st.lists(records, min_size=1, max_size=8), st.sampled_from([None, "NONE", "KMS"]))
@example([msgspec.structs.replace(RECORDS[0], approximate_arrival_timestamp=1e300)], None)
@example([msgspec.structs.replace(RECORDS[0], approximate_arrival_timestamp=9.2e15)], None)
@example([msgspec.structs.replace(RECORDS[0], approximate_arrival_timestamp=9007199254741.993)], "KMS")
@example([msgspec.structs.replace(RECORDS[0], approximate_arrival_timestamp=0.0004)], "KMS")
@example([msgspec.structs.replace(RECORDS[0], approximate_arrival_timestamp=0.0005)], "KMS")
def test_its_columns_are_those_of_its_records(found: list[Record], kind: str | None) -> None:
    batch = replace(PLAIN, records=(*(msgspec.structs.replace(record, encryption_type=kind) for record in found),))
    by_record, by_column = arrow(batch), arrow(lazy(batch))
    if isinstance(by_record, pa.RecordBatch) and isinstance(by_column, pa.RecordBatch):
        assert by_column.schema.equals(by_record.schema, check_metadata=True)
        assert by_column.equals(by_record, check_metadata=True)
    else:
        assert by_column == by_record
