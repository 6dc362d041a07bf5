"""The service: a consumer that relays a stream into a sink, with health and metrics over HTTP.

    web, signals                               outermost: they run until the last record is committed
      sink, Kinesis, lease store, consumer     opened in this order, closed in reverse order
        shards, each relayed into the sink     the first signal asks them to finish

SIGTERM or SIGINT: not ready -> shards finish the records they hold -> last commit, last checkpoint -> leases
released -> connections closed -> web closed -> telemetry flushed (by the caller) -> return.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

import structlog
import trio

from efo.consumer.consumer import open_consumer
from efo.consumer.shard_task import ShardReader
from efo.consumer.status import ConsumerStatus
from efo.events import Event, Observer, combine_observers, ignore_events
from efo.exception_groups import collapse_groups
from efo.kinesis.client import KinesisClient
from efo.leases.store import LeaseStore
from efo.settings import LEASE_CLEANUP_AFTER, ConsumerSettings, OnServiceError
from efo.telemetry.observer import OtelObserver
from efo_service.config.settings import KinesisSettings, Settings
from efo_service.drain import Drain
from efo_service.factories.kinesis import open_stream
from efo_service.factories.lease_store import open_leases
from efo_service.factories.sinks import SYSTEMS, open_sink
from efo_service.relay.failures import isolating
from efo_service.relay.measured import MeasuredSink
from efo_service.relay.relay import CommitPace, relay_shard
from efo_service.relay.sink import Sink
from efo_service.telemetry.logs import log_events
from efo_service.telemetry.sdk import Telemetry
from efo_service.version import VERSION
from efo_service.web.app import create_app
from efo_service.web.health import Health
from efo_service.web.readiness import measure_readiness
from efo_service.web.server import serve
from efo_service.web.status import Status

_UNSAVED_AFTER: Final = 60.0
"""Seconds after which a checkpoint that does not move is a problem; at least three times the checkpoint interval."""


class Consumer(Protocol):
    """The part of efo.consumer.consumer.Consumer that the service uses."""

    async def run(self, reader: ShardReader) -> None:
        """Read shards until `drain` is called."""
        ...

    def drain(self) -> None:
        """Ask the consumer to finish."""
        ...

    def status(self) -> ConsumerStatus:
        """Return a snapshot of the consumer's state."""
        ...


class OpenConsumer(Protocol):
    """`efo.open_consumer`, as the service calls it."""

    def __call__(
        self,
        stream: KinesisClient,
        *,
        application: str,
        leases: LeaseStore,
        worker_id: str | None,
        settings: ConsumerSettings,
        on_service_error: OnServiceError,
        observer: Observer,
    ) -> AbstractAsyncContextManager[Consumer]:
        """Open a consumer."""
        ...


@dataclass(frozen=True, slots=True)
class Parts:
    """How the service opens its components. Tests replace them."""

    open_kinesis: Callable[[KinesisSettings], AbstractAsyncContextManager[KinesisClient]]
    open_leases: Callable[[Settings], AbstractAsyncContextManager[LeaseStore]]
    open_sink: Callable[[Settings, Observer], AbstractAsyncContextManager[Sink]]
    open_consumer: OpenConsumer


