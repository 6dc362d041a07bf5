"""Lease stores from paths, URLs and stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from efo.errors import ConfigurationError
from efo.leases.opening import make_lease_store, open_lease_store, relative_file
from efo.leases.stores.dynamodb.store import DynamoDbLeaseStore
from efo.leases.stores.memory import MemoryLeaseStore
from efo.leases.stores.postgres.store import PostgresLeaseStore
from efo.leases.stores.redis.store import RedisLeaseStore
from efo.leases.stores.sqlite.store import SqliteLeaseStore
from efo.model import Checkpoint, Lease

LEASE = Lease("shardId-000000000000", Checkpoint.TRIM_HORIZON)


@pytest.mark.parametrize(
    ("leases", "kind"),
    [
        ("leases.sqlite", SqliteLeaseStore),
        (Path("redis:leases"), SqliteLeaseStore),
        ("sqlite:leases.sqlite", SqliteLeaseStore),
        ("memory:", MemoryLeaseStore),
        ("postgresql://user:secret@127.0.0.1/leases", PostgresLeaseStore),
        ("postgres://127.0.0.1/leases", PostgresLeaseStore),
        ("redis://127.0.0.1:6379/0", RedisLeaseStore),
        ("rediss://127.0.0.1:6379/0", RedisLeaseStore),
        ("dynamodb:", DynamoDbLeaseStore),
        ("dynamodb:billing", DynamoDbLeaseStore),
        ("dynamodb://billing?region=eu-west-1&endpoint_url=http://127.0.0.1:8000", DynamoDbLeaseStore),
    ],
)
def test_a_path_or_url_makes_a_store(leases, kind):
    assert type(make_lease_store(leases, "app", "orders")) is kind


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:var/leases.sqlite", "var/leases.sqlite"),
        ("sqlite:/var/leases.sqlite", "/var/leases.sqlite"),
        ("sqlite:///var/leases.sqlite", "var/leases.sqlite"),
        ("sqlite:////var/leases.sqlite", "/var/leases.sqlite"),
        ("sqlite:my%20leases.sqlite", "my leases.sqlite"),
        ("leases.sqlite", "leases.sqlite"),
    ],
)
def test_the_path_of_an_sqlite_url(url, path):
    store = make_lease_store(url, "app", "orders")
    assert isinstance(store, SqliteLeaseStore)
    assert store._path == Path(path)


@pytest.mark.parametrize(
    ("url", "table"), [("dynamodb:", "app"), ("dynamodb:billing", "billing"), ("dynamodb://billing", "billing")]
)
def test_the_table_of_a_dynamodb_url_is_by_default_the_applications_name(url, table):
    store = make_lease_store(url, "app", "orders", "eu-west-1")
    assert isinstance(store, DynamoDbLeaseStore)
    assert store._name == table


@pytest.mark.parametrize(
    ("leases", "message"),
    [
        ("mysql://127.0.0.1/leases", "unknown scheme 'mysql'"),
        ("http://127.0.0.1/", "unknown scheme 'http'"),
        ("leases:v2", "or the path of an SQLite file"),
        ("sqlite:", "names no file"),
        ("sqlite://host/leases.sqlite", "expected sqlite:PATH"),
        ("dynamodb:billing?profil=x", "no option 'profil'"),
        ("redis:nonsense://", "Redis URL"),
        ("", "expected a path or a URL"),
        (" ", "expected a path or a URL"),
        (".", "expected a path or a URL"),
        (":memory:", "expected a path or a URL"),
        ("memory:app", "expected memory:, which has no name"),
        ("dynamodb:x", "is not the name of a table"),
        ("dynamodb:a%20table", "is not the name of a table"),
    ],
)
def test_an_unusable_url_is_rejected(leases, message):
    with pytest.raises(ConfigurationError, match=message):
        make_lease_store(leases, "app", "orders")


def test_a_password_in_a_url_is_not_shown():
    with pytest.raises(ConfigurationError) as raised:
        make_lease_store("postgresql://user:hunter2@[::1/leases", "app", "orders")
    assert "hunter2" not in str(raised.value)


async def test_a_path_is_opened_and_closed(tmp_path):
    async with open_lease_store(tmp_path / "leases.sqlite", "app", "orders") as store:
        assert await store.create(LEASE)
        assert [lease.key for lease in await store.list()] == [LEASE.key]
    assert isinstance(store, SqliteLeaseStore)
    assert not store.is_open


async def test_a_store_that_is_not_open_is_opened_and_closed(tmp_path):
    made = SqliteLeaseStore(tmp_path / "leases.sqlite", "app", "orders")
    async with open_lease_store(made, "app", "orders") as store:
        assert store is made
        assert made.is_open
    assert not made.is_open


async def test_a_store_that_is_open_stays_open(tmp_path):
    async with SqliteLeaseStore(tmp_path / "leases.sqlite", "app", "orders") as made:
        async with open_lease_store(made, "app", "orders"):
            pass
        assert made.is_open


@pytest.mark.parametrize(("application", "stream"), [("other", "orders"), ("app", "other")])
async def test_a_store_of_another_application_or_stream_is_rejected(tmp_path, application, stream):
    async with SqliteLeaseStore(tmp_path / "leases.sqlite", application, stream) as made:
        with pytest.raises(ConfigurationError, match=r"belongs to the .* 'other'"):
            async with open_lease_store(made, "app", "orders"):
                pass


async def test_a_memory_store_belongs_to_its_first_consumer():
    store = MemoryLeaseStore()
    for _ in range(2):
        async with open_lease_store(store, "app", "orders"):
            pass
    with pytest.raises(ConfigurationError, match="belongs to the stream 'orders'"):
        async with open_lease_store(store, "app", "clicks"):
            pass


async def test_a_store_for_the_arn_of_a_stream_is_the_store_for_its_name(tmp_path):
    path, arn = tmp_path / "leases.sqlite", "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
    async with open_lease_store(SqliteLeaseStore(path, "app", arn), "app", "orders") as store:
        await store.create(LEASE)
    async with open_lease_store(path, "app", "orders") as store:
        assert [lease.key for lease in await store.list()] == [LEASE.key]


@pytest.mark.parametrize("leases", [None, 7, object(), MemoryLeaseStore])
async def test_anything_else_is_rejected(leases):
    with pytest.raises(ConfigurationError, match="expected a path, a URL"):
        async with open_lease_store(leases, "app", "orders"):
            pass


def test_only_a_file_that_was_named_relative_to_the_working_directory_has_another_whole_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for leases, path in (
        ("var/leases.sqlite", tmp_path / "var/leases.sqlite"),
        (tmp_path / "leases.sqlite", None),
        ("memory:", None),
    ):
        assert relative_file(make_lease_store(leases, "app", "orders")) == path


def test_an_application_whose_name_is_none_of_a_table_needs_another_one():
    with pytest.raises(ConfigurationError, match="its lease table would have this name, which AWS refuses"):
        make_lease_store("dynamodb:", "an app", "orders")
    for application in ("an app", "ab"):
        assert make_lease_store("dynamodb:billing", application, "orders")
    assert make_lease_store("dynamodb:abc", "app", "orders")


def test_a_blank_option_of_a_table_is_an_unknown_one_too():
    with pytest.raises(ConfigurationError, match="dynamodb has no option 'nonsense'"):
        make_lease_store("dynamodb:billing?region=eu-west-1&nonsense=", "app", "orders")
