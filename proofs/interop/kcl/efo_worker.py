"""An efo worker: reports every record with its time of arrival, as KCL's worker does, until SIGTERM."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import trio

import efo
from proofs.interop.kcl.comparison import ReportedRecord, line_of


async def main() -> None:
    """Read the shards whose leases this worker holds."""
    environment = os.environ
    application = environment["INTEROP_CONSUMER"]
    settings = efo.ConsumerSettings(
        failover_seconds=int(environment["INTEROP_FAILOVER_MILLIS"]) / 1000,
        checkpoint_seconds=1.0,
    )
    where: dict[str, Any] = {"endpoint_url": environment["INTEROP_ENDPOINT"], "ca_file": environment["INTEROP_CA"]}
    options: dict[str, Any] = {
        "application": application,
        "leases": efo.leases.DynamoDbLeaseStore(application, endpoint_url=environment["INTEROP_DYNAMODB"]),
        "worker_id": environment["INTEROP_WORKER"],
        "settings": settings,
    }
    streams = environment["INTEROP_STREAM"].split(",")
    is_multi_stream = "INTEROP_STREAM_IDS" in environment
    opening = (
        efo.open_streams(streams, **options, **where)
        if is_multi_stream
        else efo.open_consumer(streams[0], **options, **where)
    )
    async with opening as consumer, trio.open_nursery() as nursery:
        nursery.start_soon(_stop_on_sigterm, consumer)
        await consumer.run(_read_of_many if is_multi_stream else _read)
        nursery.cancel_scope.cancel()


async def _read(shard: efo.ShardStream) -> None:
    await _report(shard, shard.shard_id)


async def _read_of_many(shard: efo.ShardStream) -> None:
    await _report(shard, f"{shard.stream}/{shard.shard_id}")


async def _report(shard: efo.ShardStream, name: str) -> None:
    async for batch in shard:
        for record in batch.records:
            at = time.time_ns() // 1000
            reported = ReportedRecord(at, name, record.sequence_number, record.partition_key, record.data)
            sys.stdout.buffer.write(line_of(reported))
        sys.stdout.buffer.flush()
        shard.ack(batch)


async def _stop_on_sigterm(consumer: efo.Consumer | efo.MultiStreamConsumer) -> None:
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async for _ in signals:
            consumer.drain()


if __name__ == "__main__":
    trio.run(main)
