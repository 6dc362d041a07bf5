"""One run of one stream: a consumer that relays it into its sink.

sink, Kinesis, lease store, consumer     opened in this order, closed in reverse order
  shards, each relayed into the sink     the drain asks them to finish
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import structlog
import trio

from efo.consumer.shard_task import ShardReader
from efo.events import Event, Observer, StreamIdentified, ignore_events
from efo.exception_groups import collapse_groups
from efo.kinesis.client import KinesisClient
from efo.telemetry.combined import HeldBack, combine_observers
from efo.telemetry.filtering import Filtering
from efo.telemetry.observer import OtelObserver
from efo.telemetry.outages import Outages
from efo.telemetry.spans import OtelTracing, tracer_of
from efo.telemetry.tracing import open_spans
from efo_service.config.settings import Settings
from efo_service.factories.consumer import consumer_settings, open_metrics, open_tracing
from efo_service.relay.destination import Destination, isolating
from efo_service.relay.relay import CommitPace, relay_shard
from efo_service.relay.write_buffer import Room
from efo_service.streams.parts import OpensConsumer, Parts
from efo_service.telemetry.logs import log_events
from efo_service.telemetry.sdk import Telemetry
from efo_service.web.health import Health
from efo_service.web.live.actions import Action, Actions
from efo_service.web.live.source import StreamSource, StreamView
from efo_service.web.status import Status

_UNSAVED_AFTER: Final = 60.0
"""Seconds after which a checkpoint that does not move is a problem; at least three times the checkpoint interval."""


class StreamRun:
    """Relays a stream, or reads it in the way of `parts`, until it is drained.

    `name`: of the stream in the configuration, and in the log.

    `reading`: set when its shards are listed, and its leases are of this stream. `is_retried`: the run before it was
    refused, so nothing is logged until then.
    """

    def __init__(self, name: str, settings: Settings, *, telemetry: Telemetry, parts: Parts) -> None:
        self.name = name
        self.settings = settings
        self.is_stopping = False
        self.is_retried = False
        self.reading = trio.Event()
        clock = trio.lowlevel.current_clock().current_time  # from any thread, unlike trio.current_time
        outages, filtering = Outages(clock), Filtering(clock)
        self.health = Health(
            unsaved_after=max(_UNSAVED_AFTER, 3 * settings.consumer.checkpoint_seconds),
            keeps_positions=settings.relay.owns_positions,
            clock=clock,
            outages=outages,
            filtering=filtering,
        )
        self._log = log_events(outages, filtering)
        self._telemetry = telemetry
        self._parts = parts
        self._scope = trio.CancelScope()
        self._consumer: OpensConsumer | None = None
        self._status = Status(identity(settings), self.health)
        self._source = StreamSource({**identity(settings), "stream": name}, self.health)
        self._actions = Actions(name, seek_refusal=_seek_refusal(settings))

    def status(self) -> dict[str, Any]:
        """Return the state of the stream, as JSON values."""
        return self._status()

    def view(self) -> StreamView:
        """Return what the page shows of the stream."""
        return self._source.view()

    async def perform(self, action: Action) -> None:
        """Perform an action on one of the shards. Raises ActionRefusedError."""
        await self._actions.perform(action)

    def drain(self, seconds: float | None = None) -> None:
        """Ask the shards to finish; what is not open yet is not opened. `seconds`: cut the drain short after these."""
        if self.is_stopping:
            return
        self.is_stopping = True
        self.health.start_draining()
        if self._consumer is None:
            self._scope.cancel()
            return
        if seconds is not None:
            self._scope.deadline = trio.current_time() + seconds
        self._consumer.drain()

    async def run(self) -> bool:
        """Relay until `drain`; return whether the drain was complete. Raises what ends the reading of the stream."""
        structlog.contextvars.bind_contextvars(stream=self.name)  # in this task and in those that it starts
        with collapse_groups(), self._scope:
            await self._relay()
        return not (self._scope.cancelled_caught and self._consumer is not None)

    async def _relay(self) -> None:
        settings, parts = self.settings, self._parts
        # What happens while the sink and the lease store open is reported too: a store that does not answer yet.
        reports = _Relayed(combine_observers(self._log, self.health, self._source))
        tracing = open_tracing(self._telemetry, settings.relay)
        async with (
            self._open_reader(reports, tracing) as (read, identifies),
            parts.open_kinesis(settings.kinesis) as kinesis,
            parts.open_leases(settings, self._telemetry.meter_provider) as leases,
            open_metrics(settings) as cloudwatch,
        ):
            instruments = _metrics(settings, self._telemetry, kinesis)
            reported = combine_observers(self._log, self._source)
            if self.is_retried:
                reported = HeldBack(reported, self.reading.set)
            reports.observer = observer = combine_observers(self.health, reported, instruments, cloudwatch, identifies)
            opening = parts.open_consumer(
                kinesis,
                application=settings.consumer.application,
                leases=leases,
                worker_id=settings.leases.worker_id,
                settings=consumer_settings(settings),
                on_service_error=settings.consumer.on_service_error,
                observer=observer,
                tracing=tracing,
            )
            async with opening as consumer:
                self._status.consumer = self._consumer = consumer
                self._source.consumer = self._actions.consumer = consumer
                await consumer.run(read)

    @asynccontextmanager
    async def _open_reader(
        self, observer: Observer, tracing: OtelTracing
    ) -> AsyncIterator[tuple[ShardReader, Observer]]:
        """Open what reads the shards; with it an observer for what it wants to know."""
        settings, parts, meters = self.settings, self._parts, self._telemetry.meter_provider
        if parts.open_reader is not None:
            stop = partial(self.drain, settings.service.drain_seconds)
            async with parts.open_reader(settings, meters, stop) as read:
                yield read, ignore_events
        else:
            tracer = tracer_of(tracing.tracer_provider)
            async with parts.open_sink(settings, observer, meters, tracer) as destination:
                self.health.of_sink = partial(_problems_of, destination)
                yield _reader(settings, destination, tracing, parts.room), _Identifies(destination)


def _problems_of(destination: Destination) -> tuple[str, ...]:
    dead_letters = () if destination.dead_letters is None else destination.dead_letters.problems()
    return (*destination.problems(), *dead_letters)


def names(settings: Settings) -> dict[str, str]:
    """Return the names of a stream that all workers share, for /status."""
    return {
        "stream": settings.kinesis.stream_name,
        "application": settings.consumer.application,
        "consumer": settings.consumer.fan_out_consumer,
        "topic": settings.topic,
    }


def identity(settings: Settings) -> dict[str, str]:
    """Return the names of a stream in this worker."""
    return {**names(settings), "worker_id": settings.leases.worker_id or ""}


def _seek_refusal(settings: Settings) -> str | None:
    """Return why no shard may be sought (rule R12): its records would come twice or not at all, in silence."""
    if not settings.relay.owns_positions:
        return None
    return (
        f'the sink "{settings.relay.sink}" keeps the position of each shard, exactly once, and that wins over any seek '
        "(rule R12): stop the service, and read into another topic to read records again"
    )


class _Relayed:
    """Passes events to `observer`, which is replaced when there are metrics: they need the open client."""

    def __init__(self, observer: Observer) -> None:
        self.observer = observer

    def __call__(self, event: Event) -> None:
        self.observer(event)


class _Identifies:
    """Tells the sinks which stream they are of, as soon as that is known: before the first shard is read."""

    def __init__(self, destination: Destination) -> None:
        self._destination = destination

    def observes(self, event_type: type) -> bool:
        """Whether an event of this type tells it."""
        return event_type is StreamIdentified

    def __call__(self, event: Event) -> None:
        if isinstance(event, StreamIdentified):
            self._destination.identify(event.created_at)


def _reader(settings: Settings, destination: Destination, tracing: OtelTracing, room: Room) -> ShardReader:
    """Return the function that relays one shard."""
    relay = settings.relay
    read = partial(
        relay_shard,
        destination=destination,
        commit_records=relay.commit_records,
        commit_bytes=relay.commit_bytes,
        pace=CommitPace(relay.commit_interval),
        room=room,
        spans=open_spans(
            tracing,
            stream=settings.kinesis.stream_name,
            application=settings.consumer.application,
            consumer=settings.consumer.fan_out_consumer,
            server_address=None,
        ),
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
        consumer=settings.consumer.fan_out_consumer,
        server_address=kinesis.authority,
        meter_provider=telemetry.meter_provider,
        max_shards=None,  # its observable instruments forget
    )
