"""Measures the throughput of the relay's Kafka sink, from decoded batches into a real broker on this machine.

    python -m proofs.benchmarks.kafka_rate --records 300000

`broker`: with the real broker, which shares the client's cores. `records_per_cpu_second` counts the client's CPU time
only; `records_per_second` is by the wall clock. `client`: one shard's writer with the client library's mock cluster,
which takes almost no CPU time, as if the brokers had their own machines. Transactions, headers and positions are the
same. The last line of stdout is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import trio

from efo.model import Batch, Record
from efo_service.relay.kafka.checkpoints import Checkpoints
from efo_service.relay.kafka.client import client_config
from efo_service.relay.kafka.options import Delivery, KafkaOptions
from efo_service.relay.kafka.producer import KafkaDestination, TransactionalWriter, producer_config
from efo_service.relay.kafka.sink import open_kafka
from efo_service.relay.kafka.topics import KafkaTopic
from efo_service.relay.mapping import RecordMapping
from proofs.benchmarks.mock_kafka import mock_kafka
from proofs.e2e.kafka.broker import missing, running_broker

GROUP = 10_000
"""Records per commit, as the relay commits under load."""


def batches(shard: str, records: int, size: int) -> list[Batch]:
    """Return a shard's records in batches of GROUP, ready to be written."""
    data, now = b"x" * size, time.time()
    return [
        Batch(
            "s",
            shard,
            tuple(Record(str(10**55 + n), now, data, f"key-{n % 997}") for n in range(start, start + GROUP)),
            "",
            0,
            0,
        )
        for start in range(0, records, GROUP)
    ]


async def kafka_rate(
    servers: str, *, records: int, size: int, shards: int = 2, delivery: Delivery = "exactly_once"
) -> dict:
    """Write `records` records from several shards concurrently; return the figures."""
    by_shard = {f"shard-{number}": batches(f"shard-{number}", records // shards, size) for number in range(shards)}
    settings = KafkaOptions(bootstrap_servers=servers, delivery=delivery, partitions=8)
    name = f"bench-{size}-{delivery}-{time.monotonic_ns()}"
    async with open_kafka(settings, application=name, stream="bench", topic=name) as sink:

        async def put(shard: str) -> None:
            async with sink.open("bench", shard) as shard_sink:
                for batch in by_shard[shard]:
                    await shard_sink.commit([shard_sink.prepare(batch.records)])

        wall, cpu = time.monotonic(), time.process_time()
        async with trio.open_nursery() as nursery:
            for shard in by_shard:
                nursery.start_soon(put, shard)
        wall, cpu = time.monotonic() - wall, time.process_time() - cpu
    return {"delivery": delivery, **figures(sum(map(_records, by_shard.values())), size, wall, cpu)}


def _records(group: list[Batch]) -> int:
    return sum(len(batch.records) for batch in group)


def figures(count: int, size: int, wall: float, cpu: float) -> dict:
    """Return rates, by the wall clock and by CPU time."""
    return {
        "record_bytes": size,
        "records": count,
        "records_per_second": round(count / wall),
        "records_per_cpu_second": round(count / cpu),
        "mb_per_cpu_second": round(count * size / cpu / 1e6),
    }


class NoPositions:
    """Replaces the checkpoint topic, which the mock cannot read back: positions are written, and none is found."""

    topic = KafkaTopic("positions", 1, 1_000_000)

    def partition(self, _key: bytes) -> int:
        return 0

    def read(self, _key: bytes) -> None:
        return None


def client_rate(servers: str, *, records: int, size: int, partitions: int = 4) -> dict:
    """Write `records` records with one shard's transactional writer; return the figures.

    The mock cluster creates topics with 4 partitions.
    """
    shard = "shardId-000000000000"
    target = KafkaDestination.of(KafkaTopic("records", partitions, 1_000_000), RecordMapping("bench", shard), "key")
    settings = KafkaOptions(bootstrap_servers=servers)
    config = producer_config(client_config(settings), largest=1_000_000, compression=settings.compression, seconds=30.0)
    writer = TransactionalWriter(config, target, cast("Checkpoints", NoPositions()), "bench", 30.0)
    groups = [batch.records for batch in batches(shard, records, size)]
    writer.append(groups[0])  # not measured: the first write looks up the topic
    wall, cpu = time.monotonic(), time.process_time()
    for group in groups:
        writer.append(group)
    wall, cpu = time.monotonic() - wall, time.process_time() - cpu
    writer.close()
    return figures(sum(map(len, groups)), size, wall, cpu)


def measure_client(records: int = 300_000, sizes: Sequence[int] = (200, 1024)) -> list[dict]:
    """Measure the client alone, with the same number of bytes for each record size."""
    with mock_kafka() as servers:
        return [client_rate(servers, records=records * sizes[0] // size, size=size) for size in sizes]


def measure(records: int = 300_000) -> list[dict]:
    """Run a broker and measure; return an empty list if no broker is installed."""
    if missing():
        return []
    with tempfile.TemporaryDirectory(prefix="efo-kafka-") as path, running_broker(Path(path) / "broker") as broker:

        async def run() -> list[dict]:
            return [
                await kafka_rate(broker.address, records=count, size=size, delivery=delivery)
                for count, size in ((records, 200), (records // 3, 1024))
                for delivery in ("exactly_once", "at_least_once")
            ]

        return trio.run(run)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m proofs.benchmarks.kafka_rate", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--records", type=int, default=300_000, help="number of records of 200 B; a third as many of 1 KB (300000)"
    )
    arguments = parser.parse_args()
    if reason := missing():
        print(reason, file=sys.stderr)
        return 69
    print(json.dumps({"client": measure_client(arguments.records), "broker": measure(arguments.records)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
