"""Which shard a record goes to."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from efo.model import MAX_HASH_KEY, HashKeyRange, Shard
from efo.producer.shard_map import ShardMap
from efo.protocol.aggregation import digest_of, hash_key
from efo.testing.state.streams import StreamState

HALF = 2**127


def shard(number: int, first: int, last: int, *, is_open: bool = True) -> Shard:
    return Shard(f"shardId-{number}", HashKeyRange(str(first), str(last)), "1", None if is_open else "9")


@given(key=st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=256), shards=st.integers(1, 9))
def test_it_is_the_shard_that_the_service_chooses(key, shards):
    stream = StreamState("orders", "arn", shards, 0.0, retention_hours=24, max_record_bytes=1024)
    shard_map = ShardMap([state.as_shard() for state in stream.shards.values()])
    digest = digest_of(key.encode())
    assert int.from_bytes(digest) == hash_key(key)
    assert shard_map.shard_ids[shard_map.index_of(digest)] == stream.shard_of(hash_key(key)).id


def test_an_explicit_hash_key_goes_before_the_partition_key():
    shard_map = ShardMap([shard(0, 0, HALF - 1), shard(1, HALF, MAX_HASH_KEY)])
    for text, expected in (("0", 0), (str(HALF - 1), 0), (str(HALF), 1), (str(MAX_HASH_KEY), 1)):
        assert shard_map.index_of(digest_of(b"key", text)) == expected


def test_closed_shards_get_no_records_and_are_known():
    parent = shard(0, 0, MAX_HASH_KEY, is_open=False)
    shard_map = ShardMap([parent, shard(1, 0, HALF - 1), shard(2, HALF, MAX_HASH_KEY)])
    assert shard_map.shard_ids == ["shardId-1", "shardId-2"]
    assert shard_map.knows("shardId-0")
    assert not shard_map.knows("shardId-3")
    assert shard_map.covers("shardId-1", [digest_of(b"", "0"), digest_of(b"", str(HALF - 1))])
    assert not shard_map.covers("shardId-1", [digest_of(b"", "0"), digest_of(b"", str(HALF))])


def test_hash_keys_that_no_listed_shard_has_go_to_the_one_before_or_to_the_first():
    shard_map = ShardMap([shard(1, 100, HALF)])
    assert shard_map.index_of(digest_of(b"", "0")) == shard_map.index_of(digest_of(b"", str(MAX_HASH_KEY))) == 0


def test_a_listing_without_an_open_shard_is_no_map():
    with pytest.raises(ValueError, match="no shard is open"):
        ShardMap([shard(0, 0, MAX_HASH_KEY, is_open=False)])
