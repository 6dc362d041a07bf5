"""efo through one of its surfaces, for `make bench-surfaces`.

    python -m proofs.benchmarks.readers.surface_reader SERVED CONSUMER DOOR

Each surface reads with a handler of batches (`handler`), or iterates (`iteration`). The handler reads key, sequence
number and length of the data of every record. Nothing is reported, so that only the surfaces differ.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys

import trio

import efo
import efo.aio
import efo.sync
from proofs.benchmarks.readers.samples import Sampler

sampler = Sampler()


def count(batch: efo.Batch) -> None:
    key: str | None = None
    size, number = 0, ""
    for record in batch:
        key = record.partition_key
        number = record.sequence_number
        size += len(record.data)
    sampler.add(len(batch), size, (key, number))


async def handle(batch: efo.Batch) -> None:
    count(batch)


def trio_handler(stream, options):
    trio.run(lambda: efo.consume(stream, handle, **options))


def trio_iteration(stream, options):
    async def read(shard):
        async for batch in shard:
            count(batch)
            shard.ack(batch)

    async def main():
        async with efo.open_consumer(stream, **options) as consumer:
            await consumer.run(read)

    trio.run(main)


def aio_handler(stream, options):
    asyncio.run(efo.aio.consume(stream, handle, **options))


def aio_iteration(stream, options):
    async def main():
        async with efo.aio.open_consumer(stream, **options) as consumer:
            async for batch in consumer:
                count(batch)
                consumer.ack(batch)

    asyncio.run(main())


def sync_handler(stream, options):
    efo.sync.consume(stream, count, **options)


def sync_iteration(stream, options):
    with efo.sync.open_consumer(stream, **options) as consumer:
        for batch in consumer:
            count(batch)
            consumer.ack(batch)


SURFACES = {
    "trio handler": trio_handler,
    "trio iteration": trio_iteration,
    "asyncio handler": aio_handler,
    "asyncio iteration": aio_iteration,
    "sync handler": sync_handler,
    "sync iteration": sync_iteration,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Read a stream through a surface, and print samples.")
    parser.add_argument("served", type=json.loads)
    parser.add_argument("consumer")
    parser.add_argument("surface", choices=SURFACES)
    options = parser.parse_args()
    (stream,) = options.served["streams"]
    arguments = {
        "application": options.consumer,
        "settings": efo.ConsumerSettings(subscribes_per_second=2000.0),
        "region": "us-east-1",
        "endpoint_url": options.served["url"],
        "ca_file": options.served["ca_file"],
        "observer": efo.events.ignore_events,
    }
    sys.exit(SURFACES[options.surface](stream, arguments))


if __name__ == "__main__":
    main()
