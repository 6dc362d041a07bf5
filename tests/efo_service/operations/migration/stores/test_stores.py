"""Rows in real servers: read whole, replaced only as they were read, and no password in any message."""

import threading
from contextlib import closing
from functools import partial
from itertools import count
from urllib.parse import urlsplit

import botocore.session
import psycopg
import pymysql
import pytest
import redis

from efo.errors import ConfigurationError, LeaseStoreUnavailableError
from efo_service.errors import UnavailableError
from efo_service.operations.migration.harlow import HarlowColumns, HarlowKeys, HarlowTable
from efo_service.operations.migration.layout import Scope, read_rows
from efo_service.operations.migration.stores import sql
from efo_service.operations.migration.stores.opening import Defaults, open_rows
from efo_service.operations.migration.stores.rows import RowChangedError
from proofs.local_servers.dynamodb import credentials, serve_dynamodb_local
from proofs.local_servers.mariadb import PASSWORD, serve_mariadb
from proofs.local_servers.postgres import serve_postgres
from proofs.local_servers.redis import serve_redis

SCOPE = Scope("billing", "orders")
SHARDS = [f"shardId-00000000000{number}" for number in range(3)]
TABLES = (f"checkpoints{number}" for number in count())
NUMBER = "49590338271490256608559692538361571095921575989136588898"
COLUMNS = "namespace VARCHAR(255) NOT NULL, shard_id VARCHAR(255) NOT NULL, sequence_number NUMERIC({}) NOT NULL"


@pytest.fixture
def table():
    return next(TABLES)


def dynamodb(servers, table):
    url = servers.url(serve_dynamodb_local)
    client = botocore.session.get_session().create_client("dynamodb", region_name="us-east-1", endpoint_url=url)
    keys = {"namespace": "HASH", "shard_id": "RANGE"}
    with closing(client):
        client.create_table(
            TableName=table,
            KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in keys.items()],
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in keys],
            BillingMode="PAY_PER_REQUEST",
        )
    return f"dynamodb:{table}?endpoint_url={url}", HarlowTable()


def redis_keys(servers, _table):
    url = servers.url(serve_redis)
    with redis.Redis.from_url(url) as client:
        client.flushdb()
        client.hset("billing:checkpoint:orders:a hash", "a", "b")
        client.set("billing:checkpoint:orders2:shardId-000000000009", "5")
    return url, HarlowKeys()


def postgres(servers, table):
    url = servers.url(serve_postgres)
    with psycopg.connect(url) as connection:
        connection.execute(f"CREATE TABLE {table} ({COLUMNS.format('65')}, PRIMARY KEY (namespace, shard_id))")
    return url, HarlowColumns()


def mysql(servers, table):
    url = servers.url(serve_mariadb)
    port = int(url.rpartition(":")[2].partition("/")[0])
    connection = pymysql.connect(host="127.0.0.1", port=port, user="efo", password=PASSWORD, database="checkpoints")
    with closing(connection), connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {table} ({COLUMNS.format('65,0')}, PRIMARY KEY (namespace, shard_id))")
    return url, HarlowColumns()


SERVERS = [dynamodb, redis_keys, postgres, mysql]
TRANSACTIONAL = pytest.mark.parametrize("place", [redis_keys, postgres, mysql], indirect=True)
WITH_TABLES = pytest.mark.parametrize("place", [dynamodb, postgres, mysql], indirect=True)


@pytest.fixture(params=SERVERS, ids=lambda server: server.__name__)
def place(request, servers, table):
    """Return the URL of an empty store, and the layout of its rows."""
    with credentials():
        yield request.param(servers, table)


def row_of(layout, shard, number):
    match layout:
        case HarlowTable():
            values = {"namespace": "billing-orders", "shard_id": shard, "sequence_number": number}
            return {name: {"S": value} for name, value in values.items()}
        case HarlowKeys():
            return {"key": f"billing:checkpoint:orders:{shard}", "value": number}
        case _:
            return {"namespace": "billing-orders", "shard_id": shard, "sequence_number": number}


