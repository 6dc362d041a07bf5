import contextlib
import os
import subprocess
import sys

import pytest

from efo.errors import ConfigurationError, StreamRecreatedError
from efo.model import Checkpoint
from efo_service.log.catalog import (
    Adoption,
    Catalog,
    adopt_shards,
    allocate_partition,
    catalog_fields,
    catalog_from,
    check_stream,
    is_noted,
    is_topic_name,
    mark_written,
    other_stream,
    partition_names,
    read_catalog,
    topics,
    uncatalogued_topics,
    with_adoptions,
    with_new_stream,
    with_partition,
    with_records,
)
from efo_service.log.disk import DiskFiles
from efo_service.relay.errors import LogIncompleteError, LogOwnerError, SinkError, TopicNotFoundError
from efo_service.relay.storage import lock

ALLOCATE = """
import sys
from pathlib import Path
from efo_service.log.catalog import allocate_partition
from efo_service.log.disk import DiskFiles
print("ready", flush=True)
sys.stdin.readline()
for shard in sys.argv[2:]:
    allocate_partition(DiskFiles(Path(sys.argv[1])), "t", "s", shard)
"""


def test_concurrent_processes_allocate_consistent_partitions(tmp_path) -> None:
    shards = [f"shard-{number}" for number in range(40)]
    with contextlib.ExitStack() as stack:
        children = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", ALLOCATE, str(tmp_path), *order],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
            )
            for order in (shards, shards[::-1], shards[20:] + shards[:20])
        ]
        for child in children:
            assert child.stdout.readline() == b"ready\n"
        for child in children:
            child.stdin.write(b"go\n")
            child.stdin.flush()
    assert [child.returncode for child in children] == [0, 0, 0]
    partitions = read_catalog(DiskFiles(tmp_path), "t").partitions
    assert set(partitions) == set(shards)
    assert sorted(partitions.values()) == list(range(40))


@pytest.mark.parametrize("topic", ["", ".", "..", ".hidden", "a/b", "a\n", "é", "x" * 250])
def test_an_invalid_topic_name_is_rejected(tmp_path, topic) -> None:
    with pytest.raises(ConfigurationError, match="is not a valid topic name"):
        allocate_partition(DiskFiles(tmp_path), topic, "s", "x")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("missing", "this machine has no such directory.*check the path"),
        ("empty", "nor any other: it is no log, or empty.*check the path"),
        ("file", "it is a file, and a log is a directory"),
        ("log/orders", r"it is itself a topic of the log .*/log; use that path"),
    ],
)
def test_a_path_that_is_no_log_is_reported_with_what_it_is(tmp_path, path, message) -> None:
    allocate_partition(DiskFiles(tmp_path / "log"), "orders", "s", "x")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(TopicNotFoundError, match=f"{path} has no topic 't'.*{message}"):
        read_catalog(DiskFiles(tmp_path / path), "t")


def test_a_catalog_that_is_no_file_is_rejected(tmp_path) -> None:
    allocate_partition(DiskFiles(tmp_path), "t", "s", "x")
    path = tmp_path / "t" / "catalog.json"
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(SinkError, match=r"catalog\.json: it is not a regular file"):
        read_catalog(DiskFiles(tmp_path), "t")


def test_a_root_that_is_a_file_raises_sink_error(tmp_path) -> None:
    (tmp_path / "log").touch()
    with pytest.raises(SinkError, match="Not a directory"):
        allocate_partition(DiskFiles(tmp_path / "log"), "t", "s", "x")


def test_a_lock_is_exclusive_until_it_is_closed(tmp_path) -> None:
    lock_file = lock(tmp_path / "lock")
    with pytest.raises(BlockingIOError):
        lock(tmp_path / "lock", wait=False)
    lock_file.close()
    lock(tmp_path / "lock", wait=False).close()


def test_a_directory_with_partitions_and_no_catalog_is_a_topic_that_lost_it(tmp_path) -> None:
    allocate_partition(DiskFiles(tmp_path), "whole", "s", "x")
    for path in ("whole/0", "lost/0", "again-lost/12", "empty", "notes/attic", ".hidden/0"):
        (tmp_path / path).mkdir(parents=True, exist_ok=True)
    (tmp_path / "file").touch()
    assert uncatalogued_topics(DiskFiles(tmp_path)) == ["again-lost", "lost"]
    assert topics(DiskFiles(tmp_path)) == ["whole"]


