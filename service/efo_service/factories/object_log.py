"""The embedded log on an object store, from the configuration."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import structlog
import trio
from opentelemetry.metrics import MeterProvider

from efo_service.config.settings import Settings
from efo_service.factories.log import maintained, retention_rules
from efo_service.relay.doubt import Doubt
from efo_service.relay.errors import SinkError
from efo_service.relay.log.catalog import check_topic_name
from efo_service.relay.mapping import Extractor
from efo_service.relay.object_log import keys
from efo_service.relay.object_log.consistency import check_topic
from efo_service.relay.object_log.maintenance import Maintenance
from efo_service.relay.object_log.sink import ObjectLogSink
from efo_service.relay.object_store.measured import MeasuredStore
from efo_service.relay.object_store.probe import Probe, probe
from efo_service.relay.object_store.remote import open_store
from efo_service.relay.object_store.repeating import RepeatingStore
from efo_service.relay.object_store.store import Store
from efo_service.relay.object_store.url import StoreUrl
from efo_service.relay.retrying import OnRecovery, OnRetry
from efo_service.relay.sink import Sink

_INTERVAL = 5.0
"""Seconds between two tries to reach a store at the start."""


@asynccontextmanager
async def open_object_log(
    settings: Settings,
    topic: str,
    extract: Extractor | None,
    *,
    on_retry: OnRetry,
    on_recovery: OnRecovery,
    meter_provider: MeterProvider,
) -> AsyncIterator[Sink]:
    """Open a topic of the log as a sink, after a probe of its store, and run its maintenance.

    Raises StoreUnfitError if the store does not honour conditions, LogIncompleteError if a part of the log is gone,
    LogOwnerError if the topic belongs to another stream, StoreUnavailableError after `[relay] retry_seconds`,
    UnavailableError if obstore is not installed, StoreDeniedError, ConfigurationError and SinkError.
    """
    url = settings.relay.log_root
    if not isinstance(url, StoreUrl):
        raise TypeError(f"{url} is not on an object store")
    # It looks for credentials: in files, by processes and by requests.
    opened = await trio.to_thread.run_sync(open_store, url)
    store: Store = RepeatingStore(MeasuredStore(opened, meter_provider, check_topic_name(topic)))
    checking = partial(_check, store, url, topic, settings.kinesis.stream_name)
    found = await _waiting(checking, settings.relay.retry_seconds, on_retry, on_recovery)
    if found.keeps_versions:
        structlog.get_logger().warning(
            "bucket_keeps_versions",
            message=f"the bucket of {url} is versioned: what compaction and retention remove stays, and costs, until a"
            " lifecycle rule of the bucket expires noncurrent versions (docs/object-storage.md)",
        )
    maintenance = Maintenance(store, topic, retention_rules(settings.relay))
    async with maintained(maintenance.run, topic, settings.relay.maintenance_interval):
        yield ObjectLogSink(
            store,
            topic,
            retry_seconds=settings.relay.retry_seconds,
            extract=extract,
            on_retry=on_retry,
            on_recovery=on_recovery,
        )


def _check(store: Store, url: StoreUrl, topic: str, stream: str) -> Probe:
    found = probe(store, keys.PROBES, has_generations=url.scheme == "gs")
    check_topic(store, topic, stream)
    return found


async def _waiting(checking: partial[Probe], seconds: float, on_retry: OnRetry, on_recovery: OnRecovery) -> Probe:
    """Check until the store answers, and what is wrong has stayed so."""
    deadline, doubt = trio.current_time() + seconds, Doubt()
    has_failed = False
    while True:
        try:
            found = await trio.to_thread.run_sync(checking)
        except SinkError as error:
            now = trio.current_time()
            if doubt.is_final(error, now) or (error.retryable and now >= deadline):
                raise
            has_failed = True
            on_retry("", doubt.shown(error), _INTERVAL)
        else:
            if has_failed:
                on_recovery("")
            return found
        await trio.sleep(_INTERVAL)
