"""Every lease store, as two workers reach it. One that adds itself to STORES has to pass test_conformance.py."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from efo.leases.store import LeaseStore
from efo.leases.stores.dynamodb.store import DynamoDbLeaseStore
from efo.leases.stores.memory import MemoryLeaseStore
from efo.leases.stores.postgres.store import PostgresLeaseStore
from efo.leases.stores.redis import RedisLeaseStore
from efo.leases.stores.sqlite.store import SqliteLeaseStore
from proofs.local_servers.dynamodb import credentials, serve_dynamodb_local, serve_ministack
from proofs.local_servers.postgres import serve_postgres
from proofs.local_servers.redis import serve_redis
from proofs.local_servers.running import Serve

PATIENCE = 60.0
"""Seconds that a call to a server may take: long, for a machine that has much else to do."""


@dataclass(frozen=True)
class Kind:
    """One kind of store.

    `open`: two ways to the same leases, which nobody else has; called with a directory of its own and, if it
    needs a server, with that server's URL.
    `serve`: starts the server; tests are skipped by name where it is not installed.
    """

    open: Callable[..., AbstractAsyncContextManager[tuple[LeaseStore, LeaseStore]]]
    serve: Serve | None = None


@asynccontextmanager
async def memory(_path):
    store = MemoryLeaseStore()
    yield store, store


@asynccontextmanager
async def sqlite(path):
    async with (
        SqliteLeaseStore(path / "leases.db", "app", "stream") as one,
        SqliteLeaseStore(path / "leases.db", "app", "stream") as other,
    ):
        yield one, other


@asynccontextmanager
async def postgres(path, url):
    async with (
        PostgresLeaseStore(url, str(path), "stream", timeout=PATIENCE) as one,
        PostgresLeaseStore(url, str(path), "stream", timeout=PATIENCE) as other,
    ):
        yield one, other


@asynccontextmanager
async def redis(path, url):
    async with (
        RedisLeaseStore(url, str(path), "stream", timeout=PATIENCE) as one,
        RedisLeaseStore(url, str(path), "stream", timeout=PATIENCE) as other,
    ):
        yield one, other


@asynccontextmanager
async def dynamodb(path, url, **options):
    table = f"leases-{path.name[:200]}"
    with credentials():
        one = DynamoDbLeaseStore(table, endpoint_url=url, timeout=PATIENCE, **options)
        other = DynamoDbLeaseStore(table, endpoint_url=url, timeout=PATIENCE, **options)
        async with one, other:
            yield one, other


many_streams = partial(dynamodb, stream_id="123456789012:orders:1700000000")
"""The same where the table has leases of many streams, as of KCL's multi-stream applications."""


STORES = {
    "memory": Kind(memory),
    "sqlite": Kind(sqlite),
    "dynamodb-local": Kind(dynamodb, serve_dynamodb_local),
    "ministack": Kind(many_streams, serve_ministack),
    "postgres": Kind(postgres, serve_postgres),
    "redis": Kind(redis, serve_redis),
}