def test_partitions_are_in_the_order_of_their_numbers(tmp_path) -> None:
    for name in ("10", "9", "0", "123456789", "1234567890", "x", "1.tmp", "-1"):
        (tmp_path / name).mkdir()
    assert partition_names(DiskFiles(tmp_path.parent), tmp_path.name) == ["0", "9", "10", "123456789"]
    assert partition_names(DiskFiles(tmp_path), "missing") == []


# --- what a catalog says ---

NEW = Catalog("orders", {})
WHOLE = Catalog(
    "orders", {"b": 3, "a": 1}, frozenset({3, 1}), {3: "17", 1: "9"}, stream_created_at=1000.0, former={0: "old"}
)


def test_the_fields_of_a_catalog_make_it_again() -> None:
    fields = {"format": 1, "stream": "orders", "partitions": {}, "written": [], "adopted": {}}
    assert catalog_fields(NEW) == fields
    assert catalog_fields(WHOLE) == {
        "format": 2,
        "stream": "orders",
        "partitions": {"b": 3, "a": 1},
        "written": [1, 3],
        "adopted": {"1": "9", "3": "17"},
        "stream_created_at": 1000.0,
        "former": {"0": "old"},
    }
    for catalog in (NEW, WHOLE):
        assert catalog_from(catalog_fields(catalog)) == catalog
    del fields["written"]
    assert not catalog_from(fields).notes_records


@pytest.mark.parametrize("place", ["partitions", "former"])
def test_the_number_of_a_partition_is_below_2_to_31(place) -> None:
    def fields(number: int) -> dict[str, object]:
        entry = {"x": number} if place == "partitions" else {str(number): "x"}
        return {**catalog_fields(NEW), place: entry}

    assert list(catalog_from(fields(2**31 - 1)).shards) == [2**31 - 1]
    with pytest.raises(ValueError, match="not a whole number from 0 to 2147483647"):
        catalog_from(fields(2**31))


@pytest.mark.parametrize("more", [{"partitions": {"x": 0, "y": 0}}, {"partitions": {"x": 0}, "former": {"0": "y"}}])
def test_two_shards_do_not_have_the_same_partition(more) -> None:
    with pytest.raises(ValueError, match="two shards have the same partition"):
        catalog_from({**catalog_fields(NEW), **more})


def test_partitions_are_listed_by_number_with_those_of_a_former_stream() -> None:
    assert list(WHOLE.shards.items()) == [(0, "old"), (1, "a"), (3, "b")]
    assert (WHOLE.owner(0), WHOLE.owner(3)) == (("orders", "old"), ("orders", "b"))


def test_the_name_of_a_topic_has_up_to_249_characters() -> None:
    assert all(map(is_topic_name, ("x", "-", "_a", "a.b-C_9", "x" * 249)))


@pytest.mark.parametrize("created_at", [None, 999.0, 1000.0, 1001.0])
def test_a_topic_is_of_the_stream_that_was_created_at_its_time_or_at_an_unknown_one(created_at) -> None:
    for catalog, at in ((WHOLE, created_at), (NEW, 5.0)):
        assert other_stream(catalog, at, "t") is None
        check_stream(catalog, "orders", "t", at)


def test_a_topic_of_another_stream_or_a_former_one_is_refused() -> None:
    assert "the topic t is of the one that was created at" in (other_stream(WHOLE, 2000.0, "t") or "")
    with pytest.raises(StreamRecreatedError, match="the topic t is of the one"):
        check_stream(WHOLE, "orders", "t", 2000.0)
    for created_at in (None, 1000.0, 2000.0):
        with pytest.raises(LogOwnerError, match="the topic t belongs to the stream 'orders', not to 'clicks'"):
            check_stream(WHOLE, "clicks", "t", created_at)


def partitioned(
    catalog: Catalog, existing: list[int], shard_id: str = "new", created_at: float | None = 7.0
) -> Catalog:
    return with_partition(catalog, shard_id, Checkpoint.LATEST, "t", lambda: existing, created_at)


def test_a_new_shard_gets_the_number_after_all_that_there_are() -> None:
    assert partitioned(NEW, []).partitions == {"new": 0}
    assert partitioned(WHOLE, [2]).partitions == {"b": 3, "a": 1, "new": 4}
    assert partitioned(WHOLE, [2, 8]).partitions["new"] == 9
    assert partitioned(Catalog("orders", {}, former={5: "old"}), []).partitions == {"new": 6}


