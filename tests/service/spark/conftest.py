import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from efo.model import Record
from service.relay.partition import open_partition
from service.spark.session import spark_session


@pytest.fixture(scope="session")
def spark() -> Iterator:
    """The one session of the whole run: a start costs seconds."""
    with spark_session("efo tests") as session:
        yield session


class Log:
    """A log that grows as told. A record says by itself which it is: its value is "<shard>/<number>"."""

    def __init__(self, root: Path, topic: str = "orders") -> None:
        self.root = root
        self.topic = topic
        self._counts: dict[int, int] = {}

    def grow(self, shard: int, count: int, *, at: float = 1_700_000_000, step: float = 0.001) -> None:
        """Commit one segment of `count` records, the first of which arrived `at`, each `step` s later."""
        start = self._counts.get(shard, 0)
        self._counts[shard] = start + count
        writer = open_partition(self.root, self.topic, self.topic, f"shardId-{shard:012}", time.time)
        writer.append(
            [
                Record(str(10**20 + number), at + index * step, b"%d/%d" % (shard, number), f"key-{number % 10}")
                for index, number in enumerate(range(start, start + count))
            ]
        )
        writer.close()

    @property
    def values(self) -> list[str]:
        """What all records say, sorted."""
        return sorted(f"{shard}/{number}" for shard, count in self._counts.items() for number in range(count))


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "log")
