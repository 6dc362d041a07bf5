"""Kafka as a sink: a transactional producer per shard, or one idempotent producer for all (docs/kafka.md).

Everything that waits for a broker does so in threads of a limiter of its own: one call per commit.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from time import monotonic
from typing import Final

import trio
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from efo.model import Batch, Checkpoint, Record
from efo_service.relay.kafka.checkpoints import Checkpoints
from efo_service.relay.kafka.client import Config, Diagnosis, client_config
from efo_service.relay.kafka.errors import not_made, translated
from efo_service.relay.kafka.options import KafkaOptions
from efo_service.relay.kafka.producer import (
    GroupWriter,
    IdempotentWriter,
    SharedProducer,
    Target,
    TransactionalWriter,
    producer_config,
)
from efo_service.relay.kafka.topics import Topic, ensure_topic, positions_topic, records_topic
from efo_service.relay.mapping import Extractor, Message, RecordMapping
from efo_service.relay.write_buffer import WriteBuffer, check_refusals

PARALLEL_COMMITS: Final = 64
"""How many shards may commit at once: a commit is some milliseconds of waiting for brokers."""
CLOSE_SECONDS: Final = 5.0
"""How long leaving a shard waits for a commit that was cancelled: it cannot be interrupted, and is fenced later."""
_LOOK_SECONDS: Final = 1.0
_MESSAGE_OVERHEAD: Final = 128
"""Bytes that a batch of one record has besides keys, values and headers (Kafka: 61 of the batch, up to 36)."""
_HEADER_OVERHEAD: Final = 10
_SMALL: Final = 4096
"""More than the key and the headers of a record without tags ever have."""


@asynccontextmanager
async def open_kafka(
    options: KafkaOptions,
    *,
    application: str,
    stream: str,
    topic: str,
    region: str | None = None,
    profile: str | None = None,
    letters: bool = False,
    extract: Extractor | None = None,
) -> AsyncIterator[KafkaSink]:
    """Reach the cluster, look up or create the topics, and give the sink; leaving closes its connections.

    `topic`: a template with {stream} and {shard}. `region`, `profile`: AWS's, for AWS_MSK_IAM. `letters`: it takes
    dead letters, and keeps positions of its own for them. Raises KafkaUnavailableError, KafkaRefusedError.
    """
    sink = KafkaSink(options, application, stream, topic, region, profile, letters=letters, extract=extract)
    await trio.to_thread.run_sync(sink.connect, abandon_on_cancel=True)
    try:
        yield sink
    finally:
        with trio.move_on_after(CLOSE_SECONDS, shield=True):
            await trio.to_thread.run_sync(sink.close, abandon_on_cancel=True)


class KafkaSink:
    """Puts records into topics of Kafka; made by `open_kafka`."""

    def __init__(
        self,
        options: KafkaOptions,
        application: str,
        stream: str,
        topic: str,
        region: str | None,
        profile: str | None,
        *,
        letters: bool,
        extract: Extractor | None,
    ) -> None:
        self._options = options
        self._application = application
        self._stream = stream
        self._template = topic
        self._letters = letters
        self._extract = extract
        self._diagnosis = Diagnosis()
        self._config = client_config(options, region, profile)
        self._threads = trio.CapacityLimiter(PARALLEL_COMMITS)
        self._checkpoints: Checkpoints | None = None
        self._shared: SharedProducer | None = None
        self._making = threading.Lock()
        self._admin: AdminClient | None = None

    # --- in threads ----------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Reach the cluster and see to the topics. Raises KafkaUnavailableError, KafkaRefusedError."""
        options = self._options
        try:
            self._admin = AdminClient(self._config | {"error_cb": self._diagnosis})
        except KafkaException as error:
            raise not_made(error.args[0]) from error
        self._reach(self._admin)
        if options.delivery == "exactly_once":
            wanted = positions_topic(
                options.checkpoint_topic,
                options.checkpoint_partitions,
                options.replication_factor,
                create=options.create_topics,
            )
            found = ensure_topic(self._admin, wanted, options.connect_seconds)
            patience = options.transaction_seconds + options.connect_seconds
            self._checkpoints = Checkpoints(self._config, self._admin, found, patience)
        if "{shard}" not in self._template:
            self._topic(self._template.format(stream=self._stream))

    def _reach(self, admin: AdminClient) -> None:
        """Wait until the cluster answers. A password that is wrong is so at once, a broker may be on its way."""
        options = self._options
        doing = f"reach the brokers {options.bootstrap_servers} within {options.connect_seconds:g} s"
        deadline = monotonic() + options.connect_seconds
        while True:
            try:
                admin.list_topics(timeout=min(_LOOK_SECONDS, options.connect_seconds))
            except KafkaException as error:
                admin.poll(0)
                if self._diagnosis.is_hopeless or monotonic() >= deadline:
                    raise self._diagnosis.explain(translated(error.args[0], doing), doing) from error
            else:
                return

    def close(self) -> None:
        """Close the connections."""
        if self._checkpoints is not None:
            self._checkpoints.close()
        if self._shared is not None:
            self._shared.close()

    def _topic(self, name: str) -> Topic:
        options = self._options
        assert self._admin is not None  # noqa: S101 - `connect` was called
        wanted = records_topic(name, options.partitions, options.replication_factor, create=options.create_topics)
        return ensure_topic(self._admin, wanted, options.connect_seconds)

    def _writer(self, mapping: RecordMapping) -> tuple[GroupWriter, Topic]:
        options = self._options
        topic = self._topic(self._template.format(stream=mapping.stream, shard=mapping.shard_id))
        target = Target.of(topic, mapping, options.partition_by)
        config = producer_config(
            self._config,
            largest=topic.largest,
            compression=options.compression,
            seconds=options.transaction_seconds,
        )
        if self._checkpoints is None:
            shared = self._sharing(config)
            shared.look_up(topic.name, options.connect_seconds)
            return IdempotentWriter(shared, target), topic
        kind = "/dead-letters" if self._letters else ""
        identity = f"{self._application}/{mapping.stream}/{mapping.shard_id}{kind}"
        return TransactionalWriter(config, target, self._checkpoints, identity, options.transaction_seconds), topic

    def _sharing(self, config: Config) -> SharedProducer:
        """Return the producer of all shards, another one if it has failed for good."""
        with self._making:
            if self._shared is not None and self._shared.is_done:
                self._shared.close()
                self._shared = None
            if self._shared is None:
                self._shared = SharedProducer(config, self._options.transaction_seconds)
            return self._shared

    # --- on trio -------------------------------------------------------------------------------------------

    def open(self, stream: str, shard_id: str) -> AbstractAsyncContextManager[KafkaShardSink]:
        """Open a shard's way in: fence the worker before, then read the position back.

        Entering raises KafkaUnavailableError, KafkaRefusedError, KafkaCheckpointError.
        """
        return self._open(stream, shard_id)

    @asynccontextmanager
    async def _open(self, stream: str, shard_id: str) -> AsyncIterator[KafkaShardSink]:
        mapping = RecordMapping(stream, shard_id, self._extract)
        writer, topic = await trio.to_thread.run_sync(
            self._writer, mapping, limiter=self._threads, abandon_on_cancel=True
        )
        shard_sink = KafkaShardSink(writer, mapping, topic, self._threads)
        try:
            yield shard_sink
        finally:
            shard_sink.close()
            with trio.move_on_after(CLOSE_SECONDS, shield=True):
                await trio.to_thread.run_sync(writer.close, abandon_on_cancel=True)