def test_a_shard_with_a_partition_keeps_it_wherever_its_lease_is() -> None:
    for checkpoint in (Checkpoint.LATEST, Checkpoint("17")):
        assert with_partition(WHOLE, "a", checkpoint, "t", list, 7.0) is WHOLE


def test_a_shard_that_was_read_before_gets_no_partition() -> None:
    with pytest.raises(LogIncompleteError, match="the lease of new is at 17, but t has no partition"):
        with_partition(WHOLE, "new", Checkpoint("17"), "t", list)


def test_the_first_partition_notes_when_the_stream_was_created_and_others_do_not() -> None:
    assert partitioned(NEW, []).stream_created_at == 7.0
    assert partitioned(Catalog("orders", {"a": 0}), []).stream_created_at is None
    assert partitioned(WHOLE, []).stream_created_at == 1000.0


def test_an_adopted_shard_leaves_its_emptied_partition_and_twice_has_the_effect_of_once() -> None:
    emptied, unknown = Adoption("a", Checkpoint("20"), 1), Adoption("c", Checkpoint.TRIM_HORIZON, None)
    others = [Adoption("b", Checkpoint("1"), 2), Adoption("b", Checkpoint("1"), None)]  # its partition is none of these
    changed = with_adoptions(WHOLE, [emptied, unknown, *others], lambda: [6])
    assert changed.partitions == {"b": 3, "a": 7, "c": 8}
    assert changed.written == {3}
    assert changed.adopted == {3: "17", 1: "9", 7: "20", 8: "TRIM_HORIZON"}
    assert with_adoptions(changed, [emptied, unknown, *others], lambda: [6]) == changed


def test_adopted_shards_are_returned_with_their_numbers(tmp_path) -> None:
    files = DiskFiles(tmp_path)
    allocate_partition(files, "t", "orders", "a")
    adoptions = [
        Adoption("z", Checkpoint("1"), None),
        Adoption("a", Checkpoint("2"), 0),
        Adoption("b", Checkpoint("3"), 9),
    ]
    adopted = adopt_shards(files, "t", "orders", iter(adoptions))
    assert list(adopted.items()) == [("z", 1), ("a", 2)]
    assert read_catalog(files, "t").partitions == {"z": 1, "a": 2}
    assert adopt_shards(files, "t", "orders", adoptions) == {}


def test_another_stream_of_the_name_makes_all_partitions_former_ones() -> None:
    assert with_new_stream(WHOLE, 1000.5) is WHOLE
    changed = with_new_stream(WHOLE, 2000.0)
    assert (changed.partitions, changed.stream_created_at) == ({}, 2000.0)
    assert changed.shards == changed.former == WHOLE.shards
    assert changed.written == WHOLE.written
    assert with_new_stream(NEW, 2000.0).stream_created_at == 2000.0


@pytest.mark.parametrize(
    ("catalog", "created_at", "noted", "changed_at"),
    [
        (WHOLE, 2000.0, True, 1000.0),
        (WHOLE, None, True, 1000.0),
        (Catalog("orders", {"a": 1}, frozenset({1})), 2000.0, False, 2000.0),
        (Catalog("orders", {"a": 1}, frozenset({1})), None, True, None),
        (Catalog("orders", {"a": 1}, frozenset({0})), None, False, None),
        (Catalog("orders", {"a": 1}, stream_created_at=5.0), 2000.0, False, 5.0),
    ],
)
def test_records_of_a_partition_are_noted_once_and_when_the_stream_was_created(
    catalog, created_at, noted, changed_at
) -> None:
    changed = with_records(catalog, 1, created_at)
    assert is_noted(catalog, 1, created_at) is noted is (changed == catalog)
    assert is_noted(changed, 1, created_at)
    assert (changed.written, changed.stream_created_at) == (catalog.written | {1}, changed_at)


def test_a_catalog_is_only_written_if_it_changes(tmp_path) -> None:
    files, path = DiskFiles(tmp_path), tmp_path / "t" / "catalog.json"
    allocate_partition(files, "t", "orders", "a")
    assert path.read_text().startswith('{\n "format": 1,\n "stream": "orders"')
    before = path.stat().st_ino
    allocate_partition(files, "t", "orders", "a")
    assert path.stat().st_ino == before
    mark_written(files, "t", "orders", 0)
    assert read_catalog(files, "t").written == {0}
