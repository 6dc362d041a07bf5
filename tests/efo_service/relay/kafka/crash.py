"""Commits groups into Kafka in a child process that is killed before or after the n-th step of the last one.

    python crash_kafka.py <servers> <topic> <groups> <step> <before|after>

Run by test_kafka.py. Steps: begin_transaction, produce (all of the group's records are with the broker by then),
commit_transaction. Ends by SIGKILL.
"""

import os
import signal
import sys

import trio

from efo.model import Batch, Record
from efo_service.relay.kafka import producer as kafka_producing
from efo_service.relay.kafka.options import KafkaOptions
from efo_service.relay.kafka.sink import open_kafka

GROUP = 100


def batch(number: int) -> Batch:
    """Return a group of numbered records."""
    records = range(number * GROUP, (number + 1) * GROUP)
    return Batch(
        "s", "shard", tuple(Record(str(10**20 + n), 1.7e9, b"%d" % n, f"key-{n % 7}") for n in records), "", 0, 0
    )


def arm(step: str, when: str) -> None:
    """Kill this process at the step of the transaction that comes next."""
    real = kafka_producing.Producer

    class Deadly(real):
        def __getattribute__(self, name):
            found = super().__getattribute__(name)
            if name != step:
                return found

            def call(*arguments):
                if when == "after":
                    found(*arguments)
                self.flush()  # the broker has them: the transaction is open, and its records are there
                os.kill(os.getpid(), signal.SIGKILL)

            return call

    kafka_producing.Producer = Deadly


async def main(servers: str, topic: str, groups: int, step: str, when: str) -> None:
    """Commit all groups but the last, and die in that."""
    settings = KafkaOptions(bootstrap_servers=servers, partitions=1)
    names = {"application": topic, "stream": "orders", "topic": topic}
    async with open_kafka(settings, **names) as sink:
        async with sink.open("orders", "shard") as shard:
            for number in range(groups - 1):
                shard.write(batch(number))
                await shard.commit()
        arm(step, when)
        async with sink.open("orders", "shard") as shard:
            shard.write(batch(groups - 1))
            await shard.commit()


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
