import datetime as dt
from itertools import chain

import msgspec
import pytest
from hypothesis import given, strategies as st

from efo.model import Record
from efo_service.log.columns import arrow
from efo_service.log.columns.arrow import clear_caches, record_batch
from efo_service.log.columns.layout import HeaderShape, columns_of
from efo_service.log.segments import SCHEMA
from efo_service.relay.mapping import RecordMapping, TraceContext
from tests.packing import pack

digits = st.integers(0, 2**128 - 1).map(str)
text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
records = st.builds(
    Record,
    sequence_number=digits,
    approximate_arrival_timestamp=st.integers(0, 4_000_000_000_000).map(lambda milliseconds: milliseconds / 1000),
    data=st.binary(max_size=50),
    partition_key=st.none() | text,
    sub_sequence_number=st.integers(0, 1000),
    explicit_hash_key=st.none() | digits,
    encryption_type=st.sampled_from([None, "NONE", "KMS"]),
    tags=st.just(()) | st.lists(st.tuples(text, st.none() | text), max_size=3).map(tuple),
)


def traced(record: Record) -> TraceContext | None:
    """Return a valid trace context, an invalid one or none, depending on the record's data."""
    match len(record.data) % 4:
        case 0:
            return None
        case 1:
            return TraceContext("not a context")
        case 2:
            return TraceContext(f"00-{len(record.data) + 1:032x}-{7:016x}-01")
        case _:
            return TraceContext(f"00-{len(record.data) + 1:032x}-{7:016x}-01", "vendor=1")


# Of one kind, as most batches are; their sequence numbers may differ in length.
plain = st.builds(
    Record,
    sequence_number=digits,
    approximate_arrival_timestamp=st.just(1.5),
    data=st.binary(max_size=50),
    partition_key=text,
)
plain_batches = st.lists(plain, min_size=1, max_size=20)
keyless_batches = plain_batches.map(lambda batch: [msgspec.structs.replace(r, partition_key=None) for r in batch])
encrypted_batches = plain_batches.map(lambda batch: [msgspec.structs.replace(r, encryption_type="KMS") for r in batch])
batches = st.lists(records, min_size=1, max_size=20) | plain_batches | keyless_batches | encrypted_batches


@given(st.lists(plain_batches | keyless_batches | encrypted_batches, min_size=1, max_size=3))
def test_packed_records_are_mapped_like_the_same_records(parts: list[list[Record]]) -> None:
    mapping = RecordMapping("s", "shard")
    assert [columns_of(pack(part), mapping) for part in parts] == [columns_of(part, mapping) for part in parts]


@given(st.lists(batches, min_size=1, max_size=3), st.integers(0, 2**40), st.sampled_from([None, traced]))
def test_many_records_are_mapped_like_each_record_alone(parts: list[list[Record]], base: int, extract) -> None:
    mapping = RecordMapping("s", "shard", extract)
    columns = [columns_of(part, mapping) for part in parts]
    batch = record_batch(columns, mapping, topic="t", partition=3, base=base)

    batch.validate(full=True)
    assert batch.schema.equals(SCHEMA)
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    assert batch.to_pylist() == [
        {
            "key": message.key,
            "value": message.value,
            "topic": "t",
            "partition": 3,
            "offset": base + index,
            "timestamp": epoch + dt.timedelta(milliseconds=message.timestamp),
            "timestampType": 0,
            "headers": [{"key": key, "value": value} for key, value in message.headers],
        }
        for index, message in enumerate(map(mapping.message, chain.from_iterable(parts)))
    ]


@pytest.mark.parametrize("known", [(), (0, 1, 2), (1,), (0, 2)])
def test_only_records_with_an_explicit_hash_key_have_its_header(make_records, known) -> None:
    batch_records = [
        msgspec.structs.replace(record, explicit_hash_key="12" if index in known else None)
        for index, record in enumerate(make_records(3))
    ]
    mapping = RecordMapping("s", "shard")
    batch = record_batch([columns_of(batch_records, mapping)], mapping, topic="t", partition=0, base=0)
    assert [len(headers) for headers in batch.column("headers").to_pylist()] == [
        5 if index in known else 4 for index in range(3)
    ]


PLAIN = Record("17", 1.5, b"x", "key", "KMS")


@pytest.mark.parametrize("batch", [[PLAIN], [PLAIN, PLAIN], [msgspec.structs.replace(PLAIN, partition_key=None)]])
def test_records_whose_headers_differ_in_the_sequence_number_alone_are_not_kept(batch) -> None:
    columns = columns_of(batch, RecordMapping("s", "shard"))
    assert columns.records == ()
    assert columns.plain is not None
    assert columns.plain.shape == HeaderShape(
        ("kinesis.stream", "kinesis.shard", "kinesis.sequence", "kinesis.sub_sequence", "kinesis.encryption_type"),
        ("s", "shard"),
        ("0", "KMS"),
    )


@pytest.mark.parametrize(
    "other",
    [
        {"sub_sequence_number": 1},
        {"tags": (("a", "b"),)},
        {"explicit_hash_key": "0"},
        {"encryption_type": None},
    ],
)
@pytest.mark.parametrize("place", [0, 1])
def test_records_with_other_headers_are_kept(other, place) -> None:
    batch = [PLAIN, PLAIN]
    batch[place] = msgspec.structs.replace(PLAIN, **other)
    columns = columns_of(batch, RecordMapping("s", "shard"))
    assert (columns.plain, columns.records) == (None, batch)


def test_records_whose_trace_contexts_are_extracted_are_kept() -> None:
    for batch in ([PLAIN], pack([PLAIN])):
        columns = columns_of(batch, RecordMapping("s", "shard", traced))
        assert (columns.plain, [*columns.records]) == (None, [PLAIN])


def test_the_schema_is_that_of_sparks_kafka_source() -> None:
    assert {field.name: str(field.type) for field in SCHEMA} == {
        "key": "binary",
        "value": "binary",
        "topic": "string",
        "partition": "int32",
        "offset": "int64",
        "timestamp": "timestamp[us, tz=UTC]",
        "timestampType": "int32",
        "headers": "list<element: struct<key: string, value: binary>>",
    }
    assert all(field.nullable for field in SCHEMA)


def test_no_column_is_kept_after_the_caches_are_cleared() -> None:
    """A cached column would outlive the memory pool that it came from."""
    kept = [Record(str(n), 1.5, b"x", "key") for n in range(10)]
    mapping = RecordMapping("s", "shard")
    record_batch([columns_of(kept, mapping)], mapping, topic="t", partition=0, base=0)
    caches = (arrow._header_keys, arrow._repeated_offsets)
    assert all(cache.cache_info().currsize for cache in caches)
    clear_caches()
    assert [cache.cache_info().currsize for cache in caches] == [0, 0]
