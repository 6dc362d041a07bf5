"""The lease store, from the configuration."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from efo.arn import parse_stream
from efo.errors import EfoError, LeaseStoreUnavailableError, MissingExtraError
from efo.leases.inspection import Inspectable
from efo.leases.store import LeaseStore
from efo.leases.stores.sqlite.store import SqliteLeaseStore
from efo.retrying import retry
from efo.telemetry.outages import Outage
from efo_service.config.dynamodb import tags_of
from efo_service.config.section import proxy_text
from efo_service.config.settings import Settings
from efo_service.errors import UnavailableError
from efo_service.telemetry.logs import log_outage

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider

    from efo.leases.stores.dynamodb.store import DynamoDbLeaseStore
    from efo.leases.stores.postgres.store import PostgresLeaseStore
    from efo.leases.stores.redis.store import RedisLeaseStore

_PAUSE: Final = 1.0
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
                yield await _retry_until_open(stack, lambda: _dynamodb(settings), leases.start_seconds)
            case "postgres" | "redis":
                yield await _retry_until_open(stack, lambda: _server(settings), leases.start_seconds)
            case "log":
                from efo_service.factories.object_leases import open_leases_beside_log  # noqa: PLC0415 - only if used

                opening = partial(open_leases_beside_log, settings, meter_provider)
                yield await _retry_until_open(stack, opening, leases.start_seconds)


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
            from efo_service.factories.object_leases import LeasesBesideLog  # noqa: PLC0415 - only if used

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
        tags=tags_of(chosen.tags),
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
        raise LeaseStoreUnavailableError(f"{error}: retried for {seconds:g} s, see [leases] start_seconds") from error
    for ended in outage.succeeded("", trio.current_time()):
        log_outage(ended)
    return store
