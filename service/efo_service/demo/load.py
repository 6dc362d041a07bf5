"""The demo's load: numbered records, whose key and value follow from their number.

Record `n` has the key `n % KEYS` and `n` in its value. The records of a key are in order if their numbers increase.
Missing, duplicated and changed records are found without a list of what was sent.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import trio

from efo.errors import EfoError
from efo.model import HashKeyRange
from efo.protocol.aggregation import AggregateEntry, aggregate, hash_key
from efo.testing import FakeKinesis
from efo_service.log.catalog import read_catalog, topics
from efo_service.log.disk import DiskFiles
from efo_service.log.segments import list_segments, read_segment

KEYS: Final = 997
"""Number of partition keys. It is prime, so that each chunk has different keys."""
CHUNK: Final = 500
"""Maximum number of records that are put at once, as in one PutRecords call of AWS."""
_MIN_CHUNKS: Final = 20
"""Minimum number of chunks, so that a small load is also resharded while it is put."""
AGGREGATED: Final = 3
"""The records of every third key are in KPL aggregates. It depends on the key, so that each key stays in order."""


def partition_key(number: int) -> str:
    """Return the partition key of a record."""
    return f"customer-{number % KEYS:03d}"


def value(number: int) -> bytes:
    """Return the data of a record, about 120 bytes of JSON."""
    key = number % KEYS
    order = {
        "id": number,
        "customer": key,
        "item": f"article-{number * 7919 % 10_007:05d}",
        "quantity": 1 + number % 9,
        "price": round(1 + number * 31 % 9973 / 100, 2),
        "note": "x" * (number % 40),
    }
    return json.dumps(order, separators=(",", ":")).encode()


def number_of(data: bytes) -> int | None:
    """Return the number of a record from its data, None if the data is not what was sent."""
    try:
        number = int(data[6 : data.index(b",")])
    except ValueError:
        return None
    return number if data == value(number) else None


class DemoLoad:
    """Puts records at a steady rate, and splits and merges shards of the stream meanwhile.

    `seconds`: duration of the load. `split_at`, `merge_at`: the share of the records after which to reshard.
    `before_next_chunk`: awaited before each next chunk with the number of records put so far; it can delay the load.
    """

    def __init__(
        self,
        fake: FakeKinesis,
        stream: str,
        records: int,
        *,
        seconds: float,
        split_at: float,
        merge_at: float,
        before_next_chunk: Callable[[int], Awaitable[None]] | None = None,
    ) -> None:
        self._may_go_on = before_next_chunk
        self.records = records
        self.produced = 0
        self.splits = 0
        self.merges = 0
        self._fake = fake
        self._stream = stream
        self._seconds = seconds
        self._due = sorted([(split_at, self.split), (merge_at, self.merge)], key=lambda due: due[0])
        self._moved = trio.Event()

    async def run(self) -> None:
        """Put all records."""
        control_plane = self._fake.kinesis(self._stream).control_plane
        chunk = max(1, min(CHUNK, self.records // _MIN_CHUNKS))
        due = trio.current_time()
        while self.produced < self.records:
            while self._due and self.produced >= self._due[0][0] * self.records:
                self._due.pop(0)[1]()
            shards = [shard.hash_key_range for shard in await control_plane.list_shards() if shard.is_open]
            end = min(self.produced + chunk, self.records)
            self._put(range(self.produced, end), shards)
            self.produced = end
            self._moved.set()
            self._moved = trio.Event()
            due += self._seconds * chunk / self.records
            await trio.sleep_until(due)
            if self._may_go_on is not None:
                await self._may_go_on(self.produced)
                due = max(due, trio.current_time())

    async def reached(self, share: float) -> None:
        """Wait until this share of the records is put."""
        while self.produced < share * self.records:
            await self._moved.wait()

    def split(self) -> None:
        """Split the first open shard in its middle."""
        self._fake.split(self._stream, self._fake.open_shards(self._stream)[0])
        self.splits += 1

    def merge(self) -> None:
        """Merge the last two open shards."""
        shards = self._fake.open_shards(self._stream)
        self._fake.merge(self._stream, shards[-2], shards[-1])
        self.merges += 1

    def _put(self, numbers: Iterable[int], shards: list[HashKeyRange]) -> None:
        plain: list[tuple[str, bytes]] = []
        aggregated: list[AggregateEntry] = []
        for number in numbers:
            key, data = partition_key(number), value(number)
            if number % KEYS % AGGREGATED:
                plain.append((key, data))
            else:
                aggregated.append(AggregateEntry(key, data))
        self._fake.put_many(self._stream, plain)
        for shard in shards:
            # The key of its first record routes an aggregate to the shard of all its records.
            if entries := [entry for entry in aggregated if hash_key(entry.partition_key) in shard]:
                self._fake.put(self._stream, entries[0].partition_key, aggregate(entries))


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