async def run(
    settings: Settings,
    telemetry: Telemetry,
    *,
    parts: Parts | None = None,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run the service until SIGTERM or SIGINT. `task_status` gets the URL of health and metrics.

    Raises EfoError if something that the service needs is unavailable, DrainDeadlineError if the drain was cut short.
    """
    log = structlog.get_logger()
    health = Health(
        unsaved_after=max(_UNSAVED_AFTER, 3 * settings.consumer.checkpoint_seconds),
        clock=trio.lowlevel.current_clock().current_time,  # from any thread, unlike trio.current_time
    )
    measure_readiness(
        health,
        telemetry.meter_provider,
        stream=settings.kinesis.stream_name,
        application=settings.consumer.application,
    )
    status = Status({**names(settings), "worker_id": settings.leases.worker_id or ""}, health)
    drain = Drain(settings.service.drain_seconds)
    with collapse_groups():
        async with trio.open_nursery() as outer:
            await outer.start(drain.watch, health.start_draining)
            app = create_app(health, telemetry.registry, status)
            url = await outer.start(serve, app, settings.service.host, settings.service.port)
            log.info("started", version=VERSION, url=url, stream=settings.kinesis.stream, topic=settings.topic)
            task_status.started(url)
            with drain.scope:
                await _relay(settings, telemetry, parts or PARTS, health, status, drain)
            outer.cancel_scope.cancel()
    drain.check()
    log.info("stopped")


async def _relay(
    settings: Settings, telemetry: Telemetry, parts: Parts, health: Health, status: Status, drain: Drain
) -> None:
    metrics = _LateObserver()  # it needs the open client; no record is refused before
    async with (
        parts.open_sink(settings, metrics) as sink,
        parts.open_kinesis(settings.kinesis) as kinesis,
        parts.open_leases(settings) as leases,
    ):
        metrics.observer = _metrics(settings, telemetry, kinesis)
        observer = combine_observers(health, log_events(settings.service.log_level), metrics)
        opening = parts.open_consumer(
            kinesis,
            application=settings.consumer.application,
            leases=leases,
            worker_id=settings.leases.worker_id,
            settings=_consumer_settings(settings),
            on_service_error=settings.consumer.on_service_error,
            observer=observer,
        )
        async with opening as consumer:
            status.consumer = consumer
            drain.finish_with(consumer.drain)
            await consumer.run(_reader(settings, sink, telemetry))


class _LateObserver:
    """Passes events to an observer that is set later. Before, it drops them."""

    def __init__(self) -> None:
        self.observer: Observer = ignore_events

    def __call__(self, event: Event) -> None:
        self.observer(event)


def names(settings: Settings) -> dict[str, str]:
    """Return the names that all workers share, for /status."""
    return {
        "stream": settings.kinesis.stream_name,
        "application": settings.consumer.application,
        "consumer": settings.consumer.consumer_name,
        "topic": settings.topic,
    }


def _reader(settings: Settings, sink: Sink, telemetry: Telemetry) -> ShardReader:
    """Return the function that relays one shard into the sink. The sink is measured."""
    relay = settings.relay
    measured = MeasuredSink(
        sink, system=SYSTEMS[relay.sink], topic=settings.topic, meter_provider=telemetry.meter_provider
    )
    read = partial(
        relay_shard,
        sink=measured,
        commit_records=relay.commit_records,
        commit_bytes=relay.commit_bytes,
        pace=CommitPace(relay.commit_seconds),
    )
    return isolating(
        read,
        refused_records=relay.refused_record_action != "stop",
        sink_errors=relay.on_sink_error == "isolate",
    )


def _metrics(settings: Settings, telemetry: Telemetry, kinesis: KinesisClient) -> OtelObserver:
    return OtelObserver(
        stream=settings.kinesis.stream_name,
        application=settings.consumer.application,
        consumer=settings.consumer.consumer_name,
        server_address=kinesis.authority,
        meter_provider=telemetry.meter_provider,
    )


def _consumer_settings(settings: Settings) -> ConsumerSettings:
    return ConsumerSettings(
        consumer_name=settings.consumer.consumer_name,
        initial_position=settings.consumer.position,
        subscribes_per_second=settings.consumer.subscribes_per_second,
        checkpoint_interval=settings.consumer.checkpoint_seconds,
        shard_sync_interval=settings.consumer.shard_sync_seconds,
        stream_window=settings.consumer.stream_window,
        unsubscribe_idle_after=settings.consumer.unsubscribe_idle_seconds,
        shard_cooldown=settings.consumer.shard_cooldown_seconds,
        aggregates=settings.consumer.aggregates,
        failover_time=settings.leases.failover_seconds,
        lease_scan_interval=settings.leases.scan_interval_seconds,
        graceful_handoff=settings.leases.graceful_handoff,
        handoff_timeout=settings.leases.handoff_seconds,
        max_leases=settings.leases.max_leases,
        balance_by_throughput=settings.leases.balance == "throughput",
        lease_cleanup_after=LEASE_CLEANUP_AFTER if settings.leases.cleanup else None,
    )


PARTS: Final = Parts(open_stream, open_leases, open_sink, open_consumer)
"""The components of the real service."""
