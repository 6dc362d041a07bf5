"""Writers that commit records to Kafka. Blocking: a commit is one call in a thread, without a callback per record.

The client library can compute them too, record by record. Computing them first allows passing records to the library
partition by partition. That takes it two thirds of the time of mixed records.
"""

from __future__ import annotations

import threading
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import repeat
from time import monotonic
from typing import Any, Final, Protocol, cast

import numpy as np
from confluent_kafka import KafkaException, Producer
from numpy.typing import NDArray

from efo.model import Checkpoint, Record, checkpoint_of
from efo_service.relay.errors import SinkError
from efo_service.relay.kafka.checkpoints import Checkpoints, decode, encode
from efo_service.relay.kafka.client import Config, ConnectionErrors
from efo_service.relay.kafka.errors import (
    KafkaFatalError,
    KafkaFencedError,
    KafkaUnavailableError,
    kafka_errors,
    translated,
)
from efo_service.relay.kafka.topics import KafkaTopic
from efo_service.relay.mapping import HEADERS, RecordMapping
from efo_service.relay.transform import unrouted

ABORT_SECONDS: Final = 5.0
"""The maximum time of an abort, in seconds. The next worker that opens the shard also aborts an open transaction."""
_QUEUE_FULL_POLL_SECONDS: Final = 0.05
_FINAL_ERRORS: Final = (KafkaFencedError, KafkaFatalError)


@dataclass(frozen=True, slots=True)
class KafkaDestination:
    """Where a shard's records go.

    `partition`: of all records; None if their keys decide. `of_shard`: the partition of records without a key, so that
    those of a shard keep their order. `routes`: by topic, where those go whose transform names it.
    """

    topic: KafkaTopic
    mapping: RecordMapping
    partition: int | None
    of_shard: int
    routes: Mapping[str, KafkaDestination] = field(default_factory=dict)

    @classmethod
    def of(
        cls, topic: KafkaTopic, mapping: RecordMapping, partition_by: str, routes: Iterable[KafkaTopic] = ()
    ) -> KafkaDestination:
        """Return a shard's target. `partition_by`: "key" or "shard". `routes`: topics that a transform may name."""
        number = zlib.crc32(mapping.shard_id.encode()) % topic.partitions
        by_shard = partition_by == "shard" or topic.partitions == 1
        named = {route.name: cls.of(route, mapping, partition_by) for route in routes}
        return cls(topic, mapping, number if by_shard else None, number, named)

    def split(self, records: Sequence[Record]) -> list[tuple[KafkaDestination, Sequence[Record]]]:
        """Return the records by target, in order within each, without the topics that a transform named."""
        if not self.routes:
            return [(self, records)]
        by_topic: dict[str | None, list[Record]] = {}
        for record in records:
            topic, without = unrouted(record)
            by_topic.setdefault(topic, []).append(without)
        return [(self if topic is None else self.routes[topic], some) for topic, some in by_topic.items()]


def producer_config(config: Config, *, largest: int, compression: str, seconds: float) -> Config:
    """Return the configuration of a producer.

    `largest`: the maximum size of a record batch, in bytes. `seconds`: the time until the delivery of a record fails.
    """
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


class CommitWriter(Protocol):
    """Makes the records of one shard durable, one commit at a time."""

    @property
    def position(self) -> Checkpoint | None:
        """The position of the last durable record, if the writer keeps positions."""
        ...

    def append(self, records: Sequence[Record]) -> None:
        """Make records durable. After a SinkError the writer must not be used any more."""
        ...

    def close(self) -> None:
        """Drop the records that are not durable."""
        ...


