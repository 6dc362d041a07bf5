"""All lease stores, opened for two workers. Every store in STORES must pass test_conformance.py."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from unittest import mock

import pytest
import trio

from efo.errors import LeaseLostError
from efo.leases.store import LeaseStore
from efo.leases.stores.dynamodb.store import DynamoDbLeaseStore
from efo.leases.stores.key_value import KeyValueLeaseStore
from efo.leases.stores.memory import MemoryLeaseStore
from efo.leases.stores.postgres.store import PostgresLeaseStore
from efo.leases.stores.redis.store import RedisLeaseStore
from efo.leases.stores.sqlite.store import SqliteLeaseStore
from efo.model import Checkpoint, Lease
from efo_service.object_leases.store import ObjectLeaseStore
from efo_service.object_store.memory import MemoryStore
from efo_service.object_store.remote import open_store
from efo_service.object_store.url import parse_url
from proofs.local_servers.dynamodb import credentials, serve_dynamodb_local, serve_ministack
from proofs.local_servers.object_stores import BUCKET, ENVIRONMENT, running, serve_azurite, serve_versitygw
from proofs.local_servers.postgres import serve_postgres
from proofs.local_servers.redis import serve_redis
from proofs.local_servers.running import Serve

CALL_TIMEOUT = 60.0
"""Maximum seconds per call to a server. Long, for a heavily loaded machine."""


@dataclass(frozen=True)
class StoreKind:
    """One kind of lease store.

    `open`: opens two stores on the same, new set of leases. Called with an empty directory and, if `serve` is given,
    with the URL of the server.
    `serve`: starts the server. Tests are skipped if it is not installed.
    """

    open: Callable[..., AbstractAsyncContextManager[tuple[LeaseStore, LeaseStore]]]
    serve: Serve | None = None


@asynccontextmanager
async def memory(_path):
    store = MemoryLeaseStore()
    yield store, store


class KeyValueStore(KeyValueLeaseStore):
    """A store of an application: rows in a dictionary."""

    def __init__(self, rows) -> None:
        super().__init__()
        self.rows = rows

    async def read_rows(self):
        await trio.lowlevel.checkpoint()
        return dict(self.rows)

    async def replace_row(self, key, old, new):
        await trio.lowlevel.checkpoint()
        if self.rows.get(key) != old:
            return False
        self.rows[key] = new
        if new is None:
            del self.rows[key]
        return True


@asynccontextmanager
async def key_value(_path):
    rows = {}
    yield KeyValueStore(rows), KeyValueStore(rows)


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
        PostgresLeaseStore(url, str(path), "stream", timeout=CALL_TIMEOUT) as one,
        PostgresLeaseStore(url, str(path), "stream", timeout=CALL_TIMEOUT) as other,
    ):
        yield one, other


@asynccontextmanager
async def redis(path, url):
    async with (
        RedisLeaseStore(url, str(path), "stream", timeout=CALL_TIMEOUT) as one,
        RedisLeaseStore(url, str(path), "stream", timeout=CALL_TIMEOUT) as other,
    ):
        yield one, other


@asynccontextmanager
async def dynamodb(path, url, **options):
    table = f"leases-{path.name[:200]}"
    with credentials():
        one = DynamoDbLeaseStore(table, endpoint_url=url, timeout=CALL_TIMEOUT, **options)
        other = DynamoDbLeaseStore(table, endpoint_url=url, timeout=CALL_TIMEOUT, **options)
        async with one, other:
            yield one, other


many_streams = partial(dynamodb, stream_id="123456789012:orders:1700000000")
"""DynamoDB with the lease table of a KCL multi-stream application."""


@asynccontextmanager
async def objects_in_memory(_path):
    objects = MemoryStore()
    async with (
        ObjectLeaseStore(objects.client(), "app", "stream", timeout=CALL_TIMEOUT) as one,
        ObjectLeaseStore(objects.client(), "app", "stream", timeout=CALL_TIMEOUT) as other,
    ):
        yield one, other


@asynccontextmanager
async def objects(_path, text):
    server = running(text)
    url = parse_url(f"{server.scheme}://{BUCKET}/{uuid.uuid4().hex}/log", server.options())
    with mock.patch.dict("os.environ", ENVIRONMENT):
        async with (
            ObjectLeaseStore(open_store(url), "app", "stream", timeout=CALL_TIMEOUT) as one,
            ObjectLeaseStore(open_store(url), "app", "stream", timeout=CALL_TIMEOUT) as other,
        ):
            yield one, other


STORES = {
    "memory": StoreKind(memory),
    "key-value": StoreKind(key_value),
    "sqlite": StoreKind(sqlite),
    "dynamodb-local": StoreKind(dynamodb, serve_dynamodb_local),
    "ministack": StoreKind(many_streams, serve_ministack),
    "postgres": StoreKind(postgres, serve_postgres),
    "redis": StoreKind(redis, serve_redis),
    "objects-in-memory": StoreKind(objects_in_memory),
    "versitygw": StoreKind(objects, serve_versitygw),
    "azurite": StoreKind(objects, serve_azurite),
}


async def check_leases_persist(open_store):
    """Check that leases are there after a store was closed. `open_store`: opens one on the same leases each time."""
    async with open_store() as store:
        await store.create(Lease("s", Checkpoint.LATEST))
    async with open_store() as store:
        assert await store.list() == [Lease("s", Checkpoint.LATEST)]


async def check_leases_are_separate(open_store, other_application="other"):
    """Check that applications and streams in one file or server have leases of their own."""
    async with (
        open_store() as store,
        open_store(application=other_application) as application,
        open_store(stream="other") as stream,
    ):
        assert await store.create(Lease("s", Checkpoint.LATEST))
        assert await application.create(Lease("s", Checkpoint.TRIM_HORIZON))
        await stream.delete("s")
        with pytest.raises(LeaseLostError):
            await stream.take(Lease("s", Checkpoint.LATEST), "ann")
        assert await store.list() == [Lease("s", Checkpoint.LATEST)]
        assert await application.list() == [Lease("s", Checkpoint.TRIM_HORIZON)]
        assert await stream.list() == []
