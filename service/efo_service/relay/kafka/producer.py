"""Puts groups of records into Kafka. Blocking: a group is one call in a thread, without a callback per record."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import repeat
from time import monotonic
from typing import Any, Final, Protocol

from confluent_kafka import KafkaException, Producer

from efo.model import Checkpoint, Record, checkpoint_of
from efo_service.relay.errors import SinkError
from efo_service.relay.kafka.checkpoints import Checkpoints, decode, encode
from efo_service.relay.kafka.client import Config, Diagnosis
from efo_service.relay.kafka.errors import (
    KafkaFatalError,
    KafkaFencedError,
    KafkaUnavailableError,
    kafka_errors,
    translated,
)
from efo_service.relay.kafka.partitioner import partitions
from efo_service.relay.kafka.topics import Topic
from efo_service.relay.mapping import HEADERS, RecordMapping

ABORT_SECONDS: Final = 5.0
"""How long an abort may take. Whoever opens the shard next aborts what is open as well."""
_ROOM_SECONDS: Final = 0.05
_FOR_GOOD: Final = (KafkaFencedError, KafkaFatalError)


@dataclass(frozen=True, slots=True)
class Target:
    """Where a shard's records go. `partition`: for all of them; None: by their keys."""

    topic: Topic
    mapping: RecordMapping
    partition: int | None

    @classmethod
    def of(cls, topic: Topic, mapping: RecordMapping, partition_by: str) -> Target:
        """Return a shard's target. `partition_by`: key or shard."""
        number = zlib.crc32(mapping.shard_id.encode()) % topic.partitions
        return cls(topic, mapping, number if partition_by == "shard" or topic.partitions == 1 else None)


def producer_config(config: Config, *, largest: int, compression: str, seconds: float) -> Config:
    """Return the configuration of a producer. `largest`: bytes of a record; `seconds`: until a record has failed."""
    return {
        **config,
        "enable.idempotence": True,
        "compression.type": compression,
        "message.max.bytes": largest,
        "message.timeout.ms": int(seconds * 1000),
        "linger.ms": 5,
        "queue.buffering.max.messages": 1_000_000,
        "delivery.report.only.error": True,
    }


class GroupWriter(Protocol):
    """Makes one shard's groups durable, one at a time."""

    @property
    def position(self) -> Checkpoint | None:
        """The last record that is durable, if the writer keeps that."""
        ...

    def append(self, records: Sequence[Record]) -> None:
        """Make a group durable, or raise SinkError; then the writer is of no further use."""
        ...

    def close(self) -> None:
        """Drop what is not durable."""
        ...


class TransactionalWriter:
    """Exactly once: a producer of its own, whose transactions hold the records and the position of the last one.

    `identity`: its transactional.id, and the key of its positions. `seconds`: the most that a transaction may take.
    Opening it fences the writer before it and reads the position back. Raises SinkError.
    """

    def __init__(self, config: Config, target: Target, checkpoints: Checkpoints, identity: str, seconds: float) -> None:
        self.position: Checkpoint | None = None
        self._target = target
        self._checkpoints = checkpoints
        self._key = identity.encode()
        self._seconds = seconds
        self._lock = threading.Lock()
        self._diagnosis = Diagnosis()
        milliseconds = int(seconds * 1000)
        own = {
            "transactional.id": identity,
            "transaction.timeout.ms": milliseconds,
            "error_cb": self._diagnosis,
        }
        with kafka_errors("make a producer"):
            self._producer: Producer | None = Producer({**config, **own})
        try:
            self._open(self._producer)
        except BaseException:
            self.close()
            raise

    def _open(self, producer: Producer) -> None:
        mapping = self._target.mapping
        doing = f"open {mapping.shard_id}"
        try:
            # First the fence: after it, nobody else can move the position that is read next.
            producer.init_transactions(self._seconds)
        except KafkaException as error:
            raise self._diagnosis.explain(translated(error.args[0], doing), doing) from error
        value = self._checkpoints.read(self._key)
        if value is not None:
            self.position = decode(value, mapping.stream, mapping.shard_id, self._checkpoints.topic.name)

    def append(self, records: Sequence[Record]) -> None:
        """Commit the records and the position of the last one, in one transaction.

        Raises KafkaAbortedError, KafkaUnavailableError, KafkaFencedError, KafkaFatalError, KafkaRefusedError.
        """
        with self._lock:
            assert self._producer is not None  # noqa: S101 - who closed it does not append
            deadline = monotonic() + self._seconds
            doing = f"commit records of {self._target.mapping.shard_id}"
            position = checkpoint_of(records[-1])
            try:
                self._producer.begin_transaction()
                produce_all(self._producer, self._target, records, deadline)
                # The position last: the sooner its transaction is over, the less it hides those of other shards.
                self._put_position(self._producer, position, deadline)
                self._commit(self._producer, deadline)
            except KafkaException as error:
                raise self._abort(self._producer, translated(error.args[0], doing)) from error
            except SinkError as error:
                self._abort(self._producer, error)
                raise
            self.position = position

    def _put_position(self, producer: Producer, position: Checkpoint, deadline: float) -> None:
        mapping = self._target.mapping
        value = encode(mapping.stream, mapping.shard_id, position)
        topic, partition = self._checkpoints.topic.name, self._checkpoints.partition(self._key)
        _insist(producer, deadline, topic, value, self._key, partition)

    def _commit(self, producer: Producer, deadline: float) -> None:
        """Commit; the outcome of a call that timed out is only known by calling again."""
        while True:
            try:
                producer.commit_transaction(max(0.1, deadline - monotonic()))
            except KafkaException as error:
                if not error.args[0].retriable() or monotonic() >= deadline:
                    raise
            else:
                return

    def _abort(self, producer: Producer, error: SinkError) -> SinkError:
        """Abort what is open, so that readers need not wait for it to time out; return what is to be raised."""
        if not isinstance(error, _FOR_GOOD):
            try:
                producer.abort_transaction(ABORT_SECONDS)
            except KafkaException as failed:
                again = translated(failed.args[0], "abort a transaction")
                if isinstance(again, _FOR_GOOD):
                    return again
        return error

    def close(self) -> None:
        """Close the producer; a transaction that is open is aborted by who opens the shard next, or times out."""
        with self._lock:
            producer, self._producer = self._producer, None
            if producer is not None:
                _drop(producer)


