"""A topic that goes on with another stream of its name: on disks and on object stores (rule R15)."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

import pytest

from efo.errors import StreamRecreatedError
from efo.model import Checkpoint
from efo_service.log.catalog import other_stream, read_catalog
from efo_service.log.consistency import check_topic, continue_with
from efo_service.log.disk import DiskFiles
from efo_service.log.export import export
from efo_service.log.files import LogFiles
from efo_service.log.inspection import inspect_topic, verify_topic
from efo_service.log.maintenance import LogMaintenance
from efo_service.log.objects.files import ObjectFiles
from efo_service.log.retention import RetentionRules
from efo_service.log.sink import LogSink
from efo_service.object_store.memory import MemoryStore
from efo_service.object_store.url import parse_url
from efo_service.relay.errors import LogIncompleteError, LogOwnerError, SinkLockedError
from efo_service.relay.sink import Sink
from tests.efo_service.relay.relaying import commit

STREAM, TOPIC = "orders", "orders"
SHARD, OTHER = "shardId-000000000000", "shardId-000000000001"
FORMER, PRESENT = 1_700_000_000.0, 1_700_000_600.0


@dataclass(frozen=True)
class Place:
    """A log on one kind of storage. `content`: returns its catalog as it is stored."""

    files: LogFiles
    open: Callable[[], AbstractAsyncContextManager[Sink]]
    content: Callable[[], dict[str, object]]
    maintain: Callable[[], None]

    async def write(self, batch, created_at: float | None, shard_id: str = SHARD, **options: object) -> None:
        async with self.open() as sink:
            sink.identify(created_at)
            async with sink.open(STREAM, shard_id, **options) as shard:
                await commit(shard, batch)

    def offsets(self) -> list[tuple[int, int]]:
        lines = map(json.loads, export(self.files, TOPIC, encoding="utf-8"))
        return [(line["partition"], line["offset"]) for line in lines]


@pytest.fixture(params=["disk", "object store"])
def place(request, tmp_path) -> Place:
    if request.param == "disk":

        @asynccontextmanager
        async def open_log():
            yield LogSink(DiskFiles(tmp_path), TOPIC, lock_timeout=0)

        return Place(
            DiskFiles(tmp_path),
            open_log,
            lambda: json.loads((tmp_path / TOPIC / "catalog.json").read_text()),
            lambda: LogMaintenance(DiskFiles(tmp_path, grace=0), TOPIC, RetentionRules()).run(2e9),
        )
    store = MemoryStore()

    @asynccontextmanager
    async def open_object_log():
        yield LogSink(ObjectFiles(store.client()), TOPIC)

    return Place(
        ObjectFiles(store, parse_url("s3://logs/efo")),
        open_object_log,
        lambda: json.loads(store.get(f"{TOPIC}/catalog.json").content),
        lambda: LogMaintenance(ObjectFiles(store), TOPIC, RetentionRules()).run(0.0),
    )


async def test_the_former_stream_stays_readable_and_the_present_one_gets_new_partitions(place, make_batch):
    await place.write(make_batch(3), FORMER)
    await place.write(make_batch(2), FORMER, OTHER)
    with pytest.raises(StreamRecreatedError):
        await place.write(make_batch(1), PRESENT)
    continue_with(place.files, TOPIC, STREAM, PRESENT)
    await place.write(make_batch(4), PRESENT)
    assert place.offsets() == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2), (2, 3)]
    assert verify_topic(place.files, TOPIC, lambda _: None).problems == []
    state = inspect_topic(place.files, TOPIC)
    assert [(found.partition, found.shard_id) for found in state.partitions] == [(0, SHARD), (1, OTHER), (2, SHARD)]
    catalog = read_catalog(place.files, TOPIC)
    assert (dict(catalog.partitions), dict(catalog.former)) == ({SHARD: 2}, {0: SHARD, 1: OTHER})
    place.maintain()
    assert len(place.offsets()) == 9
    check_topic(place.files, TOPIC)


async def test_the_writer_of_the_former_stream_is_refused_after_that(place, make_batch):
    await place.write(make_batch(3), FORMER)
    continue_with(place.files, TOPIC, STREAM, PRESENT)
    with pytest.raises(StreamRecreatedError):
        await place.write(make_batch(2, 3), FORMER)
    assert place.offsets() == [(0, 0), (0, 1), (0, 2)]


async def test_it_can_happen_again(place, make_batch):
    for number in range(4):
        created_at = FORMER + 600 * number
        if number:
            continue_with(place.files, TOPIC, STREAM, created_at)
        await place.write(make_batch(1), created_at)
    assert place.offsets() == [(0, 0), (1, 0), (2, 0), (3, 0)]
    assert verify_topic(place.files, TOPIC, lambda _: None).problems == []


async def test_a_topic_that_is_that_of_the_present_stream_is_not_changed(place, make_batch):
    await place.write(make_batch(3), FORMER)
    before = place.content()
    continue_with(place.files, TOPIC, STREAM, FORMER + 0.5)
    assert place.content() == before
    await place.write(make_batch(1, 3), FORMER)


async def test_the_topic_of_another_stream_is_not_taken(place, make_batch):
    await place.write(make_batch(3), FORMER)
    with pytest.raises(LogOwnerError):
        continue_with(place.files, TOPIC, "clicks", PRESENT)


async def test_an_earlier_efo_reads_the_catalog_until_the_topic_goes_on_with_another_stream(place, make_batch):
    await place.write(make_batch(3), FORMER)
    assert place.content()["format"] == 1
    continue_with(place.files, TOPIC, STREAM, PRESENT)
    assert place.content()["format"] == 2  # it would not read the partitions of the former stream


async def test_an_earlier_catalog_has_no_time_until_the_next_commit(place, make_batch):
    await place.write(make_batch(3), None)
    assert "stream_created_at" not in place.content()
    assert other_stream(read_catalog(place.files, TOPIC), PRESENT, "x") is None
    await place.write(make_batch(1, 3), FORMER)
    assert place.content()["stream_created_at"] == FORMER


async def test_an_open_of_a_stream_does_not_name_a_topic_that_may_be_that_of_a_former_one(place, make_batch):
    # Whether the position is one of this stream is known when it was read from: not before a commit.
    await place.write(make_batch(3), None)
    async with place.open() as sink:
        sink.identify(PRESENT)
        async with sink.open(STREAM, SHARD):
            pass
    assert "stream_created_at" not in place.content()


async def test_a_shard_that_was_read_before_is_adopted_as_always(place, make_batch):
    await place.write(make_batch(3), FORMER)
    continue_with(place.files, TOPIC, STREAM, PRESENT)
    with pytest.raises(LogIncompleteError, match="efo log adopt"):
        await place.write(make_batch(1, 3), PRESENT, checkpoint=Checkpoint("7"))


async def test_a_topic_with_an_open_writer_is_not_changed(tmp_path, make_batch):
    sink = LogSink(DiskFiles(tmp_path), TOPIC, lock_timeout=0)
    sink.identify(FORMER)
    async with sink.open(STREAM, SHARD) as shard:
        await commit(shard, make_batch(3))
        with pytest.raises(SinkLockedError, match="stop the relay first"):
            continue_with(DiskFiles(tmp_path), TOPIC, STREAM, PRESENT)
