"""The figures of Spark, with a broker if one is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Final

import trio

from efo_service.spark.session import spark_session
from proofs.benchmarks.service_load import run_service
from proofs.benchmarks.spark.landing import kafka_stream, landing, log_stream
from proofs.benchmarks.spark.reading import PARTITIONS, TOPIC, Kafka, measure_reading

LANDING_ROUNDS: Final = 2
LANDING_RATE: Final = 2_000
"""Records per second, of the load for the time to land: the broker, Spark and the load share the machine."""

Report = Callable[[str], None]
"""Takes a line of progress."""


def measure_spark(
    root: Path, count: int, seconds: float, report: Report, *, with_kafka: bool = True
) -> dict[str, object]:
    """Measure what Spark costs, and the time until a record has landed in Parquet: from the log, Parquet and Kafka.

    Java uses both of its compilers, as in a long-running pipeline. `seconds`: of the load for the time to land.
    """
    with _kafka(root, report) if with_kafka else nullcontext() as kafka:
        figures = measure_reading(root, count, kafka, report)
        landed: dict[str, list[dict[str, float]]] = {}
        with spark_session("efo benchmark", jars=kafka.jars if kafka else ()) as session:
            for number in range(LANDING_ROUNDS):
                report(f"round {number + 1} of {LANDING_ROUNDS}: from Kinesis through the log into Parquet")
                place = _new(root / f"log-{number}")
                load = partial(_run_service, place, seconds, {})
                landed.setdefault("log", []).append(
                    landing(partial(log_stream, session, place / "log", TOPIC), place, load)
                )
                if kafka is None:
                    continue
                report("the same through Kafka")
                place, topic = _new(root / f"kafka-{number}"), f"landing-{number}"
                load = partial(_run_service, place, seconds, _into_kafka(kafka.address, topic))
                landed.setdefault("kafka", []).append(
                    landing(partial(kafka_stream, session, kafka.address, topic), place, load)
                )
    best = {name: min(rounds, key=lambda one: one["ms_p99"]) for name, rounds in landed.items()}
    figures["landed"] = {"records_per_second": LANDING_RATE, "rounds": landed, "best": best}
    return figures


@contextmanager
def _kafka(root: Path, report: Report) -> Iterator[Kafka | None]:
    """Run a broker with the topic of the records, if all that is needed is installed."""
    try:
        from proofs.e2e.kafka.broker import CONNECTOR, missing, running_broker  # noqa: PLC0415 - needs an extra
        from proofs.e2e.kafka.topic import create_topic  # noqa: PLC0415 - the same
        from proofs.spark_parity.records import copy  # noqa: PLC0415 - the same
    except ImportError as error:
        report(f"without Kafka: {error}")
        yield None
        return
    if reason := missing(connector=True):
        report(f"without Kafka: {reason}")
        yield None
        return
    with running_broker(root / "broker") as broker:
        create_topic(broker.address, TOPIC, PARTITIONS)
        yield Kafka(broker.address, tuple(CONNECTOR.glob("*.jar")), copy)


def _new(directory: Path) -> Path:
    directory.mkdir()
    return directory


def _run_service(root: Path, seconds: float, settings: Mapping[str, str], on_ready: Callable[[], object]) -> None:
    trio.run(run_service, root, seconds, LANDING_RATE, settings, on_ready)


def _into_kafka(servers: str, topic: str) -> dict[str, str]:
    """Create a topic; return the settings of `efo run` that relays into it."""
    from proofs.e2e.kafka.topic import create_topic  # noqa: PLC0415 - needs an extra

    create_topic(servers, topic, PARTITIONS)
    return {
        "EFO_RELAY__SINK": "kafka",
        "EFO_RELAY__TOPIC": topic,
        "EFO_CONSUMER__APPLICATION": topic,
        "EFO_RELAY__KAFKA__BOOTSTRAP_SERVERS": servers,
        "EFO_RELAY__KAFKA__CHECKPOINT_TOPIC": f"{topic}-checkpoints",
    }