class KafkaShardSink:
    """One shard's way in; see ShardSink. A commit that fails or is cancelled closes it."""

    def __init__(
        self, writer: GroupWriter, mapping: RecordMapping, topic: Topic, threads: trio.CapacityLimiter
    ) -> None:
        self._writer = writer
        self._mapping = mapping
        self._largest = topic.largest
        self._threads = threads
        self._group = WriteBuffer(writer.position)

    @property
    def position(self) -> Checkpoint | None:
        """The last record whose transaction is committed; None where delivery is at least once."""
        return self._writer.position

    @property
    def pending_records(self) -> int:
        """How many records are in the open group."""
        return len(self._group.records)

    @property
    def pending_bytes(self) -> int:
        """How many bytes of keys (in characters) and values are in the open group."""
        return self._group.size

    def refusal(self, record: Record) -> str | None:
        """Return why a record is too large for its topic, by its size before compression."""
        if len(record.data) + _SMALL <= self._largest and not record.tags:
            return None
        size = message_size(self._mapping.message(record))
        if size <= self._largest:
            return None
        return f"{size} bytes with its headers, and the topic takes {self._largest} (max.message.bytes)"

    def write(self, batch: Batch) -> None:
        """Take a batch into the open group. Raises SinkOrderError, RecordRefusedError, SinkClosedError."""
        self._group.check_open()
        check_refusals(self, batch)
        self._group.add(batch)

    async def commit(self) -> None:
        """Make the open group durable. Raises KafkaUnavailableError and its kin, see kafka_errors.py."""
        records = self._group.take()
        if not records:
            return
        try:
            await trio.to_thread.run_sync(
                partial(self._writer.append, records), limiter=self._threads, abandon_on_cancel=True
            )
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Take nothing any more. What was not committed is dropped: it was not acked either."""
        self._group.close()


def message_size(message: Message) -> int:
    """Return how many bytes a batch of this message alone has, or a few more."""
    headers = sum(len(name.encode()) + len(value or b"") + _HEADER_OVERHEAD for name, value in message.headers)
    return len(message.key) + len(message.value) + headers + _MESSAGE_OVERHEAD
