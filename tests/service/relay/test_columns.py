import datetime as dt

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from efo.model import Record
from service.relay.columns import record_batch
from service.relay.segments import SCHEMA

digits = st.integers(0, 2**128 - 1).map(str)
records = st.builds(
    Record,
    sequence_number=digits,
    approximate_arrival_timestamp=st.integers(0, 4_000_000_000_000).map(lambda milliseconds: milliseconds / 1000),
    data=st.binary(max_size=50),
    partition_key=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20),
    sub_sequence_number=st.integers(0, 1000),
    explicit_hash_key=st.none() | digits,
)


def headers_of(record: Record) -> list[dict[str, object]]:
    headers = {
        "kinesis.stream": "s",
        "kinesis.shard": "shard",
        "kinesis.sequence": record.sequence_number,
        "kinesis.sub_sequence": str(record.sub_sequence_number),
    }
    if record.explicit_hash_key is not None:
        headers["kinesis.explicit_hash_key"] = record.explicit_hash_key
    return [{"key": key, "value": value.encode()} for key, value in headers.items()]


@given(st.lists(records, min_size=1, max_size=20), st.integers(0, 2**40))
def test_every_field_arrives_as_it_was(group: list[Record], base: int) -> None:
    batch = record_batch(group, stream="s", shard_id="shard", topic="t", partition=3, base=base)

    batch.validate(full=True)
    assert batch.schema.equals(SCHEMA)
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    assert batch.to_pylist() == [
        {
            "key": record.partition_key.encode(),
            "value": record.data,
            "topic": "t",
            "partition": 3,
            "offset": base + index,
            "timestamp": epoch + dt.timedelta(milliseconds=round(record.approximate_arrival_timestamp * 1000)),
            "timestampType": 0,
            "headers": headers_of(record),
        }
        for index, record in enumerate(group)
    ]


@pytest.mark.parametrize("known", [(), (0, 1, 2), (1,), (0, 2)])
def test_the_hash_key_is_a_header_only_where_it_is_known(make_records, known) -> None:
    group = [
        msgspec.structs.replace(record, explicit_hash_key="12" if index in known else None)
        for index, record in enumerate(make_records(3))
    ]
    batch = record_batch(group, stream="s", shard_id="shard", topic="t", partition=0, base=0)
    assert [len(headers) for headers in batch.column("headers").to_pylist()] == [
        5 if index in known else 4 for index in range(3)
    ]


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
