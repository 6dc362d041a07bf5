"""What the service says that it has requested."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from efo_service.object_store.measured import MeasuredStore
from efo_service.object_store.memory import MemoryStore
from efo_service.relay.errors import StoreUnavailableError


@pytest.fixture
def reader() -> InMemoryMetricReader:
    return InMemoryMetricReader()


@pytest.fixture
def memory() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def store(memory, reader) -> MeasuredStore:
    return MeasuredStore(memory, MeterProvider([reader]), "orders")


def listings(reader: InMemoryMetricReader) -> dict[str | None, int]:
    [metric] = reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics
    return {point.attributes.get("error.type"): point.value for point in metric.data.data_points}


@pytest.mark.parametrize(("objects", "requests"), [(0, 1), (1, 1), (1000, 1), (1001, 2)])
def test_a_listing_costs_a_request_for_each_1000_keys_at_least_one(memory, store, reader, objects, requests) -> None:
    for number in range(objects):
        memory.create(f"a/{number}", b"x")
    assert len(list(store.keys("a/"))) == objects
    assert listings(reader) == {None: requests}


def test_a_listing_that_fails_is_counted_with_its_error(memory, store, reader) -> None:
    memory.fault = lambda _operation, _key: "refused"
    with pytest.raises(StoreUnavailableError):
        list(store.keys("a/"))
    assert listings(reader) == {"object_store_unavailable": 1}
