"""Another Kinesis stream as a sink, at least once: `[relay] sink = "kinesis"`, with the options of `open_kinesis_sink`.

A record is put with its data, its partition key and its explicit hash key. Kinesis has no headers, so its origin is not
kept. A commit is done when the service has stored all its records; one that fails is repeated whole.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

from efo.arn import parse_stream
from efo.errors import ConfigurationError, DeliveryError, ProducerClosedError
from efo.kinesis.client import KinesisClient, StreamLocation
from efo.model import Checkpoint, Record
from efo.producer.opening import open_producer
from efo.producer.producer import MAX_PARTITION_KEY, Producer, ProducerRecord
from efo.producer.settings import ProducerSettings
from efo_service.relay.errors import CLOSED, SinkClosedError, SinkUnavailableError
from efo_service.relay.plugins import Options, SinkContext
from efo_service.relay.sink import Part, ShardSink, closed_by_failure

_WHERE: Final = (*StreamLocation.__annotations__,)
_SWITCHES: Final = {"ordered": True, "aggregate": False}
_OVERHEAD: Final = 256
"""Bytes that a record takes in memory besides its data and its key."""


def open_kinesis_sink(options: Options, context: SinkContext) -> AbstractAsyncContextManager[KinesisSink]:
    """Return the sink, to be entered. `options`: of [relay.options].

    `stream`: the name or the ARN; the default is [relay] topic. `region`, `endpoint_url`, `ca_file`, `profile`,
    `proxy_url`: as of [kinesis], and not taken from there. `ordered`: keep the order of each key, which a stream with
    the record distribution strategy AUTO does not have; the default is true. `aggregate`: put KPL aggregates.

    Raises ConfigurationError.
    """
    if unknown := set(options) - {"stream", *_WHERE, *_SWITCHES}:
        raise ConfigurationError(
            f"[relay.options] {min(unknown)}: the sink kinesis has no such option: it has stream, {', '.join(_WHERE)},"
            f" {', '.join(_SWITCHES)}"
        )
    stream = options.get("stream", context.topic)
    where = {name: options[name] for name in _WHERE if name in options}
    for name, value in {"stream": stream, **where}.items():
        if not isinstance(value, str) or not value:
            raise ConfigurationError(f"[relay.options] {name}: expected a text")
    for name in _SWITCHES:
        if not isinstance(options.get(name, True), bool):
            raise ConfigurationError(f"[relay.options] {name}: expected true or false")
    name, region = parse_stream(str(stream))
    if name == context.stream and not (where or region):
        raise ConfigurationError(
            f"the sink kinesis would put the records of the stream {name} into itself: set [relay.options] stream, or"
            " the region, endpoint_url or profile of another account"
        )
    switches = {switch: bool(options.get(switch, default)) for switch, default in _SWITCHES.items()}
    return kinesis_sink(str(stream), where, ProducerSettings(**switches))


@asynccontextmanager
async def kinesis_sink(
    stream: str | KinesisClient, where: Mapping[str, Any], settings: ProducerSettings
) -> AsyncIterator[KinesisSink]:
    """Open a producer for a stream, and yield the sink. `where`: arguments of `efo.open_kinesis`. Raises EfoError."""
    async with open_producer(stream, settings=settings, **where) as producer:
        yield KinesisSink(producer)


class KinesisSink:
    """Puts the records of all shards by one producer. `open_kinesis_sink` creates it."""

    def __init__(self, producer: Producer[bytes]) -> None:
        self._producer = producer

    @asynccontextmanager
    async def open(
        self, _stream: str, _shard_id: str, _checkpoint: Checkpoint = Checkpoint.TRIM_HORIZON
    ) -> AsyncIterator[ShardSink]:
        """Open the sink for a shard."""
        shard_sink = KinesisShardSink(self._producer)
        try:
            yield shard_sink
        finally:
            shard_sink.close()


class KinesisShardSink:
    """A Kinesis stream, opened for one shard; see ShardSink."""

    position = None

    def __init__(self, producer: Producer[bytes]) -> None:
        self._producer = producer
        self._is_closed = False

    def refusal(self, record: Record) -> str | None:
        """Return why the stream can never take a record: its size, or its key."""
        key, largest = record.partition_key, self._producer.max_record_bytes
        if key is None and not self._producer.is_auto:
            return (
                "it has no partition key, which the stream requires (record distribution strategy USER_PARTITION_KEY)"
            )
        if key is not None and not 0 < len(key) <= MAX_PARTITION_KEY:
            return f"its partition key has {len(key)} characters: the service takes 1 to {MAX_PARTITION_KEY}"
        if (size := len(record.data) + len((key or "").encode())) > largest:
            return f"it has {size} bytes with its partition key, but the stream takes {largest} (MaxRecordSizeInKiB)"
        return None

    def prepare(self, records: Sequence[Record]) -> Part:
        """Return the records as they are."""
        return Part(records, sum(len(each.data) + len(each.partition_key or "") + _OVERHEAD for each in records))

    async def commit(self, parts: Sequence[Part]) -> None:
        """Put the records, and wait until all are stored. Raises SinkUnavailableError if some are not."""
        if self._is_closed:
            raise SinkClosedError(CLOSED)
        records = [record for part in parts for record in part.content]
        with closed_by_failure(self.close):
            try:
                await put_all(
                    self._producer,
                    [ProducerRecord(each.data, each.partition_key, each.explicit_hash_key) for each in records],
                )
            except ProducerClosedError as error:
                raise SinkClosedError(CLOSED) from error

    def close(self) -> None:
        """Close it: no commit follows."""
        self._is_closed = True


async def put_all(producer: Producer[bytes], records: Sequence[ProducerRecord[bytes]]) -> None:
    """Put records, and wait until all are stored. Raises SinkUnavailableError if some are not: how many, and why."""
    deliveries = await producer.put_many(records)
    await producer.flush()
    failures = list[DeliveryError]()
    for delivery in deliveries:  # each is looked at: those that nobody does end the producer with an error
        try:
            await delivery
        except DeliveryError as error:
            failures.append(error)
    if failures:
        raise SinkUnavailableError(
            f"{len(failures)} of {len(records)} records were not stored in the stream {producer.stream}: {failures[0]}"
        ) from None
