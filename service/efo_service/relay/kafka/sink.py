"""Kafka as a sink: one transactional producer per shard, or one idempotent producer for all shards (docs/sinks.md).

Calls that wait for a broker run in threads with a separate limiter; a commit is one such call.
"""

from __future__ import annotations

import random
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from time import monotonic, sleep
from typing import Final

import trio
from confluent_kafka.admin import AdminClient

from efo.model import Checkpoint, Record
from efo_service.relay.errors import CLOSED, SinkClosedError
from efo_service.relay.kafka.checkpoints import Checkpoints
from efo_service.relay.kafka.client import Config, ConnectionErrors, client_config, open_admin, wait_for_brokers
from efo_service.relay.kafka.errors import KafkaUnavailableError
from efo_service.relay.kafka.options import CHECKPOINT_PARTITIONS, KafkaOptions
from efo_service.relay.kafka.producer import (
    CommitWriter,
    IdempotentWriter,
    KafkaDestination,
    SharedProducer,
    TransactionalWriter,
    producer_config,
)
from efo_service.relay.kafka.topics import KafkaTopic, checkpoint_topic, ensure_topic, records_topic
from efo_service.relay.mapping import Extractor, Message, RecordMapping
from efo_service.relay.record_size import RecordSize
from efo_service.relay.sink import Part, closed_by_failure

PARALLEL_COMMITS: Final = 64
"""How many shards may commit at once. A commit mostly waits for brokers, for some milliseconds."""
CLOSE_SECONDS: Final = 5.0
"""Seconds to wait for a cancelled commit when a shard is closed. It cannot be interrupted, and is fenced later."""
_MESSAGE_OVERHEAD: Final = 128
"""Bytes of a one-record batch besides key, value and headers (Kafka: 61 for the batch, up to 36 for the record)."""
_RECORD_OVERHEAD: Final = 36
"""Bytes of a record in a larger batch, besides key, value and headers."""
_HEADER_OVERHEAD: Final = 10
_MAX_UNTAGGED_OVERHEAD: Final = 4096
"""More bytes than the key and the headers of a record without tags ever have."""


@asynccontextmanager
async def open_kafka(
    options: KafkaOptions,
    *,
    application: str,
    stream: str,
    topic: str,
    region: str | None = None,
    profile: str | None = None,
    proxy_url: str | None = None,
    for_dead_letters: bool = False,
    extract: Extractor | None = None,
) -> AsyncIterator[KafkaSink]:
    """Connect to the cluster, look up or create the topics, and yield the sink; leaving closes the connections.

    `topic`: a template with {stream} and {shard}. `region`, `profile`, `proxy_url`: of AWS, for AWS_MSK_IAM.
    `for_dead_letters`: whether this is the sink of dead letters, which have separate positions. Raises
    KafkaUnavailableError and KafkaRefusedError.
    """
    sink = KafkaSink(
        options,
        application,
        stream,
        topic,
        client_config(options, region, profile, proxy_url),
        for_dead_letters=for_dead_letters,
        extract=extract,
    )
    await trio.to_thread.run_sync(sink.connect, abandon_on_cancel=True)
    try:
        yield sink
    finally:
        with trio.move_on_after(CLOSE_SECONDS, shield=True):
            await trio.to_thread.run_sync(sink.close, abandon_on_cancel=True)