class SharedProducer:
    """At least once: one idempotent producer for all shards. `is_done` once it has failed for good."""

    def __init__(self, config: Config, seconds: float) -> None:
        self.seconds = seconds
        self.is_done = False
        self._flushing = threading.Lock()
        with kafka_errors("make a producer"):
            self.producer = Producer(config)

    def look_up(self, topic: str, seconds: float) -> None:
        """Learn which partitions a topic has now: it takes records for those alone. Raises KafkaUnavailableError."""
        with kafka_errors(f"look up the topic {topic!r}"):
            self.producer.list_topics(topic, seconds)

    def flush(self, doing: str) -> None:
        """Wait until all that was put by anybody is delivered or has failed. Raises KafkaUnavailableError.

        One at a time: so, when it returns, the failures of all that was put before have been reported.
        """
        with self._flushing:
            left = self.producer.flush(self.seconds + 1)
        if left:
            raise KafkaUnavailableError(f"Kafka: cannot {doing}: {left} records are not acknowledged")

    def close(self) -> None:
        """Drop what is not delivered."""
        _drop(self.producer)


class IdempotentWriter:
    """At least once: a group is durable when all that was put is acknowledged (a flush)."""

    position = None

    def __init__(self, shared: SharedProducer, target: Target) -> None:
        self._shared = shared
        self._target = target

    def append(self, records: Sequence[Record]) -> None:
        """Put the records and wait for their acknowledgement. Raises KafkaUnavailableError, KafkaRefusedError."""
        doing = f"put records of {self._target.mapping.shard_id}"
        failures: list[Any] = []
        deadline = monotonic() + self._shared.seconds
        try:
            with kafka_errors(doing):
                produce_all(
                    self._shared.producer, self._target, records, deadline, lambda error, _: failures.append(error)
                )
                self._shared.flush(doing)
            if failures:
                raise translated(failures[0], doing)
        except _FOR_GOOD:
            self._shared.is_done = True  # whoever opens a shard next makes another
            raise

    def close(self) -> None:
        """Nothing is its own."""


def produce_all(
    producer: Producer,
    target: Target,
    records: Sequence[Record],
    deadline: float,
    on_delivery: Callable[[Any, Any], None] | None = None,
) -> None:
    """Hand records to the client library, each partition's in their order.

    Raises KafkaException, KafkaUnavailableError, SinkError.
    """
    produce: Any = producer.produce  # its type hints want an invariant list of headers
    topic, headers_of = target.topic.name, quick_headers(target.mapping)
    for record, key, partition in _by_partition(target, records):
        timestamp, headers = round(record.approximate_arrival_timestamp * 1000), headers_of(record)
        message = (topic, record.data, key, partition, None, on_delivery, timestamp, headers)
        try:
            produce(*message)
        except BufferError:
            _insist(producer, deadline, *message)


def _by_partition(target: Target, records: Sequence[Record]) -> Iterable[tuple[Record, bytes, int]]:
    """Return records with their keys and partitions, one partition after the other."""
    keys = [record.partition_key.encode() for record in records]
    if target.partition is not None:
        return zip(records, keys, repeat(target.partition), strict=False)
    chosen = partitions(keys, target.topic.partitions)
    order = chosen.argsort(kind="stable")
    return ((records[row], keys[row], at) for row, at in zip(order.tolist(), chosen[order].tolist(), strict=True))


def _insist(producer: Producer, deadline: float, *message: Any) -> None:
    """Hand a message over as soon as there is room for it. Raises KafkaException, KafkaUnavailableError."""
    while True:
        try:
            producer.produce(*message)
        except BufferError:
            if monotonic() > deadline:
                raise KafkaUnavailableError(
                    "Kafka: no room for more records: the brokers do not take what is queued"
                ) from None
            producer.poll(_ROOM_SECONDS)
        else:
            return


def quick_headers(mapping: RecordMapping) -> Callable[[Record], list[Any]]:
    """Return what makes a record's headers in a quarter of the mapping's time, and just as the mapping does.

    The client library encodes text by itself, and faster: keys and values of headers stay what they are.
    """
    stream, shard = (HEADERS[0], mapping.stream), (HEADERS[1], mapping.shard_id)
    _, _, sequence, sub_sequence, hash_key, encryption = HEADERS
    whole = (sub_sequence, "0")

    def headers(record: Record) -> list[Any]:
        if record.tags or mapping.extract is not None:
            return mapping.headers(record)
        sub = record.sub_sequence_number
        made = [stream, shard, (sequence, record.sequence_number), (sub_sequence, str(sub)) if sub else whole]
        if record.explicit_hash_key is not None:
            made.append((hash_key, record.explicit_hash_key))
        if record.encryption_type is not None and record.encryption_type != "NONE":
            made.append((encryption, record.encryption_type))
        return made

    return headers


def _drop(producer: Producer) -> None:
    """Throw away what is queued; the connections go with the last reference."""
    with suppress(KafkaException):  # a producer that has failed says so once more
        producer.purge()
        producer.poll(0)
