"""A topic or a partition that another worker creates between two requests is not taken for one that was lost."""

from __future__ import annotations

import pytest

from efo_service.log.catalog import allocate_partition, read_catalog
from efo_service.log.consistency import check_topic
from efo_service.log.objects import keys
from efo_service.log.objects.files import ObjectFiles
from efo_service.object_store.memory import MemoryStore, StoreStep
from tests.efo_service.log.objects.logs import SHARD, STREAM, TOPIC, Log


def store_where_a_worker_opens_after(log: Log, key: str) -> MemoryStore:
    store, opened = log.client(), []

    def on_step(step: StoreStep) -> None:
        if step == StoreStep(step.number, "get", key, is_done=True) and not opened:
            opened.append(log.writer(log.client()))

    store.on_step = on_step
    return store


@pytest.mark.parametrize(
    "call",
    [
        lambda log, store: log.partition(store).bounds(),
        lambda log, store: log.append(log.writer(store), 1),
        lambda _log, store: check_topic(ObjectFiles(store), TOPIC, STREAM),
    ],
    ids=["reads", "writes", "checks"],
)
def test_a_partition_that_is_opened_meanwhile(log, call) -> None:
    allocate_partition(ObjectFiles(log.memory), TOPIC, STREAM, SHARD)
    call(log, store_where_a_worker_opens_after(log, keys.head(TOPIC, 0)))


def test_a_topic_that_is_created_meanwhile_by_another_shard(log) -> None:
    log.writer(store_where_a_worker_opens_after(log, f"{TOPIC}/catalog.json"), shard_id="shardId-000000000001")
    assert sorted(read_catalog(ObjectFiles(log.memory), TOPIC).partitions.values()) == [0, 1]


def test_a_topic_that_is_created_meanwhile_is_read(log) -> None:
    assert (
        SHARD
        in read_catalog(ObjectFiles(store_where_a_worker_opens_after(log, f"{TOPIC}/catalog.json")), TOPIC).partitions
    )
