"""Opening a producer: its nursery tree, and all the parts that it is made of.

connections (pool)      outermost: open until the last request has ended
  dispatcher            sends requests, lists the shards
    the block           puts records; at its end, what was put is sent
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar, Unpack, overload

import trio

from efo.checks import check_callable, check_type, is_async, shown
from efo.errors import ConfigurationError, ProducerClosedError
from efo.event_loops import require_trio
from efo.events import Observer, ProducerOpened, ShardsListed
from efo.exception_groups import collapse_groups, shorten_at_exit
from efo.kinesis.client import ControlPlane, KinesisClient, StreamLocation
from efo.kinesis.connection_pool import ConnectionPool
from efo.kinesis.opening import check_stream, open_client
from efo.kinesis.service_call import PutRecordsCaller, ServiceCaller
from efo.kinesis.start_retries import StartingControlPlane
from efo.model import Shard, StreamDescription
from efo.producer.buffer import Buffer
from efo.producer.dispatcher import Dispatcher
from efo.producer.producer import Producer, Serializer
from efo.producer.settings import ProducerSettings, impossible_with_auto
from efo.producer.shard_map import ShardMap
from efo.shielded import running
from efo.telemetry.log import LoggingObserver

T = TypeVar("T")


class ProducerOptions(StreamLocation, total=False):
    """The keyword arguments of `open_producer`, for those that pass them on."""

    serializer: Serializer[Any]
    settings: ProducerSettings | None
    observer: Observer | None
    rng: random.Random | None


@overload
def open_producer(
    stream: str | KinesisClient,
    *,
    settings: ProducerSettings | None = None,
    observer: Observer | None = None,
    rng: random.Random | None = None,
    **where: Unpack[StreamLocation],
) -> AbstractAsyncContextManager[Producer[bytes]]: ...


@overload
def open_producer(
    stream: str | KinesisClient,
    *,
    serializer: Serializer[T],
    settings: ProducerSettings | None = None,
    observer: Observer | None = None,
    rng: random.Random | None = None,
    **where: Unpack[StreamLocation],
) -> AbstractAsyncContextManager[Producer[T]]: ...


def open_producer(
    stream: str | KinesisClient,
    *,
    serializer: Serializer[Any] | None = None,
    settings: ProducerSettings | None = None,
    observer: Observer | None = None,
    rng: random.Random | None = None,
    **where: Unpack[StreamLocation],
) -> AbstractAsyncContextManager[Producer[Any]]:
    """Open a producer of a stream, as an async context manager.

        async with efo.open_producer("orders") as producer:
            delivery = await producer.put(b"data", partition_key="customer-7")
            print(await delivery)

    `stream`: the stream's name or ARN, or a client that `open_kinesis` made. `serializer`: makes the data of a record
    of what `put` is given; by default that is bytes. `settings`: see `ProducerSettings`. `region`, `endpoint_url`,
    `ca_file`, `profile`, `proxy_url`: as for `open_kinesis`. `observer`: called with each diagnostic event; by default,
    events go to the logger `efo`. `rng`: the source of jitter, for tests that must repeat.

    Leaving the block waits until all records are stored or given up. If the block is cancelled or raises, this takes
    `close_timeout_seconds` at most; what is left then is given up. Without another error, it raises DeliveryError if
    records were given up whose deliveries nobody has looked at. Raises ConfigurationError, ServiceError and
    TransportError.
    """
    settings = ProducerSettings() if settings is None else settings
    observer = LoggingObserver() if observer is None else observer
    check_stream(stream, where)
    _check_arguments(serializer, settings, observer)
    return _open(stream, where, serializer, settings, observer, rng or random.Random())  # noqa: S311 - jitter


@asynccontextmanager
async def _open(
    stream: str | KinesisClient,
    where: StreamLocation,
    serializer: Serializer[Any] | None,
    settings: ProducerSettings,
    observer: Observer,
    rng: random.Random,
) -> AsyncIterator[Producer[Any]]:
    require_trio("efo.open_producer")
    async with AsyncExitStack() as stack:
        stack.push(shorten_at_exit)
        kinesis = await stack.enter_async_context(open_client(stream, where))
        starting = StartingControlPlane(kinesis.control_plane, observer, rng)
        described, listed = await _describe(kinesis, starting.plane)
        observer(ShardsListed(len(listed)))
        _check_distribution(described, settings)
        buffer = Buffer(settings, ShardMap(listed, is_auto=described.is_auto), rng)
        pool = ConnectionPool(kinesis.connect, address=kinesis.authority, observer=observer)
        service = ServiceCaller(
            pool,
            sign=kinesis.sign,
            authority=kinesis.authority,
            scheme=kinesis.scheme,
            correct=kinesis.correct,
        )
        dispatcher = Dispatcher(
            buffer,
            PutRecordsCaller(service, described.arn),
            kinesis.control_plane,
            settings=settings,
            observer=observer,
            rng=rng,
        )
        producer = Producer[Any](
            kinesis.stream,
            buffer,
            dispatcher,
            serializer=serializer,
            max_record_bytes=described.max_record_bytes,
            max_buffered_bytes=settings.max_buffered_bytes,
        )
        observer(ProducerOpened(producer))
        with collapse_groups():
            async with running(pool.run), _sending(producer, dispatcher, settings.close_timeout_seconds):
                yield producer
        producer.check_delivered()


@asynccontextmanager
async def _sending(producer: Producer[Any], dispatcher: Dispatcher, close_timeout: float) -> AsyncIterator[None]:
    """Run the dispatcher for a block, and then until everything is sent; give up what cannot be."""
    try:
        async with running(dispatcher.run):
            try:
                yield
                producer.close()
                await producer.flush()
            except BaseException:
                producer.close()
                with trio.CancelScope(shield=True, deadline=trio.current_time() + close_timeout):
                    await producer.flush()
                raise
    finally:
        dispatcher.abandon(ProducerClosedError("the producer was closed before the record was stored"))


async def _describe(kinesis: KinesisClient, control_plane: ControlPlane) -> tuple[StreamDescription, Sequence[Shard]]:
    """Return the stream's description and its shards, both asked for at the same time."""
    found: list[StreamDescription] = []

    async def describe() -> None:
        found.append(await control_plane.describe_stream())

    with collapse_groups():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(describe)
            shards = await control_plane.list_shards()
    if not any(shard.is_open for shard in shards):
        raise ConfigurationError(
            f"stream {kinesis.stream} has no open shard (status {found[0].status}): wait until it is ACTIVE"
        )
    return found[0], shards


def _check_distribution(stream: StreamDescription, settings: ProducerSettings) -> None:
    if stream.is_auto and (names := impossible_with_auto(settings)):
        raise ConfigurationError(
            f"{' and '.join(f'{name}=True' for name in names)}: stream {stream.name} has the record distribution "
            "strategy AUTO, with which the service places each record in any shard; leave it out, or switch the stream "
            "to USER_PARTITION_KEY (UpdateStreamRecordDistributionStrategy)"
        )


def _check_arguments(serializer: object, settings: object, observer: object) -> None:
    if serializer is not None and not callable(serializer):
        raise ConfigurationError(f"serializer={shown(serializer)}: expected a function of a value that returns bytes")
    if callable(serializer) and is_async(serializer):
        raise ConfigurationError("serializer is an async function: expected an ordinary one that returns bytes")
    check_type("settings", settings, ProducerSettings, "a ProducerSettings, or None")
    check_callable("observer", observer, "a function of an event, or None", "event")
