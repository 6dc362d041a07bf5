"""How the service opens the components of a stream. Tests replace them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Final, Protocol

from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import Tracer

from efo.consumer.opening import open_consumer
from efo.consumer.shard_task import ShardReader
from efo.events import Observer
from efo.kinesis.client import KinesisClient
from efo.leases.store import LeaseStore
from efo.settings import ConsumerSettings, OnServiceError
from efo.telemetry.spans import OtelTracing
from efo_service.config.settings import KinesisSettings, Settings
from efo_service.factories.kinesis import open_stream
from efo_service.factories.lease_store import open_leases
from efo_service.factories.sinks import open_sink
from efo_service.relay.destination import Destination
from efo_service.relay.write_buffer import Room
from efo_service.web.live.actions import Acts
from efo_service.web.live.source import ShowsShards


class OpensConsumer(ShowsShards, Acts, Protocol):
    """The part of efo.consumer.consumer.Consumer that the service uses."""

    async def run(self, reader: ShardReader) -> None:
        """Read shards until `drain` is called."""
        ...

    def drain(self) -> None:
        """Ask the consumer to finish."""
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
        tracing: OtelTracing,
    ) -> AbstractAsyncContextManager[OpensConsumer]:
        """Open a consumer."""
        ...


OpenReader = Callable[[Settings, MeterProvider, Callable[[], None]], AbstractAsyncContextManager[ShardReader]]
"""Opens what reads the shards of a stream. The function asks the stream to drain, as after a failure that ends it."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The functions that open the components.

    `open_reader`: what reads the shards; None: the relay into the sink. `room`: for the write buffers of all streams of
    the process.
    """

    open_kinesis: Callable[[KinesisSettings], AbstractAsyncContextManager[KinesisClient]]
    open_leases: Callable[[Settings, MeterProvider], AbstractAsyncContextManager[LeaseStore]]
    open_sink: Callable[[Settings, Observer, MeterProvider, Tracer | None], AbstractAsyncContextManager[Destination]]
    open_consumer: OpenConsumer
    open_reader: OpenReader | None = None
    room: Room = field(default_factory=Room)


PARTS: Final = Parts(open_stream, open_leases, open_sink, open_consumer)
"""The components of the real service."""
