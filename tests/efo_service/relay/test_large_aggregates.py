"""The largest aggregates that Kinesis takes, from deaggregation to each sink: what is written, and how much is held."""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import md5

import pyarrow as pa
import pytest
import trio

from efo.consumer.deaggregator import Deaggregator
from efo.events import Event
from efo.model import MAX_HASH_KEY, Batch, Checkpoint, Record
from efo.protocol.aggregate_message import serialize
from efo.protocol.aggregation import MAGIC, AggregateMode
from efo_service.log.columns import arrow
from efo_service.log.disk import DiskFiles
from efo_service.log.sink import LogSink
from efo_service.relay.jsonlines import open_json_lines
from efo_service.relay.relay import COMMIT_BYTES, relay_shard
from tests.efo_service.relay.relaying import to

MEBIBYTE = 1024 * 1024
MAX_HELD = 64 * 1000 * 1000
LONGEST_KEY = "\N{GRINNING FACE}" * 256
LONGEST_HASH_KEY = str(MAX_HASH_KEY)


def aggregate(keys: list[str], hash_keys: list[str], users: list[dict]) -> bytes:
    body = serialize(keys, hash_keys, users)
    return MAGIC + body + md5(body, usedforsecurity=False).digest()


AGGREGATES = {
    # each user record is 8 bytes on the wire, and 1.6 KB in a sink
    "one long key": (
        130_000,
        lambda count: aggregate(
            [LONGEST_KEY],
            [LONGEST_HASH_KEY],
            [{"partition_key_index": 0, "explicit_hash_key_index": 0, "data": b""}] * count,
        ),
    ),
    "many long keys": (
        18_000,
        lambda count: aggregate(
            [f"{LONGEST_KEY[:250]}{n:06}" for n in range(900)],
            [],
            [{"partition_key_index": n % 900, "data": b""} for n in range(count)],
        ),
    ),
    "many tags": (
        1,
        lambda _: aggregate(["k"], [], [{"partition_key_index": 0, "data": b"", "tags": [{"key": ""}] * 250_000}]),
    ),
}


@dataclass
class Shard:
    """A shard with one Kinesis record, whose user records are delivered as a shard stream does it."""

    record: Record
    stream: str = "s" * 128
    shard_id: str = "shardId-" + "0" * 120
    checkpoint: Checkpoint = Checkpoint.TRIM_HORIZON
    has_pending: bool = True
    seen: list[Event] = field(default_factory=list)
    acked: list[tuple[int, int | None]] = field(default_factory=list)
    batches: int = 0

    def seek(self, checkpoint: Checkpoint) -> None:
        raise AssertionError("the sink is new")

    async def __aiter__(self) -> AsyncIterator[Batch]:
        deaggregator = Deaggregator(self.shard_id, None, AggregateMode.FILTER, self.seen.append)
        for part in deaggregator.deaggregate((self.record,), Checkpoint.TRIM_HORIZON):
            await trio.lowlevel.checkpoint()
            if part.records:
                yield Batch(self.stream, self.shard_id, part.records, None, 0, self.batches)
                self.batches += 1

    def ack_through(self, batch: Batch, index: int | None = None) -> None:
        self.acked.append((batch.number, index))


class Held:
    """The most bytes of Python's and of Arrow's allocations since the start."""

    def __init__(self, pool: pa.MemoryPool) -> None:
        self._pool = pool

    @property
    def peak(self) -> int:
        return tracemalloc.get_traced_memory()[1] + self._pool.max_memory()


@contextmanager
def measured() -> Iterator[Held]:
    usual = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(usual)
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        yield Held(pool)
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(usual)
        arrow.clear_caches()  # what they hold was allocated from the pool, which ends with this test


@pytest.fixture(params=AGGREGATES)
def aggregated(request) -> tuple[int, Record]:
    count, make = AGGREGATES[request.param]
    data = make(count)
    assert MEBIBYTE * 0.9 < len(data) <= MEBIBYTE
    return count, Record("4" * 56, 1.0, data, "k", "KMS")


async def test_the_log_holds_little_of_the_largest_legal_aggregate(aggregated, tmp_path) -> None:
    count, record = aggregated
    shard = Shard(record)
    sink = LogSink(DiskFiles(tmp_path), "t" * 128)
    with measured() as held:
        await relay_shard(shard, to(sink))
        assert held.peak < MAX_HELD
    async with sink.open(shard.stream, shard.shard_id) as opened:
        assert opened.end_offset == count
    assert shard.acked[-1] == (shard.batches - 1, None)
    assert max(path.stat().st_size for path in tmp_path.rglob("*.arrow")) < 2 * COMMIT_BYTES


async def test_json_lines_hold_little_of_the_largest_legal_aggregate(aggregated, tmp_path) -> None:
    count, record = aggregated
    shard = Shard(record)
    async with open_json_lines(tmp_path / "lines") as sink:
        with measured() as held:
            await relay_shard(shard, to(sink))
            assert held.peak < MAX_HELD
    with (tmp_path / "lines").open("rb") as lines:
        assert sum(1 for _ in lines) == count


async def test_a_poison_record_is_written_whole_and_reported(tmp_path) -> None:
    """25,000 empty user records that name one key of 100,000 bytes would be gigabytes."""
    data = aggregate(["p" * 100_000], [], [{"partition_key_index": 0, "data": b""}] * 25_000)
    shard = Shard(Record("1", 1.0, data, "k"))
    sink = LogSink(DiskFiles(tmp_path), "t")
    with measured() as held:
        await relay_shard(shard, to(sink))
        assert held.peak < MAX_HELD
    async with sink.open(shard.stream, shard.shard_id) as opened:
        assert opened.end_offset == 1
    assert [type(event).__name__ for event in shard.seen] == ["AggregateDamaged"]