async def test_rows_are_written_and_read_with_every_digit(place, table):
    url, layout = place
    async with open_rows(url, Defaults(table, "us-east-1")) as store:
        assert await store.rows(layout.selection(SCOPE)) == []
        await store.replace_rows([(row_of(layout, shard, NUMBER), None) for shard in SHARDS])
        rows = await store.rows(layout.selection(SCOPE))
        found = sorted((layout.read(row, SCOPE) for row in rows), key=lambda found: found.shard_id)
    assert [(one.shard_id, str(one.checkpoint)) for one in found] == [(shard, NUMBER) for shard in SHARDS]


async def test_a_row_is_replaced_only_if_it_is_as_it_was_read(place, table):
    url, layout = place
    first, second = SHARDS[:2]
    async with open_rows(url, Defaults(table, "us-east-1")) as store:
        await store.replace_rows([(row_of(layout, first, "5"), None)])
        [old] = await store.rows(layout.selection(SCOPE))
        await store.replace_rows([(row_of(layout, first, "6"), old)])
        for stale in (old, None):
            with pytest.raises(RowChangedError, match=r"stop the application that writes it") as error:
                await store.replace_rows([(row_of(layout, second, "9"), None), (row_of(layout, first, "7"), stale)][1:])
            assert PASSWORD not in str(error.value)
        [row] = await store.rows(layout.selection(SCOPE))
    assert str(layout.read(row, SCOPE).checkpoint) == "6"


@TRANSACTIONAL
async def test_a_store_with_transactions_writes_all_rows_or_none(place, table):
    url, layout = place
    first, second = SHARDS[:2]
    async with open_rows(url, Defaults(table)) as store:
        await store.replace_rows([(row_of(layout, first, "5"), None)])
        with pytest.raises(RowChangedError):
            await store.replace_rows([(row_of(layout, second, "9"), None), (row_of(layout, first, "7"), None)])
        assert len(await store.rows(layout.selection(SCOPE))) == 1


async def test_to_write_no_rows_is_not_an_error(place, table):
    url, layout = place
    async with open_rows(url, Defaults(table, "us-east-1")) as store:
        await store.replace_rows([])
        assert await store.rows(layout.selection(SCOPE)) == []


async def test_a_key_that_redis_scans_twice_is_one_row_and_bytes_are_refused(servers, monkeypatch):
    url, layout = redis_keys(servers, None)
    key = f"billing:checkpoint:orders:{SHARDS[0]}"
    with redis.Redis.from_url(url) as client:
        client.set(key, b"\xff\xfe")
    monkeypatch.setattr(redis.Redis, "scan_iter", lambda _client, **_options: iter([key, key]))
    async with open_rows(url, Defaults("")) as store:
        snapshot = read_rows(await store.rows(layout.selection(SCOPE)), layout, SCOPE)
    assert list(snapshot.unreadable) == [key]
    assert snapshot.problems == ()


async def test_a_scan_reads_all_pages(servers, table):
    with credentials():
        url, layout = dynamodb(servers, table)
        rows = [row_of(layout, f"shardId-{number:012}", "5" * 120) for number in range(40)]
        filler = {"filler": {"S": "x" * 40_000}}
        async with open_rows(url, Defaults(table, "us-east-1")) as store:
            await store.replace_rows([(row | filler, None) for row in rows])
            assert len(await store.rows("")) == 40


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("redis://:secret-word@127.0.0.1:1/0", UnavailableError),
        ("postgresql://efo:secret-word@127.0.0.1:1/x", UnavailableError),
        ("mysql://efo:secret-word@127.0.0.1:1/x", UnavailableError),
        ("mysql://efo:secret-word@127.0.0.1:port/x", ConfigurationError),
        ("mysql://efo:secret-word@127.0.0.1/x?charset=utf8", ConfigurationError),
        ("mysql://efo:12/secret-word@127.0.0.1/x", ConfigurationError),
        ("postgresql://efo:12/secret-word@127.0.0.1/x", ConfigurationError),
        ("postgresql://efo:%secret-word@127.0.0.1/x", ConfigurationError),
        ("redis://:secret-word@127.0.0.1:port/0", ConfigurationError),
        ("http://secret-word", ConfigurationError),
        ("dynamodb:", ConfigurationError),
        ("dynamodb:billing?table=secret-word", ConfigurationError),
        ("dynamodb:billing?endpoint_url=http://127.0.0.1:1", LeaseStoreUnavailableError),
    ],
)
async def test_a_wrong_url_is_one_error_without_the_password(url, error):
    with credentials(), pytest.raises(error) as raised:
        async with open_rows(url, Defaults("checkpoints", "us-east-1")) as store:
            await store.rows("x")
    if "table=" not in url:
        assert "secret-word" not in str(raised.value)


