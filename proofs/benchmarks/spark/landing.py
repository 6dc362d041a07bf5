"""From Kinesis to a Parquet table: the time from a record's arrival until Spark has committed it, by log or Kafka.

The fake, the load, `efo run`, Spark and the broker share the machine. A query with trigger(processingTime=0) writes
with Spark's file sink; a record has landed when the sink's list of files with it appears.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

WARM_UP_SECONDS: Final = 15.0
"""Records that arrive in the first seconds do not count: the first micro-batches start Python and compile Java."""


@dataclass(frozen=True, slots=True)
class Landed:
    """A micro-batch's commit. `at`: seconds since the epoch. `files`: what it added."""

    at: float
    files: tuple[Path, ...]


def landing(
    open_stream: Callable[[], DataFrame],
    root: Path,
    load: Callable[[Callable[[], object]], object],
    *,
    warm_up: float = WARM_UP_SECONDS,
) -> dict[str, float]:
    """Write a stream to Parquet below `root` while `load` runs; return the quantiles of the ages in milliseconds.

    `load`: calls its argument, which starts the query, when the stream's topic exists.
    """
    output = root / "output"
    queries = []

    def start() -> None:
        writer = open_stream().writeStream.format("parquet").option("checkpointLocation", str(root / "checkpoint"))
        queries.append(writer.trigger(processingTime="0 seconds").start(str(output)))

    try:
        load(start)
        for query in queries:
            query.processAllAvailable()
    finally:
        for query in queries:
            query.stop()
    return quantiles(list(commits(output)), warm_up)


def log_stream(session: SparkSession, log: Path, topic: str) -> DataFrame:
    """Return the stream of the log's records."""
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    frame: DataFrame = session.readStream.format("efo").options(**options).load(str(log))
    return frame


def kafka_stream(session: SparkSession, servers: str, topic: str) -> DataFrame:
    """Return the stream of the topic's records that are committed."""
    options = {
        "kafka.bootstrap.servers": servers,
        "kafka.isolation.level": "read_committed",
        "subscribe": topic,
        "startingOffsets": "earliest",
    }
    return session.readStream.format("kafka").options(**options).load()


def commits(output: Path) -> Iterator[Landed]:
    """Yield the commits of Spark's file sink, the oldest first. A compacted list repeats what older ones have."""
    seen: set[Path] = set()
    lists = [path for path in (output / "_spark_metadata").iterdir() if path.name.split(".")[0].isdigit()]
    for path in sorted(lists, key=lambda path: int(path.name.split(".")[0])):
        entries: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()[1:]]
        files = tuple(file for entry in entries if (file := _path(entry["path"])) not in seen)
        seen.update(files)
        yield Landed(path.stat().st_mtime, files)


def quantiles(landed: list[Landed], warm_up: float) -> dict[str, float]:
    """Return the quantiles of the time from arrival to commit, of records that arrived after the first seconds."""
    ages: list[pa.Array] = []
    first: int | None = None
    for commit in landed:
        for path in commit.files:
            arrivals = pq.read_table(path, columns=["timestamp"]).column("timestamp").cast(pa.timestamp("us", "UTC"))
            microseconds = arrivals.cast(pa.int64()).combine_chunks()
            if not len(microseconds):
                continue
            first = pc.min(microseconds).as_py() if first is None else first
            counted = microseconds.filter(pc.greater(microseconds, first + round(warm_up * 1e6)))
            ages.append(pc.divide(pc.subtract(commit.at * 1e6, counted.cast(pa.float64())), 1000.0))
    all_ages = pa.chunked_array(ages, pa.float64())
    p50, p99 = pc.quantile(all_ages, q=[0.5, 0.99]).to_pylist()
    return {"records": len(all_ages), "micro_batches": len(landed), "ms_p50": round(p50, 1), "ms_p99": round(p99, 1)}


def _path(uri: str) -> Path:
    return Path(unquote(urlsplit(uri).path))
