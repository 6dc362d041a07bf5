"""`efo run` for the Kafka client's mock cluster, which cannot say what topics it has, and cannot be read.

    python -m proofs.benchmarks.readers.kafka_service run

Topics are taken as they would be created, and no position is found at the start. Everything else is `efo run`: each
commit is a transaction of records, headers and position.
"""

from __future__ import annotations

from typing import Any

from efo_service import cli
from efo_service.relay.kafka import sink
from efo_service.relay.kafka.topics import KafkaTopic, TopicSpec
from proofs.benchmarks.kafka_rate import NoPositions

MOCK_PARTITIONS = 4
"""Of each topic that the mock cluster creates."""


class NoStoredPositions(NoPositions):
    def __init__(self, *_: object) -> None:
        pass

    def close(self) -> None:
        pass


def ensure_topic(_admin: Any, spec: TopicSpec, _timeout: float) -> KafkaTopic:
    return KafkaTopic(spec.name, MOCK_PARTITIONS, 1_000_000)


if __name__ == "__main__":
    for name, replacement in {"ensure_topic": ensure_topic, "Checkpoints": NoStoredPositions}.items():
        setattr(sink, name, replacement)
    cli.main()
