from collections.abc import Callable
from pathlib import Path

import pytest

from efo.model import Batch, Record
from efo_service.relay.log.partition_writer import PartitionWriter, open_partition

STREAM, SHARD, TOPIC = "orders", "shardId-000000000000", "orders"
FIRST = 49590338271490256608559692538361571095921575989136588898


@pytest.fixture
def make_records() -> Callable[..., tuple[Record, ...]]:
    """Make the records `start` to `start` + `count` - 1 of one shard. Their fields depend only on their number."""

    def make(count: int, start: int = 0) -> tuple[Record, ...]:
        return tuple(
            Record(
                sequence_number=str(FIRST + number),
                approximate_arrival_timestamp=1_700_000_000 + number / 1000,
                data=b"value-%d" % number,
                partition_key=f"key-{number % 7}",
            )
            for number in range(start, start + count)
        )

    return make


@pytest.fixture
def make_batch(make_records) -> Callable[..., Batch]:
    """Make a batch of the shard. `number`: the number of the batch, independent of the records' numbers."""

    def make(count: int, start: int = 0, number: int = 0) -> Batch:
        return Batch("s", SHARD, make_records(count, start), str(start + count), 0, number)

    return make


@pytest.fixture
def open_writer(tmp_path: Path) -> Callable[..., PartitionWriter]:
    def make(stream: str = STREAM, shard_id: str = SHARD, topic: str = TOPIC) -> PartitionWriter:
        return open_partition(tmp_path / "log", topic, stream, shard_id, lambda: 1_800_000_000.25)

    return make
