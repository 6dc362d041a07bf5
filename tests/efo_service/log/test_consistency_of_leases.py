"""What leases and readers prove about a catalog, and which shards are adopted."""

from __future__ import annotations

import pytest

from efo.model import Checkpoint, Lease
from efo_service.log import consistency
from efo_service.log.catalog import Adoption, Catalog, allocate_partition, read_catalog
from efo_service.log.consistency import (
    checked_topic,
    emptied,
    lease_problems,
    planned_adoptions,
    readers_ahead,
    stream_of_leases,
    unknown_shards,
    was_read,
)
from efo_service.log.disk import DiskFiles
from efo_service.log.objects.files import ObjectFiles
from efo_service.log.reader_offsets import commit_reader
from efo_service.log.topic import read_topic
from efo_service.object_store.memory import MemoryStore
from tests.efo_service.conftest import SHARD, STREAM, TOPIC

END, START = Checkpoint.SHARD_END, Checkpoint.TRIM_HORIZON
LEASES = [
    Lease("z", Checkpoint("7")),
    Lease("known", Checkpoint("8"), stream_created_at=1000.0),
    Lease("ended", END, stream_created_at=2000.0),
    Lease("new", START),
]
CATALOG = Catalog("orders", {"known": 0, "emptied": 2, "other": 3}, frozenset({0, 2, 3}), former={1: "old"})


@pytest.mark.parametrize(
    ("checkpoint", "expected"), [(Checkpoint("7"), True), (END, True), (START, False), (Checkpoint.LATEST, False)]
)
def test_a_shard_was_read_if_its_lease_has_moved(checkpoint, expected) -> None:
    assert was_read(Lease("s", checkpoint)) is expected


def test_shards_that_were_read_and_have_no_partition_are_unknown_in_the_order_of_their_names() -> None:
    assert list(unknown_shards(CATALOG, LEASES).items()) == [("ended", END), ("z", Checkpoint("7"))]
    assert list(unknown_shards(None, LEASES)) == ["ended", "known", "z"]
    assert unknown_shards(CATALOG, [Lease("old", Checkpoint("7"))]) == {"old": Checkpoint("7")}  # of the former stream


def test_emptied_partitions_are_adopted_before_unknown_shards() -> None:
    unknown = [Adoption("ended", END, None), Adoption("z", Checkpoint("7"), None)]
    assert planned_adoptions(CATALOG, iter([0, 2]), iter(LEASES)) == [
        Adoption("known", Checkpoint("8"), 0),
        Adoption("emptied", START, 2),
        *unknown,
    ]
    assert planned_adoptions(CATALOG, (), LEASES) == unknown
    assert [one.shard_id for one in planned_adoptions(None, (), LEASES)] == ["ended", "known", "z"]


def test_leases_tell_their_stream_by_the_first_that_names_it() -> None:
    assert stream_of_leases(LEASES) == 1000.0
    assert stream_of_leases(LEASES[-1:]) is None


def test_leases_of_another_stream_are_one_problem_and_others_are_one_for_each_shard() -> None:
    (problem,) = lease_problems("t", Catalog("orders", {}, stream_created_at=5.0), LEASES)
    assert "the topic t is of the one that was created at" in problem
    for catalog in (CATALOG, Catalog("orders", {"known": 0}, stream_created_at=1000.0)):
        assert [one.split(", but")[0] for one in lease_problems("t", catalog, LEASES)] == [
            "the lease of ended is at SHARD_END",
            "the lease of z is at 7",
        ]
    assert len(list(lease_problems("t", None, LEASES))) == 3


# --- readers and partitions ---


@pytest.fixture
def disk_files(tmp_path) -> DiskFiles:
    return DiskFiles(tmp_path / "log")


def test_a_reader_is_ahead_of_what_a_partition_has_or_of_one_that_is_not_there(open_writer, disk_files, make_records):
    writer = open_writer()
    writer.append(make_records(4))
    writer.close()
    allocate_partition(disk_files, TOPIC, STREAM, "empty")
    (disk_files.root / TOPIC / "8").mkdir()
    topic = read_topic(disk_files, TOPIC)
    for name, offsets in (("at", {0: 4, 1: 0, 9: 0}), ("beyond", {9: 1, 8: 5, 1: 1, 0: 5})):
        commit_reader(disk_files, TOPIC, name, offsets, 0.0)
    found = [one.removeprefix(f"{topic.where}/").split(": its newest")[0] for one in readers_ahead(topic)]
    assert found == [
        "0 ends at offset 4, but the reader beyond has read to 5",
        "1 ends at offset 0, but the reader beyond has read to 1",
        "9 ends at offset 0, but the reader beyond has read to 1",
    ]


def test_partitions_that_had_records_and_have_none_are_emptied(open_writer, disk_files, make_records, directory):
    for number, shard_id in enumerate((SHARD, "two", "three")):
        writer = open_writer(shard_id=shard_id)
        if number < 2:
            writer.append(make_records(1))
        writer.close()
    assert list(emptied(read_topic(disk_files, TOPIC))) == []
    for number in (1, 0):
        for segment in directory.with_name(str(number)).glob("*.arrow"):
            segment.unlink()
    assert list(emptied(read_topic(disk_files, TOPIC))) == [0, 1]


@pytest.mark.parametrize(("make", "compares"), [(DiskFiles, 2), (None, 1)], ids=["disk", "objects"])
def test_a_catalog_that_was_complete_is_not_compared_again_where_listings_cost(tmp_path, monkeypatch, make, compares):
    files = ObjectFiles(MemoryStore()) if make is None else make(tmp_path)
    allocate_partition(files, TOPIC, STREAM, SHARD)
    complete, listed = read_catalog(files, TOPIC), []
    names = consistency.partition_names
    monkeypatch.setattr(consistency, "partition_names", lambda *where: listed.append(where) or names(*where))
    for catalog in (complete, None):
        topic, problems = checked_topic(files, TOPIC, catalog)
        assert (topic.catalog, problems) == (complete, [])
    assert len(listed) == compares
    checked_topic(files, TOPIC, Catalog(STREAM, {}))
    assert len(listed) == compares + 1
