"""Responses of GetRecords: what is valid, what is refused, and the end of a shard (rule R2)."""

import msgspec
import pytest

from efo.errors import EventError
from efo.model import ChildShard, HashKeyRange, Record
from efo.protocol.polling import RecordsPage, parse_iterator, parse_page

RECORD = {"SequenceNumber": "17", "ApproximateArrivalTimestamp": 1.5, "Data": "AAE=", "PartitionKey": "k"}
CHILD = {"ShardId": "s-1", "ParentShards": ["s-0"], "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "9"}}


def page(**members):
    members = {"Records": [], "NextShardIterator": "next", "MillisBehindLatest": 0} | members
    return msgspec.json.encode({key: value for key, value in members.items() if value is not ...})


def test_records_and_the_next_iterator_are_read():
    body = page(Records=[RECORD | {"EncryptionType": "KMS"}], MillisBehindLatest=7, Unknown={"a": 1})
    assert parse_page(body) == RecordsPage((Record("17", 1.5, b"\x00\x01", "k", "KMS"),), "next", 7)


def test_a_record_without_an_arrival_time_has_the_time_0():
    record = {key: value for key, value in RECORD.items() if key != "ApproximateArrivalTimestamp"}
    assert parse_page(page(Records=[RECORD, record])).records[1].approximate_arrival_timestamp == 0.0


@pytest.mark.parametrize("key", [{}, {"PartitionKey": None}], ids=["missing", "null"])
def test_a_record_may_have_no_partition_key_and_a_page_only_records(key):
    keyless = {"SequenceNumber": "18", "Data": "AAE="} | key
    read = parse_page(page(Records=[RECORD, keyless], MillisBehindLatest=...))
    assert read.records[1] == Record("18", 0.0, b"\x00\x01")
    assert read.records[1].partition_key is None
    assert read.millis_behind_latest is None


@pytest.mark.parametrize("iterator", [None, ..., ""])
def test_a_page_without_an_iterator_and_with_children_is_the_end(iterator):
    end = parse_page(page(NextShardIterator=iterator, ChildShards=[CHILD]))
    assert end.child_shards == (ChildShard("s-1", ("s-0",), HashKeyRange("0", "9")),)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (page(NextShardIterator=None), "neither an iterator nor child shards"),
        (page(NextShardIterator=None, ChildShards=[]), "neither an iterator nor child shards"),
        (page(ChildShards=[CHILD]), "an iterator and child shards"),
        (page(NextShardIterator=None, ChildShards=[CHILD | {"ParentShards": []}]), "no parents"),
        (page(Records=[RECORD | {"SequenceNumber": "1x"}]), "not a decimal integer"),
        (page(Records=[RECORD | {"Data": "%"}]), "cannot be parsed"),
        (b'{"Records": [', "cannot be parsed"),
        (b'{"NextShardIterator": "x"}', "cannot be parsed"),
        (b"[" * 100_000, "cannot be parsed"),
    ],
)
def test_an_invalid_page_is_refused_and_may_be_repeated(body, text):
    with pytest.raises(EventError, match=text) as caught:
        parse_page(body)
    assert caught.value.retryable


def test_an_iterator_is_read():
    assert parse_iterator(b'{"ShardIterator": "AAA"}') == "AAA"
    with pytest.raises(EventError, match="GetShardIterator cannot be parsed"):
        parse_iterator(b"{}")
