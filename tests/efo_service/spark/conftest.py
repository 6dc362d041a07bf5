import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from efo.model import Record
from efo_service.log.catalog import read_catalog
from efo_service.log.disk import DiskFiles
from efo_service.log.partition_writer import open_partition
from efo_service.log.segments import list_segments, read_segment
from efo_service.spark.pipeline.pipeline import MAX_RETRIES, WORKER_TIMEOUT
from efo_service.spark.session import spark_session
from proofs.e2e.kafka.broker import AVRO_MODULE


@pytest.fixture(scope="session")
def spark() -> Iterator:
    """One session for the whole run: a start takes seconds."""
    jars = [] if AVRO_MODULE is None else [AVRO_MODULE]
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as environment:  # Java passes its environment on to Python workers
            environment.setenv("AWS_ACCESS_KEY_ID", "test")
            environment.setenv("AWS_SECRET_ACCESS_KEY", "test")
            session = stack.enter_context(spark_session("efo tests", quick=True, jars=jars))
        yield session


def retry_worker_timeouts(work: Callable[[], Any]) -> Any:
    """Do work that needs Python workers of Spark; retry if a worker starts too slowly because the machine is busy."""
    for _ in range(MAX_RETRIES):
        try:
            return work()
        except Exception as error:
            if WORKER_TIMEOUT not in str(error):
                raise
    return work()


class Log:
    """A log that a test extends. The value of a record of `grow` is "<shard>/<number>"."""

    def __init__(self, root: Path, topic: str = "orders") -> None:
        self.root = root
        self.topic = topic
        self._counts: dict[int, int] = {}

    def grow(self, shard: int, count: int, *, at: float = 1_700_000_000, step: float = 0.001) -> None:
        """Commit one segment of `count` records. They arrive from `at` on, `step` seconds apart."""
        start = self._counts.get(shard, 0)
        self._counts[shard] = start + count
        self._append(
            shard,
            [
                Record(str(10**20 + number), at + index * step, b"%d/%d" % (shard, number), f"key-{number % 10}")
                for index, number in enumerate(range(start, start + count))
            ],
        )

    def put(
        self, shard: int, values: list[bytes], *, at: float = 1_700_000_000, key: str | None = "key", tags=()
    ) -> None:
        """Commit one segment of records with these values."""
        start = self._counts.get(shard, 0)
        self._counts[shard] = start + len(values)
        self._append(shard, [Record(str(10**20 + start + n), at, v, key, tags=tags) for n, v in enumerate(values)])

    def repeat(self, shard: int, count: int) -> None:
        """Commit the shard's last records again, like an at-least-once relay."""
        directory = (
            self.root
            / self.topic
            / str(read_catalog(DiskFiles(self.root), self.topic).partitions[f"shardId-{shard:012}"])
        )
        rows = [row for segment in list_segments(directory) for row in read_segment(segment)[0].to_pylist()]
        repeated = []
        for row in rows[-count:]:
            headers = {header["key"]: header["value"].decode() for header in row["headers"]}
            key, at = row["key"].decode(), row["timestamp"].timestamp()
            repeated.append(Record(headers["kinesis.sequence"], at, row["value"], key))
        self._append(shard, repeated)

    def _append(self, shard: int, records: list[Record]) -> None:
        writer = open_partition(DiskFiles(self.root), self.topic, self.topic, f"shardId-{shard:012}", time.time)
        writer.append(records)
        writer.close()

    @property
    def values(self) -> list[str]:
        """The values of all records of `grow`, sorted."""
        return sorted(f"{shard}/{number}" for shard, count in self._counts.items() for number in range(count))


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "log")
