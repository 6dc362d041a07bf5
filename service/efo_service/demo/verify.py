"""Compares the records that were sent with those in the log and in the Parquet files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from efo.errors import EfoError
from efo_service.demo.load import number_of, partition_key
from efo_service.log.catalog import read_catalog, topics
from efo_service.log.disk import DiskFiles
from efo_service.log.segments import list_segments, read_segment


class FoundRecord(NamedTuple):
    """A record that was found. `order`: its position among all records of its key."""

    order: tuple[float, int, int]
    key: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Comparison:
    """Counts of the records in one place. `found`: all rows. `unexpected`: rows that were not sent."""

    found: int
    lost: int
    duplicated: int
    unexpected: int
    order_violations: int

    @property
    def counts(self) -> dict[str, int]:
        """The counts as the summaries of runs name them."""
        return {
            "landed": self.found,
            "lost": self.lost,
            "duplicated": self.duplicated,
            "order_violations": self.order_violations,
        }

    @property
    def is_exact(self) -> bool:
        """Whether the place holds every record once, unchanged and in order, and nothing else."""
        return not (self.lost or self.duplicated or self.unexpected or self.order_violations)


@dataclass(frozen=True, slots=True)
class Latency:
    """Time from a record's arrival in Kinesis until its commit to the log, in milliseconds."""

    p50: float
    p99: float


def compare(rows: Iterable[FoundRecord], produced: int) -> Comparison:
    """Return the comparison of the rows with the records 0 to `produced` - 1."""
    seen = bytearray(produced)
    newest: dict[str, int] = {}
    found = duplicated = unexpected = violations = 0
    for row in sorted(rows):
        found += 1
        number = number_of(row.data)
        if number is None or number >= produced or row.key != partition_key(number):
            unexpected += 1
            continue
        if seen[number]:
            duplicated += 1
            continue
        seen[number] = 1
        violations += newest.get(row.key, -1) > number
        newest[row.key] = max(newest.get(row.key, -1), number)
    return Comparison(found, seen.count(0), duplicated, unexpected, violations)


def log_rows(root: Path, topic: str) -> tuple[list[FoundRecord], Latency]:
    """Return the log's rows, ordered by their commit, and the latency from arrival to commit."""
    rows: list[FoundRecord] = []
    ages: list[float] = []
    for partition in read_catalog(DiskFiles(root), topic).partitions.values():
        for segment in list_segments(root / topic / str(partition)):
            batch, origin = read_segment(segment)
            arrivals = pc.divide(pc.cast(batch.column("timestamp"), "int64"), 1e6).to_pylist()
            ages += (origin.committed_at - arrival for arrival in arrivals)
            columns = (batch.column(name).to_pylist() for name in ("offset", "key", "value"))
            for offset, key, data in zip(*columns, strict=True):
                rows.append(FoundRecord((origin.committed_at, partition, offset), key.decode(), data))
    quantiles = pc.quantile(pa.array(ages), q=[0.5, 0.99]).to_pylist() if ages else [0.0, 0.0]
    return rows, Latency(*(round(1000 * age, 1) for age in quantiles))


def log_size(root: Path, topic: str) -> int:
    """Return the number of records in the log, from the names of its segments."""
    if topic not in topics(DiskFiles(root)):
        return 0  # the service has not written yet
    partitions = read_catalog(DiskFiles(root), topic).partitions.values()
    return sum(s.end - s.base for p in partitions for s in list_segments(root / topic / str(p)))


def parquet_rows(output: Path) -> list[FoundRecord]:
    """Return the rows that Spark wrote, ordered by partition and offset.

    This is also the order of each key, since the children of a shard get higher partitions.
    """
    rows: list[FoundRecord] = []
    for path in committed_files(output):
        table = pq.read_table(path, columns=["partition", "offset", "key", "value"], partitioning=None)
        columns = (table.column(name).to_pylist() for name in ("partition", "offset", "key", "value"))
        for partition, offset, key, data in zip(*columns, strict=True):
            rows.append(FoundRecord((0.0, partition, offset), key.decode(), data))
    return rows


def committed_files(output: Path) -> Iterator[Path]:
    """Yield the files that Spark's file sink has committed, from its metadata log (FileStreamSink).

    The same directory can contain files of a killed batch that are not committed.
    """
    log = output / "_spark_metadata"
    batches = {int(path.stem): path for path in log.glob("[0-9]*") if not path.name.endswith(".tmp")}
    compacted = max((number for number, path in batches.items() if path.suffix == ".compact"), default=-1)
    for number in sorted(batches):
        if number < compacted:
            continue
        version, *entries = batches[number].read_text().splitlines()
        if version != "v1":
            raise EfoError(f"{batches[number]} has version {version!r}, expected v1: did another Spark write it?")
        for entry in map(json.loads, entries):
            if entry["action"] == "add":
                yield Path(entry["path"].removeprefix("file:").replace("//", "/"))
