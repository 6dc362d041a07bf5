"""Measures the relay's throughput, the delay until a reader sees a record, and Spark's throughput: `make bench-relay`.

Prints one JSON object, with the targets of some figures under "marks". Compare only figures of one run, with each other
and with the targets. On a busy machine use those per CPU-second.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import trio

from efo.consumer.age_limits import AgeLimits
from efo.health import Overdue
from efo.model import Batch, Checkpoint, Record
from efo_service.config.settings import Settings
from efo_service.factories.sinks import open_sink
from efo_service.log.catalog import read_catalog, topics
from efo_service.log.disk import DiskFiles
from efo_service.log.segments import Segment, list_segments, read_segment
from efo_service.relay.relay import CommitPace, relay_shard
from proofs.benchmarks.log import FIRST_SEQUENCE_NUMBER, SIZES, measure_disk, timed
from proofs.benchmarks.service_load import run_service

SHARD = "shardId-000000000000"
EVENT_RECORDS = 500
ROUNDS = 3
TARGETS = {
    "relay_200_records_per_cpu_second": 300_000,
    "relay_1000_mb_per_cpu_second": 150,
    "kafka_client_200_records_per_second": 250_000,
    "visible_ms_p99": 150,
    "spark_noop_cpu_of_parquet": 1.25,
    "spark_noop_cpu_of_kafka": 0.5,
    "spark_available_now_cpu_of_parquet": 1.05,
    "spark_scaling_2_cores": 1.8,
    "spark_scaling_4_cores": 3.2,
    "spark_landed_ms_p50": 1000,
    "spark_landed_ms_p99": 2000,
}


def make_batches(count: int, size: int) -> list[Batch]:
    """Return the decoded events of one shard: `count` records of `size` bytes with keys of 16 characters."""
    data = os.urandom(size)
    records = [
        Record(str(FIRST_SEQUENCE_NUMBER + n), 1.7e9 + n / 1e4, data, f"key-{n % 10**6:012}", encryption_type="NONE")
        for n in range(count)
    ]
    return [
        Batch("s", SHARD, tuple(records[at : at + EVENT_RECORDS]), str(at), 0, at // EVENT_RECORDS)
        for at in range(0, count, EVENT_RECORDS)
    ]


class DecodedShard:
    """A shard stream of batches made in advance, as in a backlog."""

    stream, shard_id, checkpoint = "orders", SHARD, Checkpoint.TRIM_HORIZON
    has_pending = True
    overdue: Callable[[], Overdue | None]
    ages: AgeLimits | None = None

    def __init__(self, batches: list[Batch]) -> None:
        self._batches = batches
        self.acked = -1

    def seek(self, _checkpoint: Checkpoint) -> None:
        raise AssertionError("the log is new")

    async def __aiter__(self) -> AsyncIterator[Batch]:
        for batch in self._batches:
            yield batch
            await trio.lowlevel.checkpoint()

    def ack_through(self, batch: Batch, index: int | None = None) -> None:  # noqa: ARG002 - the protocol requires it
        self.acked = batch.number


def measure_relay(settings: Callable[[int], Settings], count: int, size: int) -> dict[str, float]:
    """Measure the relay as the service runs it: groups, commits in a thread, acks. Return the median of the rounds.

    `settings`: returns the settings of a round, so that each round starts with an empty output.
    """
    batches = make_batches(count, size)
    walls, cpus = [], []
    for number in range(ROUNDS):
        shard = DecodedShard(batches)
        wall, cpu = timed(partial(trio.run, _relay, settings(number), shard))
        assert shard.acked == batches[-1].number
        walls.append(wall)
        cpus.append(cpu)
    wall, cpu = statistics.median(walls), statistics.median(cpus)
    return {
        "record_bytes": size,
        "records_per_second": round(count / wall),
        "records_per_cpu_second": round(count / cpu),
        "mb_per_second": round(count * size / wall / 1e6, 1),
        "mb_per_cpu_second": round(count * size / cpu / 1e6, 1),
    }


async def _relay(settings: Settings, shard: DecodedShard) -> None:
    relay = settings.relay
    async with open_sink(settings) as destination:
        await relay_shard(
            shard,
            destination,
            commit_records=relay.commit_records,
            commit_bytes=relay.commit_bytes,
            pace=CommitPace(relay.commit_interval),
        )


def log_settings(root: Path) -> Callable[[int], Settings]:
    return lambda number: Settings(
        kinesis={"stream": "orders"}, relay={"directory": root / f"log-{number}", "maintenance_seconds": 3600}
    )


def kafka_settings(address: str) -> Callable[[int], Settings]:
    return lambda number: Settings(
        kinesis={"stream": "orders"},
        consumer={"application": f"bench-{number}"},
        relay={
            "sink": "kafka",
            "topic": f"orders-{number}",
            "commit_records": 50_000,
            "commit_bytes": 64 * 1024 * 1024,
            "kafka": {"bootstrap_servers": address, "checkpoint_topic": f"checkpoints-{number}"},
        },
    )


def measure_kafka(root: Path, count: int) -> dict[str, object]:
    """Measure the relay into Kafka, with headers and transactions: see kafka_rate. The broker shares the machine."""
    from proofs.e2e.kafka.broker import missing, running_broker  # noqa: PLC0415 - needs an extra

    result: dict[str, object] = {"client": client_rate(count)}
    if (reason := missing()) is not None:
        return {**result, "broker": {"skipped": reason}}
    with running_broker(root) as broker:
        return {**result, "broker": measure_relay(kafka_settings(broker.address), count, 200)}


def client_rate(count: int) -> dict[str, float]:
    """Measure the Kafka client against a mock cluster; return the median round."""
    from proofs.benchmarks import kafka_rate  # noqa: PLC0415 - needs an extra

    rounds = [kafka_rate.measure_client(count, sizes=(200,))[0] for _ in range(ROUNDS)]
    return sorted(rounds, key=lambda figures: figures["records_per_second"])[ROUNDS // 2]


# --- visibility ----------------------------------------------------------------------------------------


@contextmanager
def segment_times(root: Path, topic: str) -> Iterator[dict[Segment, float]]:
    """Poll the log continuously, like a reader; yield the time at which each segment was first seen."""
    seen: dict[Segment, float] = {}
    done = threading.Event()

    def poll() -> None:
        while not done.wait(0.002):
            if topic in topics(DiskFiles(root)):
                for partition in read_catalog(DiskFiles(root), topic).partitions.values():
                    now = time.time()
                    for segment in list_segments(root / topic / str(partition)):
                        seen.setdefault(segment, now)

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        yield seen
    finally:
        done.set()
        thread.join()


def measure_visibility(root: Path, seconds: float, rate: int) -> dict[str, float]:
    """Measure the time from a record's arrival in FakeKinesis to its first visibility in the log.

    `efo run` is a separate process, connected over TLS. The fake, the load and the reader are in this process, on the
    same machine.
    """
    with segment_times(root / "log", "orders") as seen:
        trio.run(run_service, root, seconds, rate)
    ages = []
    for segment, at in seen.items():
        arrivals = read_segment(segment)[0].column("timestamp").cast(pa.int64())
        ages.append(pc.subtract(at * 1000, pc.divide(arrivals.cast(pa.float64()), 1000.0)))
    quantiles = pc.quantile(pa.chunked_array(ages), q=[0.5, 0.99, 1.0]).to_pylist()
    records = sum(segment.end - segment.base for segment in seen)
    return {
        "records_per_second": rate,
        "records": records,
        **{name: round(value, 1) for name, value in zip(("ms_p50", "ms_p99", "ms_max"), quantiles, strict=True)},
    }


def report(stage: str) -> None:
    print(f"bench-relay: {stage}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench-relay", description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=300_000, help="number of records for the relay (300000)")
    parser.add_argument(
        "--spark-records",
        type=int,
        default=2_000_000,
        help="number of records for Spark: with few of them, the start of a query is most of its cost (2000000)",
    )
    parser.add_argument(
        "--seconds", type=float, default=15.0, help="duration of the load for the visibility benchmark (15)"
    )
    parser.add_argument("--rate", type=int, default=10_000, help="records per second of that load (10000)")
    parser.add_argument(
        "--landing-seconds", type=float, default=45.0, help="duration of each load for the time to land in Parquet (45)"
    )
    parser.add_argument("--only-spark", action="store_true", help="skip the relay and the visibility to a reader")
    parser.add_argument("--no-kafka", action="store_true", help="skip Kafka")
    parser.add_argument("--no-spark", action="store_true", help="skip Spark; no Java is needed then")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="efo-bench-") as name:
        root = Path(name)
        result: dict[str, object] = {"cores": os.cpu_count(), "marks": TARGETS}
        if not options.only_spark:
            report("the relay into the log")
            result["relay"] = [
                measure_relay(log_settings(root / str(size)), options.records * 200 // size, size)
                for size in (200, 1000)
            ]
            report("bytes of the log's records on the disk")
            result["disk"] = [measure_disk(root / f"json-{size}", size) for size in SIZES]
            if not options.no_kafka:
                report("the relay into Kafka")
                result["kafka"] = measure_kafka(root / "kafka", options.records)
            report("visibility of records to a reader")
            (root / "visible").mkdir()
            result["visible"] = measure_visibility(root / "visible", options.seconds, options.rate)
        if not options.no_spark:
            report("Spark from the log, from Parquet and from Kafka")
            from proofs.benchmarks.spark.run import measure_spark  # noqa: PLC0415 - optional

            result["spark"] = measure_spark(
                root / "spark", options.spark_records, options.landing_seconds, report, with_kafka=not options.no_kafka
            )
    json.dump(result, sys.stdout)
    print()


if __name__ == "__main__":
    main()
