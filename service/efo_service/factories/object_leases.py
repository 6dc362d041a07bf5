"""The leases beside a log on an object store, from the configuration."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import trio
from opentelemetry.metrics import MeterProvider

from efo.leases.store import Inspection, LeaseStore
from efo_service.config.settings import Settings
from efo_service.object_leases.store import ObjectLeaseStore
from efo_service.object_store.measured import MeasuredStore
from efo_service.object_store.remote import TIMEOUT, open_store
from efo_service.object_store.store import Store
from efo_service.object_store.url import StoreUrl
from efo_service.relay.doubt import SECONDS


@asynccontextmanager
async def open_leases_beside_log(settings: Settings, meter_provider: MeterProvider | None) -> AsyncIterator[LeaseStore]:
    """Open the leases beside the log. `meter_provider`: counts requests, as those of the log.

    Raises LeaseStoreUnavailableError, LeaseStoreCorruptError, ConfigurationError, and UnavailableError if obstore is
    not installed.
    """
    store: Store = await _store(settings)
    if meter_provider is not None:
        store = MeasuredStore(store, meter_provider, settings.topic)
    async with _leases(settings, store, doubt=SECONDS) as leases:
        yield leases


class LeasesBesideLog:
    """The leases beside the log, which are not open: for `efo_service.factories.lease_store.inspectable_leases`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def inspect(self) -> Inspection:
        """Look at the document. Raises what opening it raises."""
        return await _leases(self._settings, await _store(self._settings)).inspect()


async def _store(settings: Settings) -> Store:
    """Return the store of the log. A request of it that hangs ends in time, so that its thread is free for others."""
    url = settings.relay.log_root
    if not isinstance(url, StoreUrl):
        raise TypeError(f"{url} is not on an object store")
    seconds = min(settings.leases.call_timeout, float(url.options.get("timeout_seconds", TIMEOUT)))
    # It looks for credentials: in files, by processes and by requests.
    return await trio.to_thread.run_sync(open_store, replace(url, options={**url.options, "timeout_seconds": seconds}))


def _leases(settings: Settings, store: Store, doubt: float = 0.0) -> ObjectLeaseStore:
    application, stream = settings.consumer.application, settings.kinesis.stream_name
    return ObjectLeaseStore(store, application, stream, timeout=settings.leases.call_timeout, doubt=doubt)
