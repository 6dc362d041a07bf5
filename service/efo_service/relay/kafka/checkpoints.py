"""The shards' positions in Kafka: one record per commit in a compacted topic, in the transaction of what it is about.

The record's key is `<application>/<stream>/<shardId>`, its value JSON: {"version": 1, "stream": ..., "shard": ...,
"sequence": ..., "sub_sequence": ...}. Blocking: made to run in threads, several at once.
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

from efo.errors import ConfigurationError
from efo.model import Checkpoint
from efo_service.relay.kafka.client import Config
from efo_service.relay.kafka.errors import KafkaCheckpointError, KafkaUnavailableError, kafka_errors, translated
from efo_service.relay.kafka.topics import Topic

VERSION: Final = 1
"""Counts the changes of the value that an older reader would misread."""
_CHUNK: Final = 1000
_POLL_SECONDS: Final = 0.01


def encode(stream: str, shard_id: str, checkpoint: Checkpoint) -> bytes:
    """Return the value that says how far a shard is."""
    return json.dumps(
        {
            "version": VERSION,
            "stream": stream,
            "shard": shard_id,
            "sequence": checkpoint.sequence_number,
            "sub_sequence": checkpoint.sub_sequence_number,
        },
        separators=(",", ":"),
    ).encode()


def decode(value: bytes, stream: str, shard_id: str, topic: str) -> Checkpoint:
    """Return the position that a value says. Raises KafkaCheckpointError if it is not one of this shard."""
    advice = (
        f"the last record of {stream}/{shard_id} in the topic {topic!r} is not a position of it. Nothing was read or"
        " written. Give this application another name or another [relay.kafka] checkpoint_topic"
    )
    try:
        found = json.loads(value)
        version = found["version"]
        if version != VERSION:
            raise KafkaCheckpointError(f"{advice} (version {version!r} of a newer efo; this one knows {VERSION})")
        owner = (found["stream"], found["shard"])
        checkpoint = Checkpoint(found["sequence"], found["sub_sequence"])
    except (ValueError, TypeError, KeyError, ConfigurationError) as error:
        raise KafkaCheckpointError(f"{advice} (it cannot be understood: {error})") from error
    if owner != (stream, shard_id) or checkpoint.is_sentinel:
        raise KafkaCheckpointError(f"{advice} (it is of {'/'.join(map(str, owner))}, at {checkpoint})")
    return checkpoint


@dataclass(frozen=True, slots=True)
class _Found:
    """The last record of a key in a partition. `value` None is a tombstone; `at`: its time, in milliseconds."""

    partition: int
    value: bytes | None
    at: int

    def counts_before(self, other: _Found) -> bool:
        """Tell whether this one stands, and not the other, which was read later.

        In one partition the later one stands. When the topic gets more partitions, a shard's positions go to another
        one, and back while older workers run: between partitions the further position stands, for a shard's positions
        only ever grow. Only a tombstone ends that, for what was written before it.
        """
        if self.partition == other.partition:
            return False
        if self.value is None or other.value is None:
            return self.at > other.at
        return _order(self.value) > _order(other.value)


class Checkpoints:
    """Reads positions. What was read stays in memory, so that each reading goes on where the last one ended.

    `patience`: how long to wait, in seconds, for transactions of others that hide what comes after them.
    """

    def __init__(self, config: Config, admin: AdminClient, topic: Topic, patience: float) -> None:
        self.topic = topic
        self._admin = admin
        self._patience = patience
        self._found: dict[bytes, _Found] = {}
        self._next: defaultdict[int, int] = defaultdict(int)
        self._lock = threading.Lock()
        self._consumer = Consumer(
            {
                **config,
                "group.id": "efo-checkpoints",  # asked for, and not used: partitions are assigned by hand
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                # That the end is reached is known when a fetch finds nothing more: it need not wait for it.
                "fetch.wait.max.ms": 10,
            }
        )

    def partition(self, key: bytes) -> int:
        """Return the partition that a shard's positions go to."""
        return zlib.crc32(key) % self.topic.partitions

    def read(self, key: bytes) -> bytes | None:
        """Return the last committed value of a key; None if it has none.

        To be called when the key's earlier writers are fenced: only then is the last one really the last. It may stand
        in any partition, see `_Found`, so all are read, each from where the last reading ended. Raises
        KafkaUnavailableError, KafkaRefusedError.
        """
        ends = self._ends()
        with self._lock:
            for number, end in ends.items():
                if self._next[number] < end:
                    self._read(number, end)
            found = self._found.get(key)
        return None if found is None else found.value

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            self._consumer.close()

    def _ends(self) -> dict[int, int]:
        """Return where the partitions end now, open transactions included."""
        name = self.topic.name
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the library has no hint for it
        with kafka_errors(f"look up the end of the topic {name!r}"):
            # It would ask the leaders that it knows, even when they have told it that they are others now.
            found = self._admin.list_topics(name, self._patience).topics[name]
            if found.error is not None:
                raise translated(found.error, f"look up the topic {name!r}")
            partitions = found.partitions
            if len(partitions) < self.topic.partitions:  # a broker that has just started and does not know all
                raise KafkaUnavailableError(
                    f"Kafka: the topic {name!r} has {self.topic.partitions} partitions, and a broker knows of"
                    f" {len(partitions)}"
                )
            answers = self._admin.list_offsets(
                {TopicPartition(name, number): latest for number in partitions},
                isolation_level=IsolationLevel.READ_UNCOMMITTED,
                request_timeout=self._patience,
            )
            return {at.partition: answer.result(self._patience).offset for at, answer in answers.items()}

    def _read(self, number: int, end: int) -> None:
        """Read a partition up to `end`; what stands behind open transactions comes when they are over."""
        deadline = monotonic() + self._patience
        doing = f"read the positions in {self.topic.name!r}"
        with kafka_errors(doing):
            self._consumer.assign([TopicPartition(self.topic.name, number, self._next[number])])
            try:
                while self._next[number] < end:
                    for message in self._consumer.consume(_CHUNK, _POLL_SECONDS):
                        error = message.error()
                        if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - its name
                            if not error.retriable():
                                raise translated(error, doing)
                            continue
                        offset = message.offset() or 0
                        if error is None:
                            self._keep(message.key() or b"", _Found(number, message.value(), message.timestamp()[1]))
                            offset += 1
                        self._next[number] = max(self._next[number], offset)
                    if monotonic() > deadline:
                        raise KafkaUnavailableError(
                            f"Kafka: the positions in {self.topic.name!r} could not be read for {self._patience:g} s:"
                            " the brokers do not answer, or a transaction of another worker is still open"
                        )
            finally:
                self._consumer.unassign()

    def _keep(self, key: bytes, found: _Found) -> None:
        """Keep a value; none (a tombstone) is how an operator makes a shard start anew."""
        known = self._found.get(key)
        if known is None or not known.counts_before(found):
            self._found[key] = found


def _order(value: bytes) -> tuple[bool, Checkpoint | None]:
    """Return what orders positions; what is none comes last, so that it is met and not passed over."""
    try:
        found = json.loads(value)
        return False, Checkpoint(found["sequence"], found["sub_sequence"])
    except (ValueError, TypeError, KeyError, ConfigurationError):
        return True, None
