"""Spark's cost of reading the log, beside Parquet by Spark's own reader, and Kafka's source: CPU-seconds and rows/s.

All three have the same rows, with headers. A query runs on each in turn, so that other load meets all of them.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from efo.model import Record
from efo_service.log.disk import DiskFiles
from efo_service.log.partition_writer import open_partition
from efo_service.log.segments import list_segments, read_segment
from efo_service.spark.session import spark_session
from proofs.peers.process_tree import usage_of

TOPIC: Final = "orders"
PARTITIONS: Final = 4
COMMIT_RECORDS: Final = 10_000
"""Records of a segment, as the relay commits them under load."""
RECORD_BYTES: Final = 200
ROUNDS: Final = 5
WARM_UPS: Final = 3
"""Rounds before those that count: Java compiles what runs often."""
CORES: Final = (1, 2, 4)
_FIRST_SEQUENCE_NUMBER: Final = 10**20


@dataclass(frozen=True, slots=True)
class Cost:
    """What a query took. `cpu_seconds`: of Java and its Python workers."""

    wall_seconds: float
    cpu_seconds: float


Work = Callable[[], object]


def measure_reading(
    root: Path, records: int, kafka: Kafka | None, report: Callable[[str], None] = lambda _line: None
) -> dict[str, object]:
    """Return the figures. `records`: in all partitions. `kafka`: where the same records go; None: without Kafka.

    `report`: takes a line of progress.
    """
    report(f"writing {records:,} records")
    write_log(root / "log", records)
    if kafka is not None:
        kafka.fill(root / "log")
    result: dict[str, object] = {"records": records, "record_bytes": RECORD_BYTES}
    cores = os.cpu_count() or 1
    rates: dict[int, float] = {}
    for number in CORES:
        if number > cores:
            continue
        report(f"Spark on {number} of {cores} cores")
        with spark_session("efo benchmark", master=f"local[{number}]", jars=kafka.jars if kafka else ()) as session:
            if number == min(cores, 2):
                result |= _beside_others(session, root, kafka)
            log = _frames(session, root, None)["log"]
            cost = _costs({"log": partial(_to_noop, log)})["log"]
            rates[number] = records / statistics.median(one.wall_seconds for one in cost)
    result["rows_per_second_by_cores"] = {number: round(rate) for number, rate in rates.items()}
    result["scaling"] = {number: round(rate / rates[1], 2) for number, rate in rates.items()}
    result["scaling_not_measured"] = [number for number in CORES if number not in rates]
    return result


@dataclass(frozen=True, slots=True)
class Kafka:
    """A broker. `copy`: writes rows of the log to a topic that exists. `jars`: of Spark's Kafka source."""

    address: str
    jars: tuple[Path, ...]
    copy: Callable[[Iterator[dict[str, Any]], str], None]

    def fill(self, log: Path) -> None:
        """Write the records of the log to the topic."""
        for partition in range(PARTITIONS):
            segments = list_segments(log / TOPIC / str(partition))
            self.copy((row for segment in segments for row in read_segment(segment)[0].to_pylist()), self.address)


def write_log(log: Path, records: int) -> None:
    """Write a log with the same number of records in each partition."""
    data = os.urandom(RECORD_BYTES)
    for partition in range(PARTITIONS):
        shard = f"shardId-{partition:012}"
        writer = open_partition(DiskFiles(log), TOPIC, TOPIC, shard, time.time)
        for start in range(0, records // PARTITIONS, COMMIT_RECORDS):
            end = min(start + COMMIT_RECORDS, records // PARTITIONS)
            writer.append(
                [
                    Record(str(_FIRST_SEQUENCE_NUMBER + n), 1.7e9 + n / 1e4, data, f"key-{n:012}")
                    for n in range(start, end)
                ]
            )
        writer.close()


def _beside_others(session: SparkSession, root: Path, kafka: Kafka | None) -> dict[str, object]:
    log = _frames(session, root, None)["log"]
    log.write.parquet(str(root / "parquet"))
    frames = _frames(session, root, kafka)
    noop = _costs({name: partial(_to_noop, frame) for name, frame in frames.items()})
    runs = _Runs(root / "runs")
    streams = {
        "log": _log_reader(session.readStream).load(str(root / "log")),
        "parquet": session.readStream.schema(log.schema).parquet(str(root / "parquet")),
    }
    landed = _costs({name: partial(runs.available_now, stream) for name, stream in streams.items()})
    return {
        "cores": session.sparkContext.defaultParallelism,
        "to_noop": {name: _summary(costs) for name, costs in noop.items()},
        "available_now_to_parquet": {name: _summary(costs) for name, costs in landed.items()},
        "noop_cpu_of_parquet": _ratio(noop["log"], noop["parquet"], "cpu_seconds"),
        **({"noop_cpu_of_kafka": _ratio(noop["log"], noop["kafka"], "cpu_seconds")} if kafka else {}),
        "available_now_cpu_of_parquet": _ratio(landed["log"], landed["parquet"], "cpu_seconds"),
        "available_now_time_of_parquet": _ratio(landed["log"], landed["parquet"], "wall_seconds"),
    }


def _log_reader(reader: Any) -> Any:
    return reader.format("efo").options(subscribe=TOPIC, startingOffsets="earliest", includeHeaders="true")


def _frames(session: SparkSession, root: Path, kafka: Kafka | None) -> dict[str, DataFrame]:
    frames: dict[str, DataFrame] = {"log": _log_reader(session.read).load(str(root / "log"))}
    if (root / "parquet").exists():
        frames["parquet"] = session.read.parquet(str(root / "parquet"))
    if kafka is not None:
        options = {"kafka.bootstrap.servers": kafka.address, "subscribe": TOPIC, "includeHeaders": "true"}
        frames["kafka"] = session.read.format("kafka").options(**options).load()
    return frames


def _to_noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


class _Runs:
    """Runs of AvailableNow into Parquet, each with a checkpoint and an output of its own below `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._runs = 0

    def available_now(self, stream: DataFrame) -> None:
        self._runs += 1
        place = self._root / str(self._runs)
        writer = stream.writeStream.format("parquet").option("checkpointLocation", str(place / "checkpoint"))
        writer.trigger(availableNow=True).start(str(place / "output")).awaitTermination()


def _costs(works: dict[str, Work]) -> dict[str, list[Cost]]:
    """Do the work of each in turn; return what it took in the rounds that count."""
    costs: dict[str, list[Cost]] = {name: [] for name in works}
    for number in range(WARM_UPS + ROUNDS):
        for name, work in works.items():
            cost = _cost(work)
            if number >= WARM_UPS:
                costs[name].append(cost)
    return costs


def _cost(work: Work) -> Cost:
    gateway = SparkContext._gateway  # noqa: SLF001 - PySpark has no public API for it
    assert gateway is not None
    java: int = gateway.proc.pid
    wall, cpu = time.perf_counter(), usage_of(java).cpu_seconds
    work()
    return Cost(time.perf_counter() - wall, usage_of(java).cpu_seconds - cpu)


def _summary(costs: list[Cost]) -> dict[str, float]:
    return {
        "cpu_seconds": round(statistics.median(cost.cpu_seconds for cost in costs), 2),
        "wall_seconds": round(statistics.median(cost.wall_seconds for cost in costs), 2),
    }


def _ratio(ours: list[Cost], other: list[Cost], field: str) -> float:
    """Return the median of the rounds' ratios: the two of a round ran one after the other."""
    pairs = zip(ours, other, strict=True)
    ratios: list[float] = [getattr(one, field) / getattr(two, field) for one, two in pairs]
    return round(statistics.median(ratios), 2)
