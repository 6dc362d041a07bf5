"""Where the leases of several streams are kept: in a store of each, or in one table of DynamoDB."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import trio.testing

from efo.consumer.streams import leases as stream_leases
from efo.consumer.streams.config import StreamConfig
from efo.consumer.streams.leases import open_lease_stores
from efo.errors import ConfigurationError
from efo.leases.stores.memory import MemoryLeaseStore
from efo.model import StreamDescription

ORDERS = StreamConfig(stream="orders")


def kinesis(created_at: float | None = 1_700_000_000.9) -> SimpleNamespace:
    async def describe_stream() -> StreamDescription:
        arn = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
        return StreamDescription("orders", arn, "ACTIVE", 24, created_at=created_at)

    return SimpleNamespace(stream="orders", control_plane=SimpleNamespace(describe_stream=describe_stream))


class Table:
    """A multi-stream table. `opened`, `closed`: how often."""

    def __init__(self, *, is_open: bool = False) -> None:
        self.is_open = is_open
        self.opened = self.closed = 0

    async def __aenter__(self):
        self.opened += 1
        return self

    async def __aexit__(self, *_exception: object) -> None:
        self.closed += 1

    def for_stream(self, stream_id: str) -> str:
        return f"of {stream_id}"


@pytest.mark.parametrize("leases", ["leases.sqlite", Path("leases.sqlite"), "redis://host"])
async def test_one_path_or_url_serves_all_streams(leases):
    async with open_lease_stores(leases, "app", None) as leases_of:
        with trio.testing.assert_checkpoints():
            assert await leases_of(ORDERS, kinesis()) is leases


async def test_a_function_finds_the_store_of_each_stream():
    stores = {"orders": MemoryLeaseStore()}
    async with open_lease_stores(stores.__getitem__, "app", None) as leases_of:
        assert await leases_of(ORDERS, kinesis()) is stores["orders"]


@pytest.mark.parametrize("is_open", [False, True])
async def test_a_table_is_opened_unless_it_is_open_and_has_kcls_name_of_each_stream(is_open):
    table = Table(is_open=is_open)
    async with open_lease_stores(table, "app", None) as leases_of:
        assert await leases_of(ORDERS, kinesis()) == "of 123456789012:orders:1700000000"
        named = StreamConfig(stream="orders", stream_id="1:orders:2")
        assert await leases_of(named, kinesis(None)) == "of 1:orders:2"
        assert (table.opened, table.closed) == (0 if is_open else 1, 0)
    assert table.closed == table.opened


async def test_a_stream_whose_creation_is_unknown_needs_a_name_of_its_own():
    async with open_lease_stores(Table(is_open=True), "app", None) as leases_of:
        with pytest.raises(ConfigurationError, match="when the stream 'orders' was created: set stream_id"):
            await leases_of(ORDERS, kinesis(None))


async def test_the_url_of_a_table_of_dynamodb_opens_one_for_all_streams(monkeypatch):
    asked, table = [], Table()
    monkeypatch.setattr(stream_leases, "make_lease_store", lambda *arguments: (asked.append(arguments), table)[1])
    async with open_lease_stores("DynamoDB:leases", "app", "eu-west-1", "http://proxy:3128") as leases_of:
        assert await leases_of(ORDERS, kinesis()) == "of 123456789012:orders:1700000000"
    assert asked == [("DynamoDB:leases", "app", "", "eu-west-1", "http://proxy:3128")]
    assert (table.opened, table.closed) == (1, 1)


@pytest.mark.parametrize("leases", [7, MemoryLeaseStore, MemoryLeaseStore(), Table, None])
async def test_what_keeps_no_leases_is_refused(leases):
    with pytest.raises(ConfigurationError, match=r"leases=.*: expected a path, a URL, a DynamoDbLeaseStore"):
        async with open_lease_stores(leases, "app", None):
            pytest.fail("it is open")
