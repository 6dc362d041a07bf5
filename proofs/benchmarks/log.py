"""Measures writes and reads of the embedded log: `python -m proofs.benchmarks.log [--records N] [--no-spark]`.

Prints one JSON object. Compare only figures of one machine: a commit with a plain durable write of the same number of
bytes, and the Spark source with Spark's own Parquet reader on the same rows.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

from efo.model import Record
from efo_service.log.columns.arrow import record_batch
from efo_service.log.columns.layout import columns_of
from efo_service.log.disk import DiskFiles
from efo_service.log.maintenance import LogMaintenance
from efo_service.log.partition_writer import open_partition
from efo_service.log.retention import RetentionRules
from efo_service.log.segments import list_segments, read_segment
from efo_service.relay.mapping import RecordMapping

GROUPS = (1, 100, 1_000, 10_000)
SIZES = (75, 150, 300, 1000)
ROUNDS = 5
FIRST_SEQUENCE_NUMBER = 49590338271490256608559692538361571095921575989136588898


def make_records(count: int, start: int = 0) -> list[Record]:
    """Return decoded records of a shard, with 200 bytes of data and keys of 16 characters."""
    data = os.urandom(200)
    return [
        Record(str(FIRST_SEQUENCE_NUMBER + n), 1.7e9 + n / 1e4, data, f"key-{n % 10**6:012}")
        for n in range(start, start + count)
    ]


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Call `work`; return its wall-clock seconds and CPU seconds of this process."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def measure_commits(root: Path, group: int) -> dict[str, float]:
    """Measure commits: columns, checksum, fdatasync, rename, fsync. Compare their median with a plain durable write."""
    writer = open_partition(DiskFiles(root / "log"), f"g{group}", "s", "shard", time.time)
    count = max(20, min(200, 200_000 // group))
    walls, cpus, sizes, plain = [], [], [], []
    for index in range(-5, count):  # the first five are for warm-up
        records = make_records(group, (index + 5) * group)
        wall, cpu = timed(partial(writer.append, records))
        size = list_segments(root / "log" / f"g{group}" / "0")[-1].path.stat().st_size
        if index >= 0:
            walls.append(wall)
            cpus.append(cpu)
            sizes.append(size)
            plain.append(timed(partial(plain_write, root / "plain", size))[0])
    writer.close()
    return {
        "rows": group,
        "milliseconds_p50": round(statistics.median(walls) * 1000, 2),
        "times_a_plain_durable_write": round(statistics.median(walls) / statistics.median(plain), 2),
        "rows_per_second": round(group * count / sum(walls)),
        "rows_per_cpu_second": round(group * count / sum(cpus)),
        "bytes_per_row": round(sum(sizes) / (group * count), 1),
    }


def plain_write(path: Path, size: int) -> None:
    """Write `size` bytes durably, without anything else."""
    content = bytes(size)
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fdatasync(file.fileno())


def schema_cost() -> dict[str, float]:
    """Return the shares of bytes in the stored columns that a reader could also compute, and in the headers."""
    mapping = RecordMapping("orders", "shardId-000000000000")
    batch = record_batch([columns_of(make_records(10_000), mapping)], mapping, topic="orders", partition=0, base=0)
    constant = sum(batch.column(name).nbytes for name in ("topic", "partition", "offset", "timestampType"))
    return {
        "constant_columns_share": round(constant / batch.nbytes, 3),
        "headers_share": round(batch.column("headers").nbytes / batch.nbytes, 3),
    }


def measure_reads(root: Path, count: int) -> dict[str, float]:
    """Measure reads with checksum verification, without Spark."""
    directory = root / "log" / "orders" / "0"
    wall, cpu = timed(lambda: [read_segment(segment, mapped=True) for segment in list_segments(directory)])
    return {"rows_per_second": round(count / wall), "rows_per_cpu_second": round(count / cpu)}


def measure_disk(root: Path, size: int, count: int = 50_000) -> dict[str, float]:
    """Measure what a record of JSON takes on the disk when it is committed, and when it is compacted; and CPU time."""
    with closing(open_partition(DiskFiles(root), "orders", "orders", "shardId-000000000000", time.time)) as writer:
        records = json_records(count, size)
        for start in range(0, count, 1000):
            writer.append(records[start : start + 1000])
        writer.append(records[:1])  # the newest segment is not compacted
    found: dict[str, float] = {"record_bytes": round(sum(len(one.data) for one in records) / count)}
    for name in ("committed", "compacted"):
        segments = list_segments(root / "orders" / "0")[:-1]
        reads = [timed(lambda: [read_segment(one, mapped=True) for one in segments])[1] for _ in range(ROUNDS)]  # noqa: B023
        found[f"{name}_bytes_per_record"] = round(sum(one.path.stat().st_size for one in segments) / count, 1)
        found[f"reading_{name}_cpu_microseconds"] = round(min(reads) / count * 1e6, 3)
        if name == "committed":
            compaction = partial(LogMaintenance(DiskFiles(root), "orders", RetentionRules()).run, 0.0)
            found["compaction_cpu_microseconds"] = round(timed(compaction)[1] / count * 1e6, 3)
    return found


def json_records(count: int, size: int) -> list[Record]:
    """Return orders of about `size` bytes, with items as far as there is room: the same at each call."""
    rng = random.Random(size)
    number, at, records = FIRST_SEQUENCE_NUMBER, 1.7e9, []
    for _ in range(count):
        customer = rng.randrange(100_000)
        order: dict[str, object] = {"order": rng.randrange(10**9), "customer": customer, "amount": rng.randrange(10**5)}
        items: list[object] = []
        if size > len(json.dumps(order)) + 60:
            order["items"] = items
        while "items" in order and len(json.dumps(order)) < size - 30:
            items.append(
                {"sku": f"{rng.getrandbits(40):010x}", "count": rng.randrange(9), "state": rng.choice(_STATES)}
            )
        number += rng.randrange(1, 2**40)
        at += rng.expovariate(2000)
        records.append(Record(str(number), round(at, 3), json.dumps(order).encode(), f"customer-{customer}"))
    return records


_STATES = ("ordered", "paid", "picked", "shipped", "delivered", "returned")


def measure_spark(root: Path, count: int) -> dict[str, float]:
    """Read the same rows into Spark's noop sink, from the log and from Parquet with Spark's own reader."""
    from efo_service.spark.session import spark_session  # noqa: PLC0415 - optional

    started = time.perf_counter()
    with spark_session("efo benchmark") as session:
        session.range(1).count()
        start = time.perf_counter() - started
        log = session.read.format("efo").options(subscribe="orders", includeHeaders="true").load(str(root / "log"))
        log.write.parquet(str(root / "parquet"))
        parquet = session.read.parquet(str(root / "parquet"))
        rates: dict[str, list[float]] = {"log": [], "parquet": []}
        for _ in range(ROUNDS):
            for name, frame in (("log", log), ("parquet", parquet)):
                wall, _ = timed(frame.write.format("noop").mode("overwrite").save)
                rates[name].append(count / wall)
    best = {name: max(values) for name, values in rates.items()}
    return {
        "session_start_seconds": round(start, 1),
        "log_rows_per_second": round(best["log"]),
        "parquet_rows_per_second": round(best["parquet"]),
        "log_to_parquet": round(best["log"] / best["parquet"], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--no-spark", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="efo-bench-") as name:
        root = Path(name)
        result: dict[str, object] = {"cores": os.cpu_count(), "record_bytes": 200}
        result["commit"] = [measure_commits(root, group) for group in GROUPS]
        result["schema"] = schema_cost()
        result["disk"] = [measure_disk(root / f"json-{size}", size) for size in SIZES]
        writer = open_partition(DiskFiles(root / "log"), "orders", "orders", "shardId-000000000000", time.time)
        for start in range(0, arguments.records, 10_000):
            writer.append(make_records(min(10_000, arguments.records - start), start))
        writer.close()
        result["read"] = measure_reads(root, arguments.records)
        if not arguments.no_spark:
            result["spark"] = measure_spark(root, arguments.records)
    json.dump(result, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