class KafkaSink:
    """Writes records to Kafka topics. `open_kafka` creates it."""

    def __init__(
        self,
        options: KafkaOptions,
        application: str,
        stream: str,
        topic: str,
        config: Config,
        *,
        for_dead_letters: bool,
        extract: Extractor | None,
    ) -> None:
        self._options = options
        self._application = application
        self._stream = stream
        self._template = topic
        self._is_for_dead_letters = for_dead_letters
        self._created_at: float | None = None
        self._extract = extract
        self._connection_errors = ConnectionErrors()
        self._config = config
        self._threads = trio.CapacityLimiter(PARALLEL_COMMITS)
        self._checkpoints: Checkpoints | None = None
        self._shared: SharedProducer | None = None
        self._producer_lock = threading.Lock()
        self._admin: AdminClient | None = None

    # --- in threads ----------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Connect to the cluster, and look up or create the topics.

        Raises KafkaUnavailableError and KafkaRefusedError.
        """
        options = self._options
        self._admin = open_admin(self._config, self._connection_errors)
        wait_for_brokers(self._admin, self._connection_errors, options.bootstrap_servers, options.connect_seconds)
        if options.delivery == "exactly_once":
            spec = checkpoint_topic(
                options.checkpoint_topic,
                CHECKPOINT_PARTITIONS,
                options.replication_factor,
                create=options.create_topics,
            )
            found = self._again(partial(ensure_topic, self._admin, spec, options.connect_seconds))
            timeout = options.transaction_seconds + options.connect_seconds
            self._checkpoints = Checkpoints(self._config, self._admin, found, timeout)
        if "{shard}" not in self._template:
            self._again(partial(self._ensure_topic, self._template.format(stream=self._stream)))

    def _again(self, look_up: Callable[[], KafkaTopic]) -> KafkaTopic:
        """Look up a topic at the start, again if a broker of a cluster that is there refuses for now (rule R16)."""
        deadline = monotonic() + self._options.connect_seconds
        while True:
            try:
                return look_up()
            except KafkaUnavailableError:
                if monotonic() >= deadline:
                    raise
            sleep(random.uniform(0.5, 1))  # noqa: S311 - not used for security

    def close(self) -> None:
        """Close the connections."""
        if self._checkpoints is not None:
            self._checkpoints.close()
        if self._shared is not None:
            self._shared.close()

    def _ensure_topic(self, name: str) -> KafkaTopic:
        options = self._options
        assert self._admin is not None  # noqa: S101 - `connect` was called
        spec = records_topic(name, options.partitions, options.replication_factor, create=options.create_topics)
        return ensure_topic(self._admin, spec, options.connect_seconds)

    def _writer(self, mapping: RecordMapping) -> tuple[CommitWriter, KafkaDestination]:
        options = self._options
        topic = self._ensure_topic(self._template.format(stream=mapping.stream, shard=mapping.shard_id))
        routes = [] if self._is_for_dead_letters else [self._ensure_topic(name) for name in options.routes]
        target = KafkaDestination.of(topic, mapping, options.partition_by, routes)
        config = producer_config(
            self._config,
            largest=max(each.max_message_bytes for each in (topic, *routes)),
            compression=options.compression,
            seconds=options.transaction_seconds,
        )
        if self._checkpoints is None:
            shared = self._shared_producer(config)
            for each in (topic, *routes):
                shared.look_up(each.name, options.connect_seconds)
            return IdempotentWriter(shared, target), target
        kind = "/dead-letters" if self._is_for_dead_letters else ""
        identity = f"{self._application}/{mapping.stream}/{mapping.shard_id}{kind}"
        seconds = options.transaction_seconds
        return TransactionalWriter(config, target, self._checkpoints, identity, seconds, self._created_at), target

    def _shared_producer(self, config: Config) -> SharedProducer:
        """Return the producer of all shards, a new one if it has failed for good."""
        with self._producer_lock:
            if self._shared is not None and self._shared.has_failed:
                self._shared.close()
                self._shared = None
            if self._shared is None:
                self._shared = SharedProducer(config, self._options.transaction_seconds)
            return self._shared

    # --- on trio -------------------------------------------------------------------------------------------

    def identify(self, created_at: float | None) -> None:
        """Note when the stream was created, see `Identified`."""
        self._created_at = created_at

    def open(
        self,
        stream: str,
        shard_id: str,
        checkpoint: Checkpoint = Checkpoint.TRIM_HORIZON,  # noqa: ARG002 - the protocol requires it
    ) -> AbstractAsyncContextManager[KafkaShardSink]:
        """Open the sink for a shard: fence the previous worker, then read the position.

        Entering raises StreamRecreatedError if the position is in a former stream of this name, KafkaUnavailableError,
        KafkaRefusedError and KafkaCheckpointError.
        """
        return self._open(stream, shard_id)

    @asynccontextmanager
    async def _open(self, stream: str, shard_id: str) -> AsyncIterator[KafkaShardSink]:
        mapping = RecordMapping(stream, shard_id, self._extract)
        writer, target = await trio.to_thread.run_sync(
            self._writer, mapping, limiter=self._threads, abandon_on_cancel=True
        )
        shard_sink = KafkaShardSink(writer, target, self._threads)
        try:
            yield shard_sink
        finally:
            shard_sink.close()
            with trio.move_on_after(CLOSE_SECONDS, shield=True):
                await trio.to_thread.run_sync(writer.close, abandon_on_cancel=True)


class KafkaShardSink:
    """Kafka, opened for one shard; see ShardSink. A commit that fails or is cancelled closes it."""

    def __init__(self, writer: CommitWriter, target: KafkaDestination, threads: trio.CapacityLimiter) -> None:
        self._writer = writer
        self._target = target
        self._smallest = min(each.topic.max_message_bytes for each in (target, *target.routes.values()))
        self._threads = threads
        self._size = RecordSize(target.mapping, record=_RECORD_OVERHEAD, header=_HEADER_OVERHEAD)
        self._is_closed = False

    @property
    def position(self) -> Checkpoint | None:
        """The position of the last committed transaction; None if delivery is at least once."""
        return self._writer.position

    def refusal(self, record: Record) -> str | None:
        """Return why a record is too large for its topic, None if it is not. Its size before compression counts."""
        if len(record.data) + _MAX_UNTAGGED_OVERHEAD <= self._smallest and not record.tags:
            return None
        ((target, (record,)),) = self._target.split([record])
        size, largest = message_size(target.mapping.message(record)), target.topic.max_message_bytes
        if size <= largest:
            return None
        return f"it has {size} bytes with its headers, but the topic takes {largest} (max.message.bytes)"

    def prepare(self, records: Sequence[Record]) -> Part:
        """Return the records as they are: the client library encodes them. Their size is that before compression."""
        return Part(records, self._size(records))

    async def commit(self, parts: Sequence[Part]) -> None:
        """Make parts durable. Raises KafkaUnavailableError and the other errors in errors.py."""
        if self._is_closed:
            raise SinkClosedError(CLOSED)
        records = [record for part in parts for record in part.content]
        with closed_by_failure(self.close):
            await trio.to_thread.run_sync(
                partial(self._writer.append, records), limiter=self._threads, abandon_on_cancel=True
            )

    def close(self) -> None:
        """Close it: no commit follows."""
        self._is_closed = True


def message_size(message: Message) -> int:
    """Return the size in bytes of a batch with only this message, or slightly more."""
    headers = sum(len(name.encode()) + len(value or b"") + _HEADER_OVERHEAD for name, value in message.headers)
    return len(message.key or b"") + len(message.value) + headers + _MESSAGE_OVERHEAD
