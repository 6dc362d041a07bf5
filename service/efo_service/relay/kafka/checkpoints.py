"""The shards' positions in Kafka: each transaction also writes its last position to the compacted checkpoint topic.

The key of that record is `<application>/<stream>/<shardId>`, its value is JSON: {"version": 1, "stream": ...,
"shard": ..., "sequence": ..., "sub_sequence": ..., "stream_created_at": ...}. The last one is when the stream was
created, in seconds since the epoch; it is missing if that was unknown, and in what earlier versions wrote. Blocking:
runs in threads, several at once.
"""

from __future__ import annotations

import json
import threading
import zlib
from collections import defaultdict
from dataclasses import dataclass
from time import monotonic
from typing import Final

from confluent_kafka import Consumer, IsolationLevel, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # by its type hints alone

from efo.errors import ConfigurationError, StreamRecreatedError
from efo.identity import created_text, recreated
from efo.model import Checkpoint
from efo.protocol.identity import are_same
from efo.third_party_errors import reason_of
from efo_service.relay.files import parse_json
from efo_service.relay.kafka.client import Config
from efo_service.relay.kafka.errors import KafkaCheckpointError, KafkaUnavailableError, kafka_errors, translated
from efo_service.relay.kafka.topics import KafkaTopic

VERSION: Final = 1
"""Incremented by each change of the value that an older reader would misread."""
_CHUNK: Final = 1000
_POLL_SECONDS: Final = 0.01


REMEDY: Final = (
    "to relay it, set another [relay.kafka] checkpoint_topic, or another [consumer] application: its shards then begin"
    " where the leases say"
)


def encode(stream: str, shard_id: str, checkpoint: Checkpoint, created_at: float | None = None) -> bytes:
    """Return the value that holds a shard's position. `created_at`: when the stream was created, None if unknown."""
    fields: dict[str, object] = {
        "version": VERSION,
        "stream": stream,
        "shard": shard_id,
        "sequence": checkpoint.sequence_number,
        "sub_sequence": checkpoint.sub_sequence_number,
    }
    if created_at is not None:
        fields["stream_created_at"] = created_at
    return json.dumps(fields, separators=(",", ":")).encode()


def decode(value: bytes, stream: str, shard_id: str, topic: str, created_at: float | None = None) -> Checkpoint:
    """Return the position in a value. Raises KafkaCheckpointError if it is not a position of this shard.

    `created_at`: as for `encode`. Raises StreamRecreatedError for a position in a former stream of this name.
    """
    advice = (
        f"the last record of {stream}/{shard_id} in the topic {topic!r} is not a position of this shard; nothing was"
        " read or written, use another application name or another [relay.kafka] checkpoint_topic"
    )
    try:
        found = parse_json(value)
        version = found["version"]
        if version != VERSION:
            raise KafkaCheckpointError(f"{advice} (it has version {version!r}, but this efo supports {VERSION})")
        owner = (found["stream"], found["shard"])
        checkpoint = Checkpoint(found["sequence"], found["sub_sequence"])
        known = found.get("stream_created_at")
        of_stream = None if known is None else float(known)
    except (ValueError, TypeError, KeyError, ConfigurationError) as error:
        raise KafkaCheckpointError(f"{advice} (it is invalid: {reason_of(error)})") from None
    if are_same(of_stream, created_at) is False:
        what = f"the position of {shard_id} in the topic {topic!r} is"
        raise StreamRecreatedError(recreated(stream, created_text(of_stream, created_at, what), REMEDY))
    if owner != (stream, shard_id) or checkpoint.is_sentinel:
        raise KafkaCheckpointError(f"{advice} (it belongs to {'/'.join(map(str, owner))}, at {checkpoint})")
    return checkpoint


@dataclass(frozen=True, slots=True)
class _StoredValue:
    """The last record of a key in a partition. `value`: None for a tombstone. `time`: milliseconds since the epoch."""

    partition: int
    value: bytes | None
    time: int

    def overrides(self, other: _StoredValue) -> bool:
        """Return whether this record overrides `other`, which was read later.

        Within a partition the later record wins. When the topic gets more partitions, a shard's positions go to another
        partition, but older workers still use the first one. So between partitions the higher position wins, since a
        shard's positions only grow. A tombstone overrides all records that were written before it.
        """
        if self.partition == other.partition:
            return False
        if self.value is None or other.value is None:
            return self.time > other.time
        return _sort_key(self.value) > _sort_key(other.value)