class TransactionalWriter:
    """Exactly once: a producer per shard, whose transactions contain the records and the position of the last one.

    `identity`: its transactional.id, and the key of its positions. `seconds`: the maximum time of a transaction.
    `created_at`: when the stream was created, in seconds since the epoch; None if unknown.
    Creating it fences the shard's previous writer and reads the position. Raises SinkError.
    """

    def __init__(
        self,
        config: Config,
        target: KafkaDestination,
        checkpoints: Checkpoints,
        identity: str,
        seconds: float,
        created_at: float | None = None,
    ) -> None:
        self._created_at = created_at
        self.position: Checkpoint | None = None
        self._target = target
        self._checkpoints = checkpoints
        self._key = identity.encode()
        self._seconds = seconds
        self._lock = threading.Lock()
        self._connection_errors = ConnectionErrors()
        milliseconds = int(seconds * 1000)
        transactional = {
            "transactional.id": identity,
            "transaction.timeout.ms": milliseconds,
            "error_cb": self._connection_errors,
        }
        with kafka_errors("create a producer"):
            self._producer: Producer | None = Producer({**config, **transactional})
        try:
            self._open(self._producer)
        except BaseException:
            self.close()
            raise

    def _open(self, producer: Producer) -> None:
        mapping = self._target.mapping
        action = f"open {mapping.shard_id}"
        try:
            # Fence first: after that, no other worker can change the position that is read next.
            producer.init_transactions(self._seconds)
        except KafkaException as error:
            raise self._connection_errors.explain(translated(error.args[0], action), action) from error
        value = self._checkpoints.read(self._key)
        if value is not None:
            name = self._checkpoints.topic.name
            self.position = decode(value, mapping.stream, mapping.shard_id, name, self._created_at)

    def append(self, records: Sequence[Record]) -> None:
        """Commit the records and the position of the last one, in one transaction.

        Raises KafkaAbortedError, KafkaUnavailableError, KafkaFencedError, KafkaFatalError, KafkaRefusedError.
        """
        with self._lock:
            assert self._producer is not None  # noqa: S101 - `append` is not called after `close`
            deadline = monotonic() + self._seconds
            action = f"commit records of {self._target.mapping.shard_id}"
            position = checkpoint_of(records[-1])
            try:
                self._producer.begin_transaction()
                produce_all(self._producer, self._target, records, deadline)
                # The position goes last: until the transaction ends, it hides later positions of other shards.
                self._put_position(self._producer, position, deadline)
                self._commit(self._producer, deadline)
            except KafkaException as error:
                raise self._abort(self._producer, translated(error.args[0], action)) from error
            except SinkError as error:
                self._abort(self._producer, error)
                raise
            self.position = position

    def _put_position(self, producer: Producer, position: Checkpoint, deadline: float) -> None:
        mapping = self._target.mapping
        value = encode(mapping.stream, mapping.shard_id, position, self._created_at)
        topic, partition = self._checkpoints.topic.name, self._checkpoints.partition(self._key)
        _produce_when_possible(producer, deadline, topic, value, self._key, partition)

    def _commit(self, producer: Producer, deadline: float) -> None:
        """Commit the transaction. After a time-out, only another call shows the outcome."""
        while True:
            try:
                producer.commit_transaction(max(0.1, deadline - monotonic()))
            except KafkaException as error:
                if not error.args[0].retriable() or monotonic() >= deadline:
                    raise
            else:
                return

    def _abort(self, producer: Producer, error: SinkError) -> SinkError:
        """Abort the open transaction, so that readers need not wait for its time-out. Return the error to raise."""
        if not isinstance(error, _FINAL_ERRORS):
            try:
                producer.abort_transaction(ABORT_SECONDS)
            except KafkaException as failed:
                again = translated(failed.args[0], "abort a transaction")
                if isinstance(again, _FINAL_ERRORS):
                    return again
        return error

    def close(self) -> None:
        """Close the producer. An open transaction is aborted when the shard is opened again, or times out."""
        with self._lock:
            producer, self._producer = self._producer, None
            if producer is not None:
                _discard(producer)


class SharedProducer:
    """At least once: one idempotent producer for all shards. `has_failed`: whether it has failed for good."""

    def __init__(self, config: Config, seconds: float) -> None:
        self.seconds = seconds
        self.has_failed = False
        self._flushing = threading.Lock()
        with kafka_errors("create a producer"):
            self.producer = Producer(config)

    def look_up(self, topic: str, seconds: float) -> None:
        """Look up a topic's current partitions. The producer only accepts records for those it knows.

        Raises KafkaUnavailableError.
        """
        with kafka_errors(f"look up the topic {topic!r}"):
            self.producer.list_topics(topic, seconds)

    def flush(self, action: str) -> None:
        """Wait until the records of all shards are delivered or have failed. Raises KafkaUnavailableError.

        One call at a time. So when it returns, all earlier records that failed have been reported.
        """
        with self._flushing:
            left = self.producer.flush(self.seconds + 1)
        if left:
            raise KafkaUnavailableError(f"Kafka: cannot {action}: {left} records are not acknowledged")

    def close(self) -> None:
        """Drop the records that are not delivered."""
        _discard(self.producer)


class IdempotentWriter:
    """At least once: a commit is durable when the brokers have acknowledged all records (a flush)."""

    position = None

    def __init__(self, shared: SharedProducer, target: KafkaDestination) -> None:
        self._shared = shared
        self._target = target

    def append(self, records: Sequence[Record]) -> None:
        """Produce the records and wait until all are acknowledged. Raises KafkaUnavailableError, KafkaRefusedError."""
        action = f"write records of {self._target.mapping.shard_id}"
        failures: list[Any] = []
        deadline = monotonic() + self._shared.seconds
        try:
            with kafka_errors(action):
                produce_all(
                    self._shared.producer, self._target, records, deadline, lambda error, _: failures.append(error)
                )
                self._shared.flush(action)
            if failures:
                raise translated(failures[0], action)
        except _FINAL_ERRORS:
            self._shared.has_failed = True  # the next shard that is opened gets a new one
            raise

    def close(self) -> None:
        """Do nothing: the producer is shared."""


