"""The embedded log on an object store, from the configuration."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Final

import structlog
import trio
from opentelemetry.metrics import MeterProvider

from efo_service.config.settings import Settings
from efo_service.factories.log import maintained
from efo_service.log.catalog import check_topic_name
from efo_service.log.consistency import check_topic
from efo_service.log.objects import keys
from efo_service.log.objects.files import ObjectFiles
from efo_service.log.sink import LogSink
from efo_service.object_store.measured import MeasuredStore
from efo_service.object_store.probe import StoreProbe, probe
from efo_service.object_store.remote import open_store
from efo_service.object_store.repeating import RepeatingStore
from efo_service.object_store.store import Store
from efo_service.object_store.url import StoreUrl
from efo_service.relay import doubt
from efo_service.relay.destination import Destination, SinkReports, SinkRetries, repeated
from efo_service.relay.mapping import Extractor

RETRIES: Final = SinkRetries(initial=0.2, limit=20.0, jitter=0.5, isolates=False, doubt=doubt.SECONDS)
"""A store that does not answer, or asks to come back later; and a log that looks damaged, in one answer of many."""
_INTERVAL: Final = 5.0
"""Seconds between two tries to reach a store at the start."""


@asynccontextmanager
async def open_object_log(
    settings: Settings, topic: str, extract: Extractor | None, reports: SinkReports, meter_provider: MeterProvider
) -> AsyncIterator[Destination]:
    """Open a topic of the log as a destination, after a probe of its store, and run its maintenance.

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
    files = ObjectFiles(store)
    checking = partial(_check, store, files, url, topic, settings.kinesis.stream_name)
    retries = replace(RETRIES, seconds=settings.relay.longest_retry)
    at_start = replace(retries, initial=_INTERVAL, limit=_INTERVAL, jitter=0.0)
    found = await repeated(partial(trio.to_thread.run_sync, checking), at_start, reports)
    if found.keeps_versions:
        structlog.get_logger().warning(
            "bucket_keeps_versions",
            message=f"the bucket of {url} is versioned: what compaction and retention remove stays, and costs, until a"
            " lifecycle rule of the bucket expires noncurrent versions (docs/log.md)",
        )
    async with maintained(files, topic, settings.relay, meter_provider) as state:
        sink = LogSink(files, topic, extract=extract)
        yield Destination(sink, retries, reports, problems=state.problems)


def _check(store: Store, files: ObjectFiles, url: StoreUrl, topic: str, stream: str) -> StoreProbe:
    found = probe(store, keys.PROBES, has_generations=url.scheme == "gs")
    check_topic(files, topic, stream)
    return found
