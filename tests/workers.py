"""A worker of the application `app`, for tests of the consumer."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

from efo.consumer.consumer import Consumer
from efo.consumer.opening import open_consumer
from efo.events import Observer, ignore_events
from efo.kinesis.client import KinesisClient
from efo.leases.store import LeaseStore
from efo.settings import ConsumerSettings


def open_worker(
    kinesis: KinesisClient,
    store: LeaseStore,
    settings: ConsumerSettings | None = None,
    observer: Observer = ignore_events,
    *,
    worker_id: str = "worker",
    **options: Any,
) -> AbstractAsyncContextManager[Consumer]:
    """Open a consumer of the application `app`."""
    return open_consumer(
        kinesis,
        application="app",
        leases=store,
        worker_id=worker_id,
        settings=settings,
        observer=observer,
        **options,
    )
