"""The shards' positions in Kafka: one record per commit in a compacted topic, in the transaction of what it is about.

The record's key is `<application>/<stream>/<shardId>`, its value JSON: {"version": 1, "stream": ..., "shard": ...,
"sequence": ..., "sub_sequence": ...}. Blocking: made to run in threads, several at once.
"""

from __future__ import annotations

import json
import threading
import zlib
from time import monotonic
from typing import Final

from confluent_kafka import Consumer, IsolationLevel, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # by its type hints alone

from efo.errors import ConfigurationError
from efo.model import Checkpoint
from service.relay.kafka_client import Config
from service.relay.kafka_errors import KafkaCheckpointError, KafkaUnavailableError, kafka_errors, translated
from service.relay.kafka_topics import Topic

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


class Checkpoints:
    """Reads positions. What was read stays in memory, so that each reading goes on where the last one ended.

    `patience`: how long to wait, in seconds, for transactions of others that hide what comes after them.
    """

    def __init__(self, config: Config, admin: AdminClient, topic: Topic, patience: float) -> None:
        self.topic = topic
        self._admin = admin
        self._patience = patience
        self._found: dict[bytes, bytes] = {}
        self._next = [0] * topic.partitions
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

        To be called when the key's earlier writers are fenced: only then is the last one really the last. Where its
        own partition has none, all are looked through: the topic may have got more partitions since it was written.
        Raises KafkaUnavailableError, KafkaRefusedError.
        """
        own = self.partition(key)
        self._read_to_the_end([own])
        if key not in self._found:
            self._read_to_the_end([number for number in range(self.topic.partitions) if number != own])
        return self._found.get(key)

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            self._consumer.close()

    def _read_to_the_end(self, partitions: list[int]) -> None:
        ends = self._ends(partitions)
        with self._lock:
            for number, end in ends.items():
                if self._next[number] < end:
                    self._read(number, end)

    def _ends(self, partitions: list[int]) -> dict[int, int]:
        """Return where the partitions end now, open transactions included."""
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the library has no hint for it
        asked = {TopicPartition(self.topic.name, number): latest for number in partitions}
        with kafka_errors(f"look up the end of the topic {self.topic.name!r}"):
            # It would ask the leaders that it knows, even when they have told it that they are others now.
            self._admin.list_topics(self.topic.name, self._patience)
            answers = self._admin.list_offsets(
                asked, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=self._patience
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
                            self._keep(message.key() or b"", message.value())
                            offset += 1
                        self._next[number] = max(self._next[number], offset)
                    if monotonic() > deadline:
                        raise KafkaUnavailableError(
                            f"Kafka: the positions in {self.topic.name!r} could not be read for {self._patience:g} s:"
                            " the brokers do not answer, or a transaction of another worker is still open"
                        )
            finally:
                self._consumer.unassign()

    def _keep(self, key: bytes, value: bytes | None) -> None:
        """Keep a value; none (a tombstone) is how an operator makes a shard start anew."""
        if value is None:
            self._found.pop(key, None)
        else:
            self._found[key] = value
