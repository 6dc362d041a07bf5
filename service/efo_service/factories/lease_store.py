"""The lease store, from the configuration."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import trio
from opentelemetry.metrics import MeterProvider

from efo.arn import parse_stream
from efo.errors import EfoError, LeaseStoreUnavailableError, MissingExtraError
from efo.leases.opening import make_lease_store
from efo.leases.store import Inspectable, Inspection, LeaseStore
from efo.leases.stores.sqlite.store import SqliteLeaseStore
from efo.retrying import retry
from efo.telemetry.outages import Outage
from efo_service.config.section import proxy_text
from efo_service.config.settings import Settings
from efo_service.errors import NoLeaseStoreError, UnavailableError, UsageError
from efo_service.object_leases.store import ObjectLeaseStore
from efo_service.object_store.measured import MeasuredStore
from efo_service.object_store.remote import TIMEOUT, open_store
from efo_service.object_store.store import Store
from efo_service.object_store.url import StoreUrl
from efo_service.relay.doubt import SECONDS
from efo_service.telemetry.logs import log_outage

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider

    from efo.leases.stores.dynamodb.store import DynamoDbLeaseStore
    from efo.leases.stores.postgres.store import PostgresLeaseStore
    from efo.leases.stores.redis.store import RedisLeaseStore

_PAUSE: Final = 1.0
START_SECONDS: Final = 30.0
"""How long a server that is unavailable at the start is waited for."""
"""Seconds between two attempts to reach a server."""
_DYNAMODB_TIMEOUT: Final = 2.0
"""Time-out of a call to DynamoDB, which makes up to three attempts. For others: `LeaseSettings.call_timeout`."""

_Opening = AbstractAsyncContextManager[LeaseStore]


@asynccontextmanager
async def open_leases(settings: Settings, meter_provider: MeterProvider | None = None) -> AsyncIterator[LeaseStore]:
    """Open the store of [leases], and wait for its server if it has one.

    `meter_provider`: counts the requests to an object store.

    Raises LeaseError, ConfigurationError, and UnavailableError if a directory or a driver is missing.
    """
    leases = settings.leases
    async with AsyncExitStack() as stack:
        match leases.store:
            case "sqlite":
                _make_directory(leases.path)
                yield await stack.enter_async_context(_sqlite(settings))
            case "dynamodb":
                yield await _retry_until_open(stack, lambda: _dynamodb(settings), START_SECONDS)
            case "postgres" | "redis":
                yield await _retry_until_open(stack, lambda: _server(settings), START_SECONDS)
            case "log":
                opening = partial(open_leases_beside_log, settings, meter_provider)
                yield await _retry_until_open(stack, opening, START_SECONDS)


@asynccontextmanager
async def open_existing_leases(
    settings: Settings, url: str | None = None, *, creates: bool = False
) -> AsyncIterator[LeaseStore]:
    """Open a lease store that exists: a command that only looks must not make one in another directory.

    `url`: the store as the library takes it, instead of [leases]. `creates`: open it even if it is missing. Raises
    NoLeaseStoreError if the store does not exist, and what `open_leases` raises.
    """
    found = inspectable_leases(settings) if url is None else _by_url(settings, url)
    if not (creates or (await found.inspect()).exists):
        raise NoLeaseStoreError(
            f"there is no lease store: {name_of_store(settings, url)} does not exist: name the configuration"
            " (--config) or the store (--leases) of the workers"
        )
    async with open_leases(settings) if url is None else _by_url(settings, url) as store:
        yield store


def name_of_store(settings: Settings, url: str | None = None) -> str:
    """Return a lease store's place, as an operator knows it: the absolute path of a file, or a server without secrets.

    `url`: the store as the library takes it, instead of [leases].
    """
    leases = settings.leases
    if url is not None:
        store = _by_url(settings, url)
        return str(store.path.absolute()) if isinstance(store, SqliteLeaseStore) else url.partition(":")[0]
    match leases.store:
        case "sqlite":
            return str(leases.path)
        case "dynamodb":
            return f"DynamoDB's table {leases.dynamodb.table or settings.consumer.application}"
        case "log":
            return f"the document beside the log {settings.relay.directory}"
        case store:
            return f"the {store} server of [leases] url"


def _by_url(settings: Settings, url: str) -> Any:
    kinesis = settings.kinesis
    region = kinesis.region or parse_stream(kinesis.stream)[1]
    store = make_lease_store(url, settings.consumer.application, kinesis.stream_name, region, kinesis.proxy)
    if not hasattr(store, "inspect"):
        raise UsageError("--leases memory: such leases are those of one process: nobody else sees them")
    return store


def inspectable_leases(settings: Settings) -> Inspectable:
    """Return the store of [leases], which is not open. Creates nothing. Raises ConfigurationError, UnavailableError."""
    match settings.leases.store:
        case "sqlite":
            return _sqlite(settings)
        case "dynamodb":
            return _dynamodb(settings)
        case "postgres" | "redis":
            return _server(settings)
        case "log":
            return LeasesBesideLog(settings)


def _make_directory(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnavailableError(f"cannot create the directory of [leases] path {path}: {error.strerror}") from error


def _sqlite(settings: Settings) -> SqliteLeaseStore:
    path = settings.leases.path
    mode = 0o666 & ~settings.service.umask
    return SqliteLeaseStore(path, settings.consumer.application, settings.kinesis.stream_name, mode=mode)


def _dynamodb(settings: Settings) -> DynamoDbLeaseStore:
    from efo.leases.stores.dynamodb.store import DynamoDbLeaseStore, NewTable  # noqa: PLC0415 - only if it is used

    kinesis, chosen = settings.kinesis, settings.leases.dynamodb
    new_table = NewTable(
        tags=chosen.tags,
        deletion_protection=chosen.deletion_protection,
        point_in_time_recovery=chosen.point_in_time_recovery,
        read_capacity=chosen.read_capacity,
        write_capacity=chosen.write_capacity,
    )
    return DynamoDbLeaseStore(
        chosen.table or settings.consumer.application,
        region=chosen.region or kinesis.region or parse_stream(kinesis.stream)[1],
        endpoint_url=chosen.endpoint_url,
        ca_file=str(chosen.ca_file) if chosen.ca_file else None,
        profile=chosen.profile or kinesis.profile,
        proxy_url=proxy_text(chosen.proxy_url, kinesis.proxy_url),
        timeout=min(_DYNAMODB_TIMEOUT, settings.leases.failover_seconds / 5),
        new_table=new_table if chosen.create_table else None,
        stream_id=chosen.stream_id,
        consistent_reads=chosen.consistent_reads,
        worker_metrics_table=chosen.worker_metrics_table,
    )


def _server(settings: Settings) -> PostgresLeaseStore | RedisLeaseStore:
    leases = settings.leases
    url = leases.url.get_secret_value() if leases.url else ""
    application, stream = settings.consumer.application, settings.kinesis.stream_name
    timeout = leases.call_timeout
    try:
        # Imported here because each needs a driver that may not be installed.
        if leases.store == "postgres":
            from efo.leases.stores.postgres.store import PostgresLeaseStore  # noqa: PLC0415 - as above

            return PostgresLeaseStore(url, application, stream, timeout=timeout)
        from efo.leases.stores.redis.store import RedisLeaseStore  # noqa: PLC0415 - as above

        return RedisLeaseStore(url, application, stream, timeout=timeout)
    except MissingExtraError as error:
        raise UnavailableError(f'[leases] store = "{leases.store}": {error}') from error


async def _retry_until_open(stack: AsyncExitStack, make: Callable[[], _Opening], seconds: float) -> LeaseStore:
    """Open a store, and retry while its server is starting. Raises LeaseStoreUnavailableError after `seconds`."""
    outage = Outage("lease_store")

    def failed(error: EfoError, _delay: float) -> None:
        for began in outage.failed("", trio.current_time(), error.error_type, str(error)):
            log_outage(began)

    try:
        store = await retry(
            lambda: stack.enter_async_context(make()), lambda: _PAUSE, seconds=seconds, on_failure=failed
        )
    except LeaseStoreUnavailableError as error:
        raise LeaseStoreUnavailableError(f"{error}: retried for {seconds:g} s") from error
    for ended in outage.succeeded("", trio.current_time()):
        log_outage(ended)
    return store


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
