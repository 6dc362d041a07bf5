from collections.abc import Callable
from pathlib import Path

import pytest

from efo_service.log.partition_writer import PartitionWriter, open_partition
from tests.efo_service.conftest import SHARD, STREAM, TOPIC


@pytest.fixture
def open_writer(tmp_path: Path) -> Callable[..., PartitionWriter]:
    def make(stream: str = STREAM, shard_id: str = SHARD, topic: str = TOPIC) -> PartitionWriter:
        return open_partition(tmp_path / "log", topic, stream, shard_id, lambda: 1_800_000_000.25)

    return make
