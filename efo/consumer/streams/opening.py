"""Opening a consumer of many streams, and `efo.consume_streams`: one call for streams and a handler.

limiter (the subscribe budget of all streams)     outermost: open until the last stream has stopped
  lease table, if all streams share one
    streams: one task per stream, each a consumer of its own, see `efo.consumer.opening`
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import cache
from logging import getLogger
from typing import TYPE_CHECKING, Final, Unpack, get_args

import trio

from efo.arn import parse_stream
from efo.checks import check_callable, check_number, shown
from efo.consumer.consumer import Consumer
from efo.consumer.handlers.handler import BatchHandler, Flush, Handler, RecordHandler
from efo.consumer.opening import ReadingOptions, SharedLimits, check_arguments, open_sharing
from efo.consumer.streams.config import StreamConfig, StreamLike, StreamTracker, region_of
from efo.consumer.streams.consumer import MultiStreamConsumer
from efo.consumer.streams.leases import LeasesOf, StreamLeases, open_lease_stores
from efo.consumer.worker_id import worker_slot
from efo.errors import ConfigurationError
from efo.event_loops import require_trio
from efo.events import Observer
from efo.exception_groups import collapse_groups, shorten_at_exit
from efo.kinesis.client import KinesisClient, StreamLocation
from efo.kinesis.opening import check_location, open_client
from efo.kinesis.pacing import SubscribePacer
from efo.protocol.failure import OnError
from efo.protocol.joint_assignment import JointAssignment
from efo.protocol.until import Until
from efo.settings import (
    ConsumerSettings,
    OnServiceError,
    PositionLike,
    UntilLike,
    check_application,
    check_ending,
    settings_from,
)
from efo.telemetry.log import LOGGER, LoggingObserver

if TYPE_CHECKING:
    from efo.telemetry.spans import OtelTracing

OPENINGS: Final = 5
"""How many streams of one account are opened at the same time (AWS: five consumers may be CREATING, and
RegisterStreamConsumer is limited to five calls per second, each per account)."""

StreamObserver = Callable[[str], Observer]
"""Returns the observer of a stream, by its name: diagnostic events do not have it."""


class StreamsOptions(ReadingOptions, total=False):
    """The keyword arguments of `open_streams`, for those that pass them on."""

    leases: StreamLeases
    refresh_interval: float
    observer: StreamObserver


def logging_observer(stream: str) -> Observer:
    """Return the observer of a stream that writes its events to the logger `efo.STREAM`."""
    return LoggingObserver(getLogger(LOGGER).getChild(stream))


@asynccontextmanager
async def open_streams(
    streams: Iterable[StreamLike] | StreamTracker,
    *,
    application: str,
    leases: StreamLeases = "efo-leases.sqlite",
    worker_id: str | None = None,
    initial_position: PositionLike | None = None,
    until: UntilLike | None = None,
    timeout: float | None = None,  # noqa: ASYNC109 - it drains, and cancels nothing
    settings: ConsumerSettings | None = None,
    on_service_error: OnServiceError = "stop",
    refresh_interval: float = 60.0,
    observer: StreamObserver = logging_observer,
    tracing: OtelTracing | None = None,
    **where: Unpack[StreamLocation],
) -> AsyncIterator[MultiStreamConsumer]:
    """Open a consumer of many streams. `MultiStreamConsumer.run` reads them; streams can be added and removed then.

    `streams`: names, ARNs, clients or StreamConfigs; or a function that returns them, which is called every
    `refresh_interval` seconds (KCL: MultiStreamTracker). `application`: the name of the group of workers that share the
    shards of all streams, and of the fan-out consumer of each. `leases`: see `StreamLeases`.
    `settings`: of all streams. `subscribes_per_second` and `max_leases` are those of all streams together, and the
    leases of all streams are balanced between the workers as one: so a StreamConfig must not have another `assignment`
    or `balance`.
    `on_service_error`: "isolate" keeps an error of the service (a stream that does not exist, access denied) to its
    stream, which is tried again after `ConsumerSettings.shard_cooldown_seconds`; "stop" stops everything.
    `observer`: a function that returns the observer of a stream, by its name; it is called once for each. By default,
    events go to the logger `efo.STREAM`. The other arguments are those of `consume`. Raises EfoError.
    """
    require_trio("efo.open_streams")
    settings = settings_from(settings, initial_position)
    end = check_ending(until, timeout)
    check_application(application, settings)
    check_location(where)
    check_number("refresh_interval", refresh_interval, unit=" seconds")
    check_callable("observer", observer, "a function that returns the observer of a stream by its name", "stream")
    observer = cache(observer)
    if on_service_error not in get_args(OnServiceError):
        raise ConfigurationError(f"on_service_error={shown(on_service_error)}: expected 'stop' or 'isolate'")
    async with AsyncExitStack() as stack:
        stack.push(shorten_at_exit)
        if worker_id is None:  # the same for all streams: their leases are balanced as one
            worker_id = stack.enter_context(worker_slot(application, ""))
        leases_of = await stack.enter_async_context(
            open_lease_stores(leases, application, where.get("region") or region_of(streams), where.get("proxy_url"))
        )
        limiter = SubscribePacer(settings.subscribes_per_second)
        opener = _Opener(
            application=application,
            worker_id=worker_id,
            settings=settings,
            on_service_error=on_service_error,
            where=where,
            observer=observer,
            tracing=tracing,
            leases_of=leases_of,
            limiter=limiter,
            until=end,
            position_is_chosen=initial_position is not None,
        )
        consumer = MultiStreamConsumer(
            streams,
            opener.open,
            settings=settings,
            refresh_interval=refresh_interval,
            on_service_error=on_service_error,
            retry_after=settings.shard_cooldown_seconds,
            observer=observer,
            timeout=timeout,
        )
        with collapse_groups():
            async with trio.open_nursery() as nursery:
                await nursery.start(limiter.run)
                try:
                    yield consumer
                finally:
                    consumer.is_closed = True
                nursery.cancel_scope.cancel()


class _Opener:
    """Opens the consumer of one stream of several, with what all of them share."""

    def __init__(
        self,
        *,
        application: str,
        worker_id: str,
        settings: ConsumerSettings,
        on_service_error: OnServiceError,
        where: StreamLocation,
        observer: StreamObserver,
        tracing: OtelTracing | None,
        leases_of: LeasesOf,
        limiter: SubscribePacer,
        until: Until | None,
        position_is_chosen: bool,
    ) -> None:
        self._application = application
        self._worker_id = worker_id
        self._settings = settings
        self._on_service_error = on_service_error
        self._where_all = where
        self._observer = observer
        self._tracing = tracing
        self._leases_of = leases_of
        self._limiter = limiter
        self._until = until
        self._position_is_chosen = position_is_chosen
        self._joint = JointAssignment()
        self._openings = defaultdict[str | None, trio.CapacityLimiter](lambda: trio.CapacityLimiter(OPENINGS))

    @asynccontextmanager
    async def open(self, config: StreamConfig, observed: Callable[[Observer], Observer]) -> AsyncIterator[Consumer]:
        """Open the consumer of one stream. `observed`: returns what observes it. Raises EfoError."""
        account = None if config.role is None else config.role.arn
        settings = replace(config.settings_over(self._settings), max_leases=self._settings.max_leases)
        observer = self._observer(config.name)
        check_arguments(self._application, self._worker_id, settings, self._on_service_error, observer)
        observer = observed(observer)
        table = self._joint.table(config.name)
        async with AsyncExitStack() as stack:
            stack.callback(table.leave)
            async with self._openings[account]:
                kinesis = await stack.enter_async_context(open_client(config.stream, self._where(config), config.role))
                consumer = await stack.enter_async_context(
                    open_sharing(
                        SharedLimits(self._limiter.of_stream(config.name), table),
                        kinesis,
                        application=self._application,
                        leases=await self._leases_of(config, kinesis),
                        worker_id=self._worker_id,
                        settings=settings,
                        on_service_error=self._on_service_error,
                        observer=observer,
                        tracing=self._tracing,
                        until=self._until,
                        position_is_chosen=self._position_is_chosen or config.initial_position is not None,
                    )
                )
            yield consumer

    def _where(self, config: StreamConfig) -> StreamLocation:
        """Return where a stream is: where all are, but for a region of its own."""
        if isinstance(config.stream, KinesisClient):
            return {}
        where = StreamLocation(**self._where_all)
        if config.region is not None:
            where["region"] = config.region
        if parse_stream(config.stream)[1] is not None:
            where.pop("region", None)  # the ARN has it
        return where


async def consume_streams(
    streams: Iterable[StreamLike] | StreamTracker,
    handler: BatchHandler | None = None,
    *,
    record_handler: RecordHandler | None = None,
    on_error: OnError | None = None,
    flush: Flush | None = None,
    key_concurrency: int = 1,
    task_status: trio.TaskStatus[MultiStreamConsumer] = trio.TASK_STATUS_IGNORED,
    **options: Unpack[StreamsOptions],
) -> None:
    """Read many streams and call a handler with each batch, until cancelled or drained. `batch.stream` is its stream.

    `streams`, `leases`, `refresh_interval` and `observer` are those of `open_streams`, and all others those of
    `consume`. With `nursery.start` it returns the MultiStreamConsumer, to add and remove streams. Raises EfoError, and
    what the handler and a tracker raise.
    """
    require_trio("efo.consume_streams")
    reader = Handler(
        handler, record_handler=record_handler, on_error=on_error, flush=flush, key_concurrency=key_concurrency
    )
    async with open_streams(streams, **options) as consumer:
        task_status.started(consumer)
        await consumer.run(reader)
