"""[leases.dynamodb], and the lease store that it creates."""

from contextlib import asynccontextmanager

import pytest

import efo.leases.stores.dynamodb.store
from efo.errors import ConfigurationError
from efo.leases.stores.dynamodb.store import NewTable
from efo_service.config.loading import load
from efo_service.factories.lease_store import open_leases


@pytest.fixture
def opened(monkeypatch):
    """The stores that were opened: table and options."""
    opened = []

    @asynccontextmanager
    async def store(table, **options):
        opened.append((table, options))
        yield "the store"

    monkeypatch.setattr(efo.leases.stores.dynamodb.store, "DynamoDbLeaseStore", store)
    return opened


def configured(tmp_path, text, *, stream="arn:aws:kinesis:eu-west-1:123456789012:stream/orders"):
    file = tmp_path / "efo.toml"
    file.write_text(
        f'[kinesis]\nstream = "{stream}"\nprofile = "reader"\n[consumer]\napplication = "billing"\n'
        f'[leases]\nstore = "dynamodb"\n{text}'
    )
    return load(file)


async def test_by_default_the_table_has_the_name_of_the_application_and_the_region_of_the_stream(opened, tmp_path):
    async with open_leases(configured(tmp_path, "failover_seconds = 5")) as store:
        assert store == "the store"
    ((table, options),) = opened
    assert table == "billing"
    assert options == {
        "region": "eu-west-1",
        "endpoint_url": None,
        "ca_file": None,
        "profile": "reader",
        "proxy_url": None,
        "timeout": 1.0,  # three attempts must take less than the fail-over time
        "new_table": NewTable(),
        "stream_id": None,
        "consistent_reads": False,
        "worker_metrics_table": None,
    }


async def test_every_setting_reaches_the_store(opened, tmp_path):
    (tmp_path / "ca.pem").touch()
    text = f"""
        [leases.dynamodb]
        table = "leases"
        region = "us-east-1"
        endpoint_url = "https://127.0.0.1:8000"
        ca_file = "{tmp_path}/ca.pem"
        profile = "keeper"
        proxy_url = "http://proxy.test:3128"
        stream_id = "123456789012:orders:1700000000"
        consistent_reads = true
        worker_metrics_table = "loads"
        tags = {{ team = "orders", stage = "test" }}
        deletion_protection = true
        point_in_time_recovery = true
        read_capacity = 20
        write_capacity = 10
    """
    async with open_leases(configured(tmp_path, text)):
        pass
    ((table, options),) = opened
    assert table == "leases"
    tags = {"team": "orders", "stage": "test"}
    assert options == {
        "region": "us-east-1",
        "endpoint_url": "https://127.0.0.1:8000",
        "ca_file": f"{tmp_path}/ca.pem",
        "profile": "keeper",
        "proxy_url": "http://proxy.test:3128",
        "timeout": 2.0,
        "new_table": NewTable(
            tags=tags, deletion_protection=True, point_in_time_recovery=True, read_capacity=20, write_capacity=10
        ),
        "stream_id": "123456789012:orders:1700000000",
        "consistent_reads": True,
        "worker_metrics_table": "loads",
    }


async def test_create_table_false_creates_no_table(opened, tmp_path):
    async with open_leases(configured(tmp_path, "[leases.dynamodb]\ncreate_table = false", stream="orders")):
        pass
    ((_, options),) = opened
    assert (options["new_table"], options["region"]) == (None, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('tags = "team"', "tags: expected a valid dictionary"),
        ("read_capacity = 5", "set both, or none of them"),
        ("read_capacity = 0\nwrite_capacity = 1", "read_capacity"),
        ('table = "a table"', "table"),
        ('stream_id = "orders"', "stream_id"),
        ('endpoint_url = "dynamodb"', "endpoint_url: not an endpoint"),
        ('endpoint_url = "http://h:99999"', "endpoint_url: not an endpoint"),
        ('ca_file = "/nowhere/ca.pem"', "ca_file"),
        ("throughput = 1", "throughput"),
    ],
)
def test_a_wrong_value_is_refused_with_its_location(tmp_path, text, message):
    with pytest.raises(ConfigurationError, match="dynamodb") as caught:
        configured(tmp_path, f"[leases.dynamodb]\n{text}")
    assert message in str(caught.value)