def lock(url, table):
    """Lock a table, and return the connection that holds the lock."""
    if url.startswith("postgresql"):
        connection = psycopg.connect(url)
        connection.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        return connection
    parts = urlsplit(url)
    connection = pymysql.connect(
        host=parts.hostname, port=parts.port, user="efo", password=PASSWORD, database="checkpoints"
    )
    with connection.cursor() as cursor:
        cursor.execute(f"LOCK TABLES {table} WRITE")
    return connection


@pytest.mark.parametrize("place", [postgres, mysql], indirect=True)
async def test_a_table_that_another_session_locks_is_one_clear_error_in_time(place, table, monkeypatch):
    url, layout = place
    monkeypatch.setattr(sql, "_TIMEOUT", 1)
    row = row_of(layout, SHARDS[0], "5")
    async with open_rows(url, Defaults(table)) as store:
        with closing(lock(url, table)):
            for work in (partial(store.rows, layout.selection(SCOPE)), partial(store.replace_rows, [(row, None)])):
                with pytest.raises(UnavailableError, match=r"no result within 1 s: end what locks the table") as error:
                    await work()
                assert PASSWORD not in str(error.value)
        await store.replace_rows([(row, None)])


async def test_a_row_that_another_transaction_writes_is_one_clear_error_in_time(servers, table, monkeypatch):
    url, layout = mysql(servers, table)
    monkeypatch.setattr(sql, "_TIMEOUT", 1)
    row = row_of(layout, SHARDS[0], "5")
    parts = urlsplit(url)
    async with open_rows(url, Defaults(table)) as store:
        await store.replace_rows([(row, None)])
        other = pymysql.connect(
            host=parts.hostname, port=parts.port, user="efo", password=PASSWORD, database="checkpoints"
        )
        with closing(other), other.cursor() as cursor:
            cursor.execute(f"UPDATE {table} SET sequence_number = 7")  # noqa: S608 - a test
            with pytest.raises(UnavailableError, match=r"no result within 1 s"):
                await store.replace_rows([(row_of(layout, SHARDS[0], "6"), row)])


async def test_a_server_that_never_responds_is_one_error(autojump_clock):
    """Its thread is left behind: virtual time passes while it waits."""
    released = threading.Event()
    store = sql.SqlRows("MySQL x", "t", pymysql, released.wait, lambda _error: False)
    try:
        for work, seconds in ((partial(store.rows, "x"), 30), (partial(store.replace_rows, [({}, None)] * 50), 35)):
            with pytest.raises(UnavailableError, match=f"no response within {seconds} s"):
                await work()
    finally:
        released.set()


@WITH_TABLES
async def test_a_missing_table_is_one_error(place):
    url, layout = place
    url = url.replace("dynamodb:", "dynamodb:missing-")
    with pytest.raises(UnavailableError, match="missing"):
        async with open_rows(url, Defaults("missing_table", "us-east-1")) as store:
            await store.rows(layout.selection(SCOPE))


async def test_a_table_name_is_not_sql():
    with pytest.raises(ConfigurationError, match="--table"):
        async with open_rows("mysql://127.0.0.1/x", Defaults("a; DROP TABLE b")):
            pass
