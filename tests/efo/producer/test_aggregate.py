"""Aggregates that the producer builds: read back by efo and by aws_kinesis_agg, and of the size that it says."""

from __future__ import annotations

import base64

import pytest
from aws_kinesis_agg.deaggregator import deaggregate_records
from hypothesis import given, strategies as st

from efo.model import MAX_HASH_KEY, Record
from efo.producer.aggregate import AggregateBuilder, user_records
from efo.producer.entry import Entry, Outgoing
from efo.protocol.aggregation import AggregateEntry as UserRecord, aggregate
from efo.protocol.deaggregation import deaggregate

KEYS = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20)
HASHES = st.none() | st.integers(0, MAX_HASH_KEY).map(str)
USERS = st.lists(st.builds(UserRecord, KEYS, st.binary(max_size=300), HASHES), min_size=2, max_size=40)


def built(users, limit=10**9) -> AggregateBuilder:
    builder = AggregateBuilder(b"", 0.0)
    for key, data, explicit in users:
        assert builder.add(Outgoing(0.0), key.encode(), data, explicit, limit)
    return builder


def entry_of(data: bytes) -> Entry:
    return Entry([Outgoing(0.0)] * 2, "a", data, "0", size=0, weight=0, order_key=None, epoch=0)


@given(USERS)
def test_it_has_the_bytes_that_protobuf_writes_and_the_size_that_was_counted(users):
    builder = built(users)
    data = builder.build()
    assert data == aggregate(users)
    assert builder.size == len(data)
    assert builder.payload == sum(len(key.encode()) + len(payload) for key, payload, _ in users)


@given(USERS)
def test_its_user_records_are_read_back(users):
    data = built(users).build()
    assert list(user_records(entry_of(data))) == users
    found = deaggregate(Record("1", 0.0, data, "a"))
    assert found.problem is None
    assert [UserRecord(r.partition_key, r.data, r.explicit_hash_key) for r in found.records] == users
    assert [r.sub_sequence_number for r in found.records] == list(range(len(users)))


@given(st.lists(st.builds(UserRecord, KEYS, st.binary(min_size=1, max_size=300)), min_size=2, max_size=40))
def test_aws_kinesis_agg_reads_it(users):
    data = base64.b64encode(built(users).build()).decode()
    raw = {
        "kinesis": {
            "data": data,
            "partitionKey": "a",
            "sequenceNumber": "1",
            "kinesisSchemaVersion": "1.0",
            "approximateArrivalTimestamp": 0.0,
        },
        "eventSource": "",
        "eventVersion": "",
        "eventID": "",
        "eventName": "",
        "invokeIdentityArn": "",
        "awsRegion": "",
        "eventSourceARN": "",
    }
    found = [record["kinesis"] for record in deaggregate_records([raw])]
    assert [(r["partitionKey"], base64.b64decode(r["data"])) for r in found] == [(k, d) for k, d, _ in users]


@pytest.mark.parametrize("size", [0, 1, 4, 127, 128, 4095, 4096, 16_384, 3_000_000])
def test_lengths_of_any_size_are_encoded(size):
    users = [UserRecord("key", b"x" * size), UserRecord("other", b"")]
    assert built(users).build() == aggregate(users)


def test_it_refuses_what_would_make_it_larger_than_its_limit_and_stays_as_it_is():
    users = [UserRecord("key", b"x" * 10), UserRecord("key", b"y" * 10)]
    size = len(aggregate(users))
    builder = built(users[:1])
    assert not builder.add(Outgoing(0.0), b"other", b"y" * 10, "7", size)
    assert not builder.add(Outgoing(0.0), b"key", b"y" * 11, None, size)
    assert builder.add(Outgoing(0.0), b"key", b"y" * 10, None, size)
    assert builder.build() == aggregate(users)


def test_a_first_user_record_is_taken_whatever_its_size_and_is_put_alone():
    builder = AggregateBuilder(b"", 0.0)
    assert builder.add(Outgoing(0.0), b"key", b"x" * 1000, "42", 100)
    assert builder.single() == UserRecord("key", b"x" * 1000, "42")
