from collections.abc import Callable
from pathlib import Path

import pytest

from efo_service.log.disk import DiskFiles
from efo_service.log.partition_writer import PartitionWriter, open_partition
from tests.efo_service.conftest import SHARD, STREAM, TOPIC


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The directory of the first partition that `open_writer` opens."""
    return tmp_path / "log" / TOPIC / "0"


@pytest.fixture
def open_writer(tmp_path: Path) -> Callable[..., PartitionWriter]:
    def make(stream: str = STREAM, shard_id: str = SHARD, topic: str = TOPIC) -> PartitionWriter:
        return open_partition(DiskFiles(tmp_path / "log"), topic, stream, shard_id, lambda: 1_800_000_000.25)

    return make
