"""A worker of the application `app`, for tests of the consumer, and the read modes in which they run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import replace
from typing import Any

from efo.consumer.consumer import Consumer
from efo.consumer.opening import open_consumer
from efo.events import Observer, ignore_events
from efo.kinesis.client import KinesisClient
from efo.leases.store import LeaseStore
from efo.settings import ConsumerSettings, ReadMode

_read_mode: ReadMode = "fanout"


@contextmanager
def workers_read_by(mode: ReadMode) -> Iterator[None]:
    """Let all workers that are opened meanwhile have this read mode, unless their settings have another one."""
    global _read_mode  # noqa: PLW0603 - of the test that runs
    _read_mode = mode
    try:
        yield
    finally:
        _read_mode = "fanout"


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
    settings = ConsumerSettings() if settings is None else settings
    if settings.read_mode == "fanout" and settings.consumer_arn is None:
        settings = replace(settings, read_mode=_read_mode)
    return open_consumer(
        kinesis,
        application="app",
        leases=store,
        worker_id=worker_id,
        settings=settings,
        observer=observer,
        **options,
    )
