"""Commits batches to Kafka, and kills this process before or after a step of the last commit.

    python -m tests.efo_service.relay.kafka.crash <servers> <topic> <batches> <step> <before|after>

test_sink.py runs it. Steps: begin_transaction, produce, commit_transaction. Produced records are flushed to the broker
before the kill. The process ends by SIGKILL.
"""

import os
import signal
import sys

import trio

from efo.model import Batch, Record
from efo_service.relay.kafka import producer as kafka_producer
from efo_service.relay.kafka.options import KafkaOptions
from efo_service.relay.kafka.sink import open_kafka
from tests.efo_service.relay.relaying import commit

BATCH_RECORDS = 100


def batch(number: int) -> Batch:
    """Return a batch of numbered records."""
    records = range(number * BATCH_RECORDS, (number + 1) * BATCH_RECORDS)
    return Batch(
        "s", "shard", tuple(Record(str(10**20 + n), 1.7e9, b"%d" % n, f"key-{n % 7}") for n in records), "", 0, 0
    )


def arm(step: str, when: str) -> None:
    """Kill this process at this step of the next transaction."""
    real = kafka_producer.Producer

    class KillingProducer(real):
        def __getattribute__(self, name):
            found = super().__getattribute__(name)
            if name != step:
                return found

            def call(*arguments):
                if when == "after":
                    found(*arguments)
                self.flush()  # so that the broker has the records of the open transaction
                os.kill(os.getpid(), signal.SIGKILL)

            return call

    kafka_producer.Producer = KillingProducer


async def main(servers: str, topic: str, batches: int, step: str, when: str) -> None:
    """Commit all batches but the last, and die in the last commit."""
    settings = KafkaOptions(bootstrap_servers=servers, partitions=1)
    names = {"application": topic, "stream": "orders", "topic": topic}
    async with open_kafka(settings, **names) as sink:
        async with sink.open("orders", "shard") as shard:
            for number in range(batches - 1):
                await commit(shard, batch(number))
        arm(step, when)
        async with sink.open("orders", "shard") as shard:
            await commit(shard, batch(batches - 1))


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
