"""The same records in a log and in a topic of Kafka: same partitions, offsets, times, keys, values and headers."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer

from efo.model import Record
from efo_service.log.disk import DiskFiles
from efo_service.log.partition_writer import open_partition
from efo_service.log.segments import list_segments, read_segment
from proofs.spark_parity.cases import BEGAN, RECORDS, STEP, TOPIC


def write_log(root: Path) -> None:
    """Write the records of each partition, in segments of 64."""
    for partition, number in enumerate(RECORDS):
        records = [
            Record(str(10**20 + n), (BEGAN + n * STEP) / 1000, b"%d/%d" % (partition, n), f"key-{n % 7}")
            for n in range(number)
        ]
        append(root, partition, records)


def append(root: Path, partition: int, records: list[Record]) -> None:
    """Write records to a partition of the log."""
    writer = open_partition(DiskFiles(root), TOPIC, TOPIC, f"shardId-{partition:012}", time.time)
    for start in range(0, len(records), 64):
        writer.append(records[start : start + 64])
    writer.close()


def rows_of(root: Path, partition: int, start: int = 0) -> list[dict[str, Any]]:
    """Return the rows of a partition of the log, from this offset on."""
    return rows_of_topic(root, TOPIC, partition, start)


def rows_of_topic(root: Path, topic: str, partition: int, start: int = 0) -> list[dict[str, Any]]:
    """Do what `rows_of` does, of another topic."""
    segments = list_segments(root / topic / str(partition))
    return [row for segment in segments for row in read_segment(segment)[0].to_pylist() if row["offset"] >= start]


_AT_ONCE: Final = 10_000
"""Records that the producer has at once: its queue takes ten times as many."""


def copy(rows: Iterable[dict[str, Any]], servers: str) -> None:
    """Write rows of the log to the topic. Raises RuntimeError if the broker did not take one."""
    failed: list[str] = []
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0})
    for number, row in enumerate(rows):
        while number % _AT_ONCE == 0 and len(producer):
            producer.poll(0.1)
        producer.produce(
            row["topic"],
            row["value"],
            row["key"],
            partition=row["partition"],
            timestamp=round(row["timestamp"].timestamp() * 1000),
            headers=[(header["key"], header["value"]) for header in row["headers"]],
            on_delivery=lambda error, _message: failed.append(str(error)) if error else None,
        )
    if producer.flush(60) or failed:
        raise RuntimeError(f"Kafka did not take the records: {failed[:1] or 'timeout'}")
