"""Child processes as a part of the service: a failure that ends it, and what the children use."""

import os
import sys

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from efo_service.config.loading import load_tables
from efo_service.multilang.child import ChildError, open_child
from efo_service.multilang.opening import Usage, open_reader, parts_of
from efo_service.multilang.reader import ChildSettings
from efo_service.streams.parts import PARTS

SETTINGS = load_tables({"kinesis": {"stream": "orders"}, "consumer": {"application": "billing"}}).first
CHILDREN = ChildSettings(("program",))


async def test_leaving_the_reader_raises_the_failure_of_a_child():
    with pytest.raises(ChildError, match="it failed"):
        async with open_reader(CHILDREN, SETTINGS, MeterProvider(), lambda: None) as reader:
            reader.failure = ChildError("it failed")


async def test_the_children_are_measured():
    metrics = InMemoryMetricReader()
    async with open_reader(CHILDREN, SETTINGS, MeterProvider([metrics]), lambda: None) as reader:
        code = 'sum(range(3_000_000)); print(\'{"action": "status"}\', flush=True); input()'
        async with open_child([sys.executable, "-c", code], "shard-1") as child:
            await child.receive()
            reader.children["shard-1"] = child
            data = metrics.get_metrics_data()
            await child.send(b"\n")
    found = {
        metric.name: metric.data.data_points[0]
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert found["efo.child.count"].value == 1
    assert found["efo.child.cpu.time"].value > 0
    assert found["efo.child.memory.usage"].value > 1_000_000
    assert found["efo.child.count"].attributes == {
        "messaging.destination.name": "orders",
        "messaging.consumer.group.name": "billing",
    }


def test_a_child_that_has_ended_uses_nothing():
    class Ended:
        pid = 2**22 + 1

    usage = Usage({"shard-1": Ended()})
    assert (usage.count(), usage.memory()) == (1, 0)
    assert usage.cpu_seconds() >= os.times().children_user


def test_the_other_parts_stay_as_they_are():
    parts = parts_of(CHILDREN)
    assert parts.open_reader is not None
    assert parts.open_consumer is PARTS.open_consumer