def produce_all(
    producer: Producer,
    target: KafkaDestination,
    records: Sequence[Record],
    deadline: float,
    on_delivery: Callable[[Any, Any], None] | None = None,
) -> None:
    """Pass records to the client library, in order within each partition.

    Raises KafkaException, KafkaUnavailableError and SinkError.
    """
    produce: Any = producer.produce  # its type hints require an invariant list of headers
    headers_of = fast_headers(target.mapping)
    for to, some in target.split(records):
        topic = to.topic.name
        for record, key, partition in _by_partition(to, some):
            timestamp, headers = round(record.approximate_arrival_timestamp * 1000), headers_of(record)
            message = (topic, record.data, key, partition, None, on_delivery, timestamp, headers)
            try:
                produce(*message)
            except BufferError:
                _produce_when_possible(producer, deadline, *message)


def _by_partition(target: KafkaDestination, records: Sequence[Record]) -> Iterable[tuple[Record, bytes | None, int]]:
    """Return the records with their keys and partitions, one partition after the other."""
    keys: list[bytes | None] = [
        None if record.partition_key is None else record.partition_key.encode() for record in records
    ]
    if target.partition is not None:
        return zip(records, keys, repeat(target.partition), strict=False)
    if None in keys:
        chosen = partitions([key or b"" for key in keys], target.topic.partitions)
        chosen[[row for row, key in enumerate(keys) if key is None]] = target.of_shard
    else:
        chosen = partitions(cast("list[bytes]", keys), target.topic.partitions)
    order = chosen.argsort(kind="stable")
    return ((records[row], keys[row], at) for row, at in zip(order.tolist(), chosen[order].tolist(), strict=True))


def _produce_when_possible(producer: Producer, deadline: float, *message: Any) -> None:
    """Produce a message as soon as the queue has space for it. Raises KafkaException and KafkaUnavailableError."""
    while True:
        try:
            producer.produce(*message)
        except BufferError:
            if monotonic() > deadline:
                raise KafkaUnavailableError(
                    "Kafka: the producer's queue is full, since the brokers do not accept the queued records"
                ) from None
            producer.poll(_QUEUE_FULL_POLL_SECONDS)
        else:
            return


def fast_headers(mapping: RecordMapping) -> Callable[[Record], list[Any]]:
    """Return a function that makes the same headers as the mapping, in a quarter of the time.

    The client library encodes text itself, and faster. So values stay text.
    """
    stream, shard = (HEADERS[0], mapping.stream), (HEADERS[1], mapping.shard_id)
    _, _, sequence, sub_sequence, hash_key, encryption = HEADERS
    zero = (sub_sequence, "0")

    def headers(record: Record) -> list[Any]:
        if record.tags or mapping.extract is not None:
            return mapping.headers(record)
        sub = record.sub_sequence_number
        made = [stream, shard, (sequence, record.sequence_number), (sub_sequence, str(sub)) if sub else zero]
        if record.explicit_hash_key is not None:
            made.append((hash_key, record.explicit_hash_key))
        if record.encryption_type is not None and record.encryption_type != "NONE":
            made.append((encryption, record.encryption_type))
        return made

    return headers


def _discard(producer: Producer) -> None:
    """Discard queued records. The connections close with the last reference to the producer."""
    with suppress(KafkaException):  # a failed producer raises its error again
        producer.purge()
        producer.poll(0)


_SEED: Final = 0x9747B28C
_M: Final = np.uint32(0x5BD1E995)
_R13, _R15, _R24 = np.uint32(13), np.uint32(15), np.uint32(24)
_WORD: Final = 4


def murmur2(keys: Sequence[bytes]) -> NDArray[np.uint32]:
    """Return the hashes of the keys, as unsigned numbers (org.apache.kafka.common.utils.Utils.murmur2)."""
    hashes = np.empty(len(keys), np.uint32)
    by_length: dict[int, list[int]] = defaultdict(list)
    for row, key in enumerate(keys):
        by_length[len(key)].append(row)
    for length, rows in by_length.items():
        hashes[rows] = _hash_equal_lengths([keys[row] for row in rows], length)
    return hashes


def partitions(keys: Sequence[bytes], count: int) -> NDArray[np.uint32]:
    """Return the partition of each key out of `count`: its hash without the sign bit, modulo `count`."""
    return (murmur2(keys) & np.uint32(0x7FFFFFFF)) % np.uint32(count)


def _hash_equal_lengths(keys: list[bytes], length: int) -> NDArray[np.uint32]:
    whole, rest = divmod(length, _WORD)
    size = (whole + bool(rest)) * _WORD
    padded = b"".join(key.ljust(size, b"\0") for key in keys) if rest else b"".join(keys)
    words: NDArray[np.uint32] = np.frombuffer(padded, "<u4").reshape(len(keys), size // _WORD)
    hashes = np.full(len(keys), _SEED ^ length, np.uint32)
    for column in range(whole):
        mixed = words[:, column] * _M
        mixed = (mixed ^ (mixed >> _R24)) * _M
        hashes = (hashes * _M) ^ mixed
    if rest:
        hashes = (hashes ^ words[:, whole]) * _M
    hashes = (hashes ^ (hashes >> _R13)) * _M
    return hashes ^ (hashes >> _R15)