class Checkpoints:
    """Reads positions. They are kept in memory, so that each read continues where the last one ended.

    `timeout`: how long to wait for other workers' open transactions, which hide later records. In seconds.
    """

    def __init__(self, config: Config, admin: AdminClient, topic: KafkaTopic, timeout: float) -> None:
        self.topic = topic
        self._admin = admin
        self._timeout = timeout
        self._latest: dict[bytes, _StoredValue] = {}
        self._next: defaultdict[int, int] = defaultdict(int)
        self._lock = threading.Lock()
        self._consumer = Consumer(
            {
                **config,
                "group.id": "efo-checkpoints",  # required, but not used: partitions are assigned explicitly
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                # The end of a partition is reported by a fetch that finds no records: it need not wait for more.
                "fetch.wait.max.ms": 10,
            }
        )

    def partition(self, key: bytes) -> int:
        """Return the partition of a shard's positions."""
        return zlib.crc32(key) % self.topic.partitions

    def read(self, key: bytes) -> bytes | None:
        """Return the last committed value of a key; None if it has none.

        Call it after fencing the key's earlier writers, so that they cannot write another value. The value may be in
        any partition (see `_StoredValue`), so all are read, each from where the last read ended. Raises
        KafkaUnavailableError and KafkaRefusedError.
        """
        ends = self._ends()
        with self._lock:
            for number, end in ends.items():
                if self._next[number] < end:
                    self._read(number, end)
            found = self._latest.get(key)
        return None if found is None else found.value

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            self._consumer.close()

    def _ends(self) -> dict[int, int]:
        """Return the current end offsets of the partitions, open transactions included."""
        name = self.topic.name
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the library has no type hint for it
        with kafka_errors(f"look up the end of the topic {name!r}"):
            # list_offsets asks the leaders that it knows, even after a change of leaders: look them up first.
            found = self._admin.list_topics(name, self._timeout).topics[name]
            if found.error is not None:
                raise translated(found.error, f"look up the topic {name!r}")
            partitions = found.partitions
            if len(partitions) < self.topic.partitions:  # a broker that has just started may not know all
                raise KafkaUnavailableError(
                    f"Kafka: the topic {name!r} has {self.topic.partitions} partitions, but a broker knows only"
                    f" {len(partitions)}"
                )
            futures = self._admin.list_offsets(
                {TopicPartition(name, number): latest for number in partitions},
                isolation_level=IsolationLevel.READ_UNCOMMITTED,
                request_timeout=self._timeout,
            )
            return {at.partition: future.result(self._timeout).offset for at, future in futures.items()}

    def _read(self, number: int, end: int) -> None:
        """Read a partition up to `end`. Records behind open transactions arrive when those have ended."""
        deadline = monotonic() + self._timeout
        action = f"read the positions in {self.topic.name!r}"
        with kafka_errors(action):
            self._consumer.assign([TopicPartition(self.topic.name, number, self._next[number])])
            try:
                while self._next[number] < end:
                    for message in self._consumer.consume(_CHUNK, _POLL_SECONDS):
                        error = message.error()
                        if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - part of its API
                            if not error.retriable():
                                raise translated(error, action)
                            continue
                        offset = message.offset() or 0
                        if error is None:
                            self._keep(
                                message.key() or b"", _StoredValue(number, message.value(), message.timestamp()[1])
                            )
                            offset += 1
                        self._next[number] = max(self._next[number], offset)
                    if monotonic() > deadline:
                        raise KafkaUnavailableError(
                            f"Kafka: the positions in {self.topic.name!r} could not be read for {self._timeout:g} s:"
                            " the brokers do not respond, or a transaction of another worker is still open"
                        )
            finally:
                self._consumer.unassign()

    def _keep(self, key: bytes, found: _StoredValue) -> None:
        """Keep a record. With a tombstone, an operator makes a shard start anew."""
        known = self._latest.get(key)
        if known is None or not known.overrides(found):
            self._latest[key] = found


def _sort_key(value: bytes) -> tuple[bool, Checkpoint | None]:
    """Return the sort key of a position. An invalid one sorts last, so that it is reported and not ignored."""
    try:
        found = parse_json(value)
        return False, Checkpoint(found["sequence"], found["sub_sequence"])
    except (ValueError, TypeError, KeyError, ConfigurationError):
        return True, None
