"""How fast the relay's Kafka sink takes decoded batches, into a real broker on this machine, exactly once.

    python -m benchmarks.kafka_rate --records 300000

The broker has the same cores as the client: `records_per_cpu_second` counts the client's processor time alone, and
says what one core of a relay gives where the broker is elsewhere; `records_per_second` is by the wall clock.
The last line of stdout is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import trio

from e2e.kafka.broker import missing, running_broker
from efo.model import Batch, Record
from service.config_kafka import KafkaSettings
from service.relay.kafka import open_kafka

GROUP = 10_000
"""Records of a commit: what the relay commits under load."""


def batches(shard: str, records: int, size: int) -> list[Batch]:
    """Return groups of a shard, ready to be written."""
    data, now = b"x" * size, time.time()
    return [
        Batch(
            shard,
            tuple(Record(str(10**55 + n), now, data, f"key-{n % 997}") for n in range(start, start + GROUP)),
            "",
            0,
            0,
        )
        for start in range(0, records, GROUP)
    ]


async def kafka_rate(servers: str, *, records: int, size: int, shards: int = 2, delivery: str = "exactly_once") -> dict:
    """Put `records` in all, from several shards at once; return the figures."""
    each = {f"shard-{number}": batches(f"shard-{number}", records // shards, size) for number in range(shards)}
    settings = KafkaSettings(bootstrap_servers=servers, delivery=delivery, partitions=8)
    name = f"bench-{size}-{delivery}-{time.monotonic_ns()}"
    async with open_kafka(settings, application=name, stream="bench", topic=name) as sink:

        async def put(shard: str) -> None:
            async with sink.open("bench", shard) as shard_sink:
                for batch in each[shard]:
                    shard_sink.write(batch)
                    await shard_sink.commit()

        wall, cpu = time.monotonic(), time.process_time()
        async with trio.open_nursery() as nursery:
            for shard in each:
                nursery.start_soon(put, shard)
        wall, cpu = time.monotonic() - wall, time.process_time() - cpu
    count = sum(len(batch.records) for group in each.values() for batch in group)
    return {
        "delivery": delivery,
        "record_bytes": size,
        "records": count,
        "records_per_second": round(count / wall),
        "records_per_cpu_second": round(count / cpu),
        "mb_per_cpu_second": round(count * size / cpu / 1e6),
    }


def measure(records: int = 300_000) -> list[dict]:
    """Run a broker and measure; empty where there is none."""
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
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kafka_rate", description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=300_000, help="of 200 B; a third of it of 1 KB (300000)")
    arguments = parser.parse_args()
    if reason := missing():
        print(reason, file=sys.stderr)
        return 69
    print(json.dumps({"kafka": measure(arguments.records)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
