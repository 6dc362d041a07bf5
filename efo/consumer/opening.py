"""Opening a consumer: its nursery tree, and all the parts that it is made of.

    connections (pool, shard sources)           outermost: open until the last shard has stopped
      coordinator (leases: renew, take, release)     never behind a handler (rule R10)
        shards: one task per shard whose lease is held, that may start (rule R1) and is not finished
          its shard task, see `efo.consumer.shard_task`

Each nursery is left from the inside out: shards finish what they have delivered, the coordinator releases their leases,
the connections close.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Required, Unpack, get_args

import trio

from efo.checks import check_callable, check_text, shown
from efo.consumer.advice import Advice
from efo.consumer.consumer import Consumer
from efo.consumer.handlers.handler import BatchHandler, Flush, Handler, RecordHandler
from efo.consumer.loop_watch import watched_loop
from efo.consumer.shard_sources import ShardSources
from efo.consumer.worker_id import worker_slot
from efo.errors import ConfigurationError, LeaseStoreUnavailableError
from efo.event_loops import require_trio
from efo.events import ConsumerOpened, Observer, StartDelayed, WorkerStarted
from efo.exception_groups import collapse_groups, shorten_at_exit
from efo.kinesis.client import KinesisClient, StreamLocation
from efo.kinesis.connection_pool import ConnectionPool
from efo.kinesis.identity import StreamIdentity
from efo.kinesis.opening import check_stream, open_client
from efo.kinesis.pacing import PacesSubscribes
from efo.kinesis.registration import Registration
from efo.kinesis.start_retries import StartingControlPlane
from efo.leases.opening import checked_lease_store, open_lease_store, relative_file
from efo.leases.store import LeaseStore
from efo.protocol.backoff import Backoff
from efo.protocol.failure import OnError
from efo.protocol.joint_assignment import TableAssignment
from efo.protocol.until import Until
from efo.settings import (
    ConsumerSettings,
    OnServiceError,
    PositionLike,
    UntilLike,
    check_application,
    check_ending,
    consumer_name_of,
    settings_from,
)
from efo.telemetry.combined import combine_observers
from efo.telemetry.log import LoggingObserver
from efo.telemetry.tracing import open_spans

if TYPE_CHECKING:
    from efo.telemetry.spans import OtelTracing

LEASE_STORE_SECONDS: Final = 30.0
"""How long a start waits for a lease store that is unavailable."""


class ReadingOptions(StreamLocation, total=False):
    """The keyword arguments that `open_consumer` and `open_streams` have in common: `consume` says what they mean."""

    application: Required[str]
    worker_id: str | None
    initial_position: PositionLike | None
    until: UntilLike | None
    timeout: float | None
    settings: ConsumerSettings | None
    on_service_error: OnServiceError
    tracing: OtelTracing | None


class OpenOptions(ReadingOptions, total=False):
    """The keyword arguments of `open_consumer`, for those that pass them on."""

    leases: str | Path | LeaseStore
    observer: Observer | None
    rng: random.Random | None


@dataclass(frozen=True, slots=True)
class SharedLimits:
    """What the consumers of several streams share: the subscribe budget, and the balance of their leases."""

    limiter: PacesSubscribes
    joint: TableAssignment


@asynccontextmanager
async def open_consumer(
    stream: str | KinesisClient,
    *,
    application: str,
    leases: str | Path | LeaseStore = "efo-leases.sqlite",
    worker_id: str | None = None,
    initial_position: PositionLike | None = None,
    until: UntilLike | None = None,
    timeout: float | None = None,  # noqa: ASYNC109 - it drains, and cancels nothing
    settings: ConsumerSettings | None = None,
    on_service_error: OnServiceError = "stop",
    observer: Observer | None = None,
    tracing: OtelTracing | None = None,
    rng: random.Random | None = None,
    **where: Unpack[StreamLocation],
) -> AsyncIterator[Consumer]:
    """Open a consumer: register the fan-out consumer, wait until it is ACTIVE, open the lease store, take leases.

    The arguments are those of `consume`. `rng`: the source of jitter, for tests that must repeat. Leaving the context
    releases the leases. Raises EfoError.
    """
    require_trio("efo.open_consumer")
    settings = settings_from(settings, initial_position)
    end = check_ending(until, timeout)
    observer = LoggingObserver() if observer is None else observer
    check_stream(stream, where)
    check_arguments(application, worker_id, settings, on_service_error, observer)
    async with AsyncExitStack() as stack:
        stack.push(shorten_at_exit)
        kinesis = await stack.enter_async_context(open_client(stream, where))
        opening = open_sharing(
            None,
            kinesis,
            application=application,
            leases=leases,
            worker_id=worker_id,
            settings=settings,
            on_service_error=on_service_error,
            region=where.get("region"),
            proxy_url=where.get("proxy_url"),
            observer=observer,
            tracing=tracing,
            rng=rng,
            until=end,
            timeout=timeout,
            position_is_chosen=initial_position is not None,
        )
        yield await stack.enter_async_context(opening)


@asynccontextmanager
async def open_sharing(
    shared: SharedLimits | None,
    kinesis: KinesisClient,
    *,
    application: str,
    leases: str | Path | LeaseStore,
    worker_id: str | None,
    settings: ConsumerSettings,
    on_service_error: OnServiceError,
    region: str | None = None,
    proxy_url: str | None = None,
    observer: Observer,
    tracing: OtelTracing | None,
    rng: random.Random | None = None,
    until: Until | None = None,
    timeout: float | None = None,  # noqa: ASYNC109 - it drains, and cancels nothing
    position_is_chosen: bool = False,
) -> AsyncIterator[Consumer]:
    """Open a consumer that shares something with those of other streams, or nothing. Raises EfoError.

    `check_arguments` has checked the arguments. `region`, `proxy_url`: of DynamoDB, if the URL of `leases` names none.
    """
    rng = rng or random.Random()  # noqa: S311 - jitter is no secret
    # A mistake is reported before a fan-out consumer is registered, which is billed.
    checked_lease_store(leases, application, kinesis.stream, region or kinesis.region, proxy_url)
    async with AsyncExitStack() as stack:
        if worker_id is None:
            worker_id = stack.enter_context(worker_slot(application, kinesis.stream))
        spans = open_spans(
            tracing,
            stream=kinesis.stream,
            application=application,
            consumer=settings.consumer_name,
            server_address=kinesis.authority,
        )
        observer = combine_observers(observer, *(() if spans is None else (spans,)))
        starting = StartingControlPlane(kinesis.control_plane, observer, rng)
        kinesis, observer = replace(kinesis, control_plane=starting.plane), combine_observers(observer, starting)
        consumer_name = consumer_name_of(application, worker_id, settings)
        clock = trio.lowlevel.current_clock().current_time
        advice = Advice(
            observer,
            clock,
            consumer_name,
            position_is_chosen=position_is_chosen,
            prefix="" if shared is None else f"{kinesis.stream}/",
        )
        observer = combine_observers(observer, advice)
        stack.enter_context(watched_loop(advice))
        observer(WorkerStarted(worker_id))
        identity = StreamIdentity(kinesis.control_plane, trio.current_time())
        registration = Registration(
            kinesis.control_plane,
            consumer_name,
            observer,
            settings.consumer_arn,
            settings.consumer_tags,
            identity,
            waits_for_room=settings.read_mode == "fanout",
        )
        if settings.ephemeral:
            stack.push_async_callback(registration.end)
        pool = ConnectionPool(
            kinesis.connect, address=kinesis.authority, stream_window=settings.stream_window, observer=observer
        )
        sources = ShardSources(
            kinesis,
            settings,
            registration,
            identity,
            pool=pool,
            limiter=None if shared is None else shared.limiter,
            waits=on_service_error == "stop",
            rng=rng,
            observer=observer,
        )
        opened: list[Consumer] = []
        with _noted(opened), collapse_groups():
            async with trio.open_nursery() as connections:
                await connections.start(pool.run)
                readable = trio.Event()
                connections.start_soon(_run_sources, sources, readable)
                # Meanwhile the store opens: a server of its own may take as long to respond.
                location = region or kinesis.region
                async with AsyncExitStack() as storing:
                    opening = partial(open_lease_store, leases, application, kinesis.stream, location, proxy_url)
                    store = await _opened(storing, opening, observer, rng)
                    if (path := relative_file(store)) is not None:
                        advice.lease_file(path)
                    await readable.wait()
                    consumer = Consumer(
                        kinesis,
                        store,
                        settings,
                        worker_id=worker_id,
                        on_service_error=on_service_error,
                        sources=sources,
                        identity=identity,
                        observer=observer,
                        advice=advice,
                        spans=spans,
                        rng=rng,
                        joint=None if shared is None else shared.joint,
                        until=until,
                        timeout=timeout,
                    )
                    observer(ConsumerOpened(consumer))
                    async with trio.open_nursery() as keeping:
                        await keeping.start(consumer._coordinator.run)  # noqa: SLF001 - only this function makes consumers
                        opened.append(consumer)
                        try:
                            yield consumer
                        except Exception:
                            opened.clear()  # the application's own
                            raise
                        finally:
                            consumer.is_closed = True
                        keeping.cancel_scope.cancel()
                connections.cancel_scope.cancel()


def check_arguments(
    application: str, worker_id: object, settings: ConsumerSettings, on_service_error: object, observer: object
) -> None:
    """Check the arguments of `open_consumer` but for its stream. Raises ConfigurationError."""
    check_application(application, settings)
    if worker_id is not None:
        check_text("worker_id", worker_id, "a name that is unique in the application, or None")
    if on_service_error not in get_args(OnServiceError):
        raise ConfigurationError(f"on_service_error={shown(on_service_error)}: expected 'stop' or 'isolate'")
    check_callable("observer", observer, "a function of an event, or None", "event")


async def _opened(
    stack: AsyncExitStack,
    opening: Callable[[], AbstractAsyncContextManager[LeaseStore]],
    observer: Observer,
    rng: random.Random,
) -> LeaseStore:
    """Open the lease store; wait a while for a server that does not answer, or throttles a fleet that starts together.

    Raises LeaseStoreUnavailableError after LEASE_STORE_SECONDS, and EfoError.
    """
    deadline = trio.current_time() + LEASE_STORE_SECONDS
    backoff = Backoff(rng.random, initial=1.0, limit=10.0)
    while True:
        try:
            return await stack.enter_async_context(opening())
        except LeaseStoreUnavailableError as error:
            delay = backoff.next()
            if trio.current_time() + delay >= deadline:
                raise
            observer(StartDelayed("leases", error.error_type, str(error), delay))
        await trio.sleep(delay)


@contextmanager
def _noted(opened: list[Consumer]) -> Iterator[None]:
    """Let a consumer that was opened note the error that ends it."""
    try:
        yield
    except Exception as error:
        for consumer in opened:
            consumer.failed(error)
        raise


async def _run_sources(sources: ShardSources, readable: trio.Event) -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(sources.run)
        readable.set()


async def consume(
    stream: str | KinesisClient,
    handler: BatchHandler | None = None,
    *,
    record_handler: RecordHandler | None = None,
    on_error: OnError | None = None,
    flush: Flush | None = None,
    key_concurrency: int = 1,
    task_status: trio.TaskStatus[Consumer] = trio.TASK_STATUS_IGNORED,
    **options: Unpack[OpenOptions],
) -> None:
    """Read a stream by enhanced fan-out and call a handler with each batch, until cancelled, drained or done.

    `handler`: an async function, called with one batch after the other of each shard, and for several shards at once. A
    batch has at least one record. `record_handler` instead of it: an async function, called with each record and its
    batch. Wrap a function that blocks: `efo.in_thread(function)`. Progress is saved every 5 seconds and at the end, so
    after a crash the last seconds are processed again: at least once.

    `on_error`: the failure policy of the handler, or a function that returns it for an exception. By default, a handler
    that raises stops everything, after its progress is saved: nothing is skipped or retried silently (rule R11).
    `on_service_error`: "isolate" stops a single shard that the service rejects (KMS, access denied); "stop" waits until
    it is permitted again, if anything was read before, and stops everything otherwise. `flush`, `key_concurrency`: see
    `Handler`.

    `stream`: the stream's name or ARN, or a client that `open_kinesis` made. `application`: the name of the group of
    workers that share the shards. The fan-out consumer has this name too, and is registered if it does not exist.
    `initial_position`: where shards start that were never read; it overrides that of the settings.
    `until`: it ends by itself when all shards are read up to there, and what was delivered is processed: "now" means
    what was in the stream at the start; a time ends before the first record that arrived then or later. Children of
    shards that were split or merged are read too. `timeout`: it drains after so many seconds, whatever it has read.
    `settings`: all other settings, see `ConsumerSettings`. `leases`: where leases and checkpoints are kept: the path of
    an SQLite file that the workers of this machine share, a URL, or a lease store, see `open_lease_store`.
    `worker_id`: the id of this worker. By default it is unique on this host, and the same after a restart.
    `region`, `endpoint_url`, `ca_file`, `profile`, `proxy_url`: as for `open_kinesis`.
    `observer`: called with each diagnostic event; by default, events go to the logger `efo`.
    `tracing`: the OpenTelemetry spans; by default those of the global tracer provider, if one is set by now.

    With `nursery.start` it returns the Consumer, to drain it, or to pause and seek. Raises EfoError, and what the
    handler raises.
    """
    require_trio("efo.consume")
    reader = Handler(
        handler,
        record_handler=record_handler,
        on_error=on_error,
        flush=flush,
        key_concurrency=key_concurrency,
    )
    async with open_consumer(stream, **options) as consumer:
        task_status.started(consumer)
        await consumer.run(reader)
