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

from efo.model import Batch, Checkpoint, Record
from efo.testing import FakeKinesis
from efo_service.config.settings import Settings
from efo_service.demo.children import Child
from efo_service.demo.load import Load
from efo_service.factories.sinks import open_sink
from efo_service.relay.log.catalog import read_catalog, topics
from efo_service.relay.log.partition_writer import open_partition
from efo_service.relay.log.segments import Segment, list_segments, read_segment
from efo_service.relay.relay import CommitPace, relay_shard
from proofs.benchmarks.log import FIRST_SEQUENCE_NUMBER, timed

SHARD = "shardId-000000000000"
EVENT_RECORDS = 500
SHARDS = 2
ROUNDS = 3
TARGETS = {
    "relay_200_records_per_cpu_second": 300_000,
    "relay_1000_mb_per_cpu_second": 150,
    "kafka_client_200_records_per_second": 250_000,
    "spark_noop_log_to_parquet": 0.6,
    "spark_parquet_log_to_parquet": 1.0,
    "visible_ms_p99": 150,
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
    """A shard stream of batches made in advance."""

    stream, shard_id, checkpoint = "orders", SHARD, Checkpoint.TRIM_HORIZON

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
    async with open_sink(settings) as sink:
        await relay_shard(
            shard,
            sink,
            commit_records=relay.commit_records,
            commit_bytes=relay.commit_bytes,
            pace=CommitPace(relay.commit_seconds),
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
            if topic in topics(root):
                for partition in read_catalog(root, topic).partitions.values():
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
        trio.run(_load, root, seconds, rate)
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


async def _load(root: Path, seconds: float, rate: int) -> None:
    async with FakeKinesis(clock=time.time) as fake:
        fake.create_stream("orders", shards=SHARDS)
        async with fake.serve() as address:
            environment = {
                "AWS_ACCESS_KEY_ID": "bench",
                "AWS_SECRET_ACCESS_KEY": "bench",
                "AWS_EC2_METADATA_DISABLED": "true",
                "EFO_KINESIS__STREAM": "orders",
                "EFO_KINESIS__REGION": "us-east-1",
                "EFO_KINESIS__ENDPOINT_URL": address.url,
                "EFO_KINESIS__CA_FILE": str(address.ca_file),
                "EFO_LEASES__PATH": "leases.sqlite",
                "EFO_RELAY__DIRECTORY": "log",
                "EFO_RELAY__MAINTENANCE_SECONDS": "3600",
                "EFO_SERVICE__PORT": "0",
            }
            child = Child("run", ["run"], root, environment)
            await child.start()
            try:
                while sum(fake.subscriptions("orders", shard).live for shard in fake.open_shards("orders")) < SHARDS:
                    child.check()
                    await trio.sleep(0.1)
                records = round(seconds * rate)
                await Load(fake, "orders", records, seconds=seconds, split_at=2, merge_at=2).run()
                await trio.sleep(1)
                await child.stop(30)
            finally:
                await child.end()


# --- Spark ---------------------------------------------------------------------------------------------


def measure_spark(root: Path, count: int) -> dict[str, object]:
    """Read the same rows from the log, and from Parquet with Spark's own reader, into the noop sink and into Parquet.

    Java uses both of its compilers, as in a long-running pipeline.
    """
    from efo_service.spark.session import spark_session  # noqa: PLC0415 - optional

    writer = open_partition(root / "log", "orders", "orders", SHARD, time.time)
    batches = make_batches(count, 200)
    for at in range(0, len(batches), 20):  # commits of 10,000 records, as the relay makes them under load
        writer.append([record for batch in batches[at : at + 20] for record in batch.records])
    writer.close()
    with spark_session("efo benchmark") as session:
        log = session.read.format("efo").options(subscribe="orders", includeHeaders="true").load(str(root / "log"))
        log.write.parquet(str(root / "parquet"))
        native = session.read.parquet(str(root / "parquet"))
        rates: dict[str, list[float]] = {}
        for _ in range(ROUNDS + 1):
            for source, frame in (("log", log), ("parquet", native)):
                for sink in ("noop", "parquet"):
                    save = frame.write.format(sink).mode("overwrite")
                    wall, _ = timed(partial(save.save, *([str(root / "out")] * (sink != "noop"))))
                    rates.setdefault(f"{source}_to_{sink}", []).append(count / wall)
    best = {name: round(max(values)) for name, values in rates.items()}
    return {
        "rows_per_second": best,
        "noop_log_to_parquet": round(best["log_to_noop"] / best["parquet_to_noop"], 2),
        "parquet_log_to_parquet": round(best["log_to_parquet"] / best["parquet_to_parquet"], 2),
    }


def report(stage: str) -> None:
    print(f"bench-relay: {stage}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench-relay", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--records", type=int, default=300_000, help="number of records for the relay and for Spark (300000)"
    )
    parser.add_argument(
        "--seconds", type=float, default=15.0, help="duration of the load for the visibility benchmark (15)"
    )
    parser.add_argument("--rate", type=int, default=10_000, help="records per second of that load (10000)")
    parser.add_argument("--no-kafka", action="store_true", help="skip Kafka")
    parser.add_argument("--no-spark", action="store_true", help="skip Spark; no Java is needed then")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="efo-bench-") as name:
        root = Path(name)
        result: dict[str, object] = {"cores": os.cpu_count(), "marks": TARGETS}
        report("the relay into the log")
        result["relay"] = [
            measure_relay(log_settings(root / str(size)), options.records * 200 // size, size) for size in (200, 1000)
        ]
        if not options.no_kafka:
            report("the relay into Kafka")
            result["kafka"] = measure_kafka(root / "kafka", options.records)
        report("visibility of records to a reader")
        (root / "visible").mkdir()
        result["visible"] = measure_visibility(root / "visible", options.seconds, options.rate)
        if not options.no_spark:
            report("Spark from the log and from Parquet")
            result["spark"] = measure_spark(root / "spark", options.records)
    json.dump(result, sys.stdout)
    print()


if __name__ == "__main__":
    main()
