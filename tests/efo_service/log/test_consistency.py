"""What the writer, `efo log verify` and the export do if one part of a log is lost, and the others prove it."""

from __future__ import annotations

import json
import shutil

import pytest

from efo.model import Checkpoint, Lease
from efo_service.log.catalog import Adoption, allocate_partition, mark_written, read_catalog
from efo_service.log.consistency import adopt_into, check_topic, lease_problems, plan_adoption
from efo_service.log.disk import DiskFiles
from efo_service.log.export import export
from efo_service.log.inspection import verify_topic
from efo_service.log.partition_writer import open_partition
from efo_service.log.reader_offsets import commit_reader
from efo_service.log.segments import list_segments
from efo_service.log.sink import LogSink
from efo_service.relay.errors import LogIncompleteError, LogOwnerError, SegmentMissingError, SinkLockedError
from tests.efo_service.relay.relaying import commit

FIVE = Checkpoint("5")


@pytest.fixture
def open_shard(tmp_path):
    def open_shard(shard_id: str, **arguments):
        return open_partition(DiskFiles(tmp_path), "t", "s", shard_id, lambda: 0.0, **arguments)

    return open_shard


@pytest.fixture
def root(tmp_path, open_shard, make_records):
    """A log with the shards "one" (six records in three segments) and "two" (four records in one)."""
    for shard_id, sizes in (("one", (2, 2, 2)), ("two", (4,))):
        writer = open_shard(shard_id)
        for at, size in enumerate(sizes):
            writer.append(make_records(size, 2 * at))
        writer.close()
    return tmp_path


def problems(root) -> list[str]:
    return verify_topic(DiskFiles(root), "t").problems


def exported(root, **which) -> list[tuple[int, int]]:
    lines = map(json.loads, export(DiskFiles(root), "t", encoding="base64", **which))
    return [(line["partition"], line["offset"]) for line in lines]


def edit_catalog(root, **fields) -> None:
    path = root / "t" / "catalog.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def empty(root, partition: int) -> None:
    for segment in list_segments(root / "t" / str(partition)):
        segment.path.unlink()


def lease(key: str, checkpoint: Checkpoint) -> Lease:
    return Lease(key, checkpoint)


# --- the catalog and the directories -----------------------------------------------------------------------


def test_a_consistent_log_has_no_problems(root) -> None:
    check_topic(DiskFiles(root), "t")
    assert problems(root) == []
    assert read_catalog(DiskFiles(root), "t").written == {0, 1}


def test_a_topic_that_does_not_exist_yet_is_consistent(tmp_path) -> None:
    check_topic(DiskFiles(tmp_path), "t")
    (tmp_path / "t").mkdir()
    check_topic(DiskFiles(tmp_path), "t")


def test_a_partition_that_is_missing_in_the_catalog_is_reported_and_refused(root) -> None:
    edit_catalog(root, partitions={"one": 0})
    (problem,) = problems(root)
    assert "t/1 has segments, but the catalog does not name this partition: restore catalog.json" in problem
    assert 'add "two": 1 to its partitions' in problem
    for refused in (
        lambda: check_topic(DiskFiles(root), "t"),
        lambda: exported(root),
        lambda: plan_adoption(DiskFiles(root), "t", []),
    ):
        with pytest.raises(LogIncompleteError, match="does not name this partition"):
            refused()
    gaps = []
    assert exported(root, on_gap=gaps.append) == [(0, offset) for offset in range(6)]
    assert ["does not name this partition" in gap for gap in gaps] == [True]
    edit_catalog(root, partitions={"one": 0, "two": 1})  # as the message says
    check_topic(DiskFiles(root), "t")


def test_a_missing_partition_with_a_damaged_segment_needs_a_copy_of_the_catalog(root) -> None:
    edit_catalog(root, partitions={"one": 0})
    list_segments(root / "t" / "1")[0].path.write_bytes(b"")
    assert [problem.endswith("restore catalog.json from a copy") for problem in problems(root)] == [True]


def test_a_lost_catalog_is_reported_and_never_written_anew(root, open_shard) -> None:
    (root / "t" / "catalog.json").unlink()
    (problem,) = problems(root)
    assert "catalog.json does not exist, but the topic has partitions" in problem
    for refused in (lambda: check_topic(DiskFiles(root), "t"), lambda: exported(root), lambda: open_shard("three")):
        with pytest.raises(LogIncompleteError, match=r"catalog\.json does not exist"):
            refused()
    assert not (root / "t" / "catalog.json").exists()


def test_a_number_of_a_directory_is_not_given_to_another_shard(root) -> None:
    """As after the restore of an old copy of the catalog, in which later partitions are missing."""
    (root / "t" / "7").mkdir()
    assert allocate_partition(DiskFiles(root), "t", "s", "three") == 8


def test_a_partition_of_two_shards_is_refused(root) -> None:
    edit_catalog(root, partitions={"one": 0, "two": 0})
    with pytest.raises(Exception, match="two shards have the same partition"):
        check_topic(DiskFiles(root), "t")


def test_a_partition_that_was_allocated_and_never_written_is_consistent(root, open_shard) -> None:
    allocate_partition(DiskFiles(root), "t", "s", "three")  # and no directory
    open_shard("four").close()
    check_topic(DiskFiles(root), "t")
    assert problems(root) == []
    open_shard("four", checkpoint=FIVE).close()  # a shard without records has a checkpoint, but nothing to commit


def test_swapped_directories_are_refused(root) -> None:
    for source, target in (("0", "x"), ("1", "0"), ("x", "1")):
        (root / "t" / source).rename(root / "t" / target)
    assert [problem.split("/t/")[1][:2] for problem in problems(root)] == ["0/", "1/", "1/", "1/"]
    for refused in (lambda: exported(root, on_gap=print), lambda: check_topic(DiskFiles(root), "t")):
        with pytest.raises(LogOwnerError, match=r"records of s/two, but .* to s/one: a file or directory was moved"):
            refused()


def test_a_damaged_segment_does_not_keep_the_other_shards_from_being_relayed(root) -> None:
    list_segments(root / "t" / "1")[0].path.write_bytes(b"damaged")
    check_topic(DiskFiles(root), "t")


def test_a_segment_whose_damage_names_another_shard_is_no_moved_directory(root) -> None:
    newest = list_segments(root / "t" / "0")[-1].path
    newest.write_bytes(newest.read_bytes().replace(b"one", b"ona"))
    check_topic(DiskFiles(root), "t")
    assert any(newest.name in problem and "is damaged" in problem for problem in problems(root))


def test_segments_of_another_topic_are_reported(root) -> None:
    shutil.copytree(root / "t", root / "u")
    assert all("was written as partition" in problem for problem in verify_topic(DiskFiles(root), "u").problems)
    assert len(verify_topic(DiskFiles(root), "u").problems) == 4


def test_segments_without_an_epoch_are_reported(root) -> None:
    (root / "t" / "1" / "epoch").unlink()
    (problem,) = problems(root)
    assert "t/1 has segments, but no valid file epoch" in problem


# --- emptied partitions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["segments", "directory"])
def test_an_emptied_partition_is_reported_and_refused(root, open_shard, how) -> None:
    if how == "segments":
        empty(root, 0)
    else:
        shutil.rmtree(root / "t" / "0")
    (problem,) = problems(root)
    assert "t/0 has no segment, but records were committed to it: restore its segments" in problem
    for refused in (lambda: check_topic(DiskFiles(root), "t"), lambda: open_shard("one"), lambda: exported(root)):
        with pytest.raises(LogIncompleteError, match="`efo log adopt`"):
            refused()
    gaps = []
    assert exported(root, on_gap=gaps.append) == [(1, offset) for offset in range(4)]
    assert ["t/0 has no segment, but records were committed to it" in gap for gap in gaps] == [True]


def test_the_first_of_several_problems_is_named_and_the_others_counted(root) -> None:
    empty(root, 0)
    empty(root, 1)
    with pytest.raises(LogIncompleteError, match=r"t/0 has no .* \(1 more problems: see `efo log verify`\)"):
        check_topic(DiskFiles(root), "t")


def test_the_next_commit_notes_the_records_if_the_first_cannot(tmp_path, open_shard, make_records) -> None:
    writer = open_shard("one")
    obstacle = tmp_path / "t" / "catalog.tmp"
    obstacle.mkdir()
    writer.append(make_records(2))
    assert read_catalog(DiskFiles(tmp_path), "t").written == frozenset()
    obstacle.rmdir()
    writer.append(make_records(2, 2))
    writer.close()
    assert read_catalog(DiskFiles(tmp_path), "t").written == {0}


def test_a_catalog_of_an_earlier_efo_gets_the_notes_when_any_partition_is_opened(root, open_shard) -> None:
    """Also those of finished shards, which are not opened again."""
    open_shard("three").close()
    path = root / "t" / "catalog.json"
    catalog = json.loads(path.read_text())
    path.write_text(json.dumps({name: catalog[name] for name in ("format", "stream", "partitions")}))
    assert (read_catalog(DiskFiles(root), "t").written, problems(root)) == (frozenset(), [])
    open_shard("two").close()
    assert read_catalog(DiskFiles(root), "t").written == {0, 1}
    empty(root, 0)
    assert len(problems(root)) == 1


def test_noting_records_twice_changes_nothing(root) -> None:
    before = (root / "t" / "catalog.json").stat()
    mark_written(DiskFiles(root), "t", "s", 0)
    assert (root / "t" / "catalog.json").stat().st_ino == before.st_ino


def test_missing_records_are_not_exported_without_a_word(root) -> None:
    list_segments(root / "t" / "0")[1].path.unlink()
    with pytest.raises(SegmentMissingError, match="offsets 2 to 3 are missing"):
        exported(root)
    gaps = []
    assert exported(root, partition=0, on_gap=gaps.append) == [(0, 0), (0, 1), (0, 4), (0, 5)]
    assert exported(root, partition=0, start=3, end=5, on_gap=gaps.append) == [(0, 4)]
    assert [gap.rpartition("t/0: ")[2] for gap in gaps] == [
        "the offsets 2 to 3 are missing",
        "the offsets 3 to 3 are missing",
    ]


def test_an_export_starts_at_the_oldest_record_unless_it_is_reported_otherwise(root) -> None:
    list_segments(root / "t" / "0")[0].path.unlink()  # as retention does
    assert exported(root, partition=0) == [(0, 2), (0, 3), (0, 4), (0, 5)]
    with pytest.raises(SegmentMissingError, match="offsets 1 to 1 are missing"):
        exported(root, partition=0, start=1)


def test_a_reader_that_is_ahead_proves_that_the_newest_segments_are_missing(root) -> None:
    commit_reader(DiskFiles(root), "t", "billing", {0: 6, 1: 4}, 0.0)
    assert problems(root) == []
    list_segments(root / "t" / "0")[-1].path.unlink()
    (problem,) = problems(root)
    assert "t/0 ends at offset 4, but the reader billing has read to 6" in problem


def test_a_reader_that_is_ahead_is_reported_beside_a_file_with_an_invalid_name(root) -> None:
    (root / "t" / "0" / "copy.arrow").touch()
    commit_reader(DiskFiles(root), "t", "billing", {0: 60, 1: 4, 7: 0}, 0.0)
    assert not any("billing" in problem for problem in problems(root))
    commit_reader(DiskFiles(root), "t", "billing", {0: 60, 1: 5}, 0.0)
    (problem,) = [problem for problem in problems(root) if "billing" in problem]
    assert "t/1 ends at offset 4, but the reader billing has read to 5" in problem


# --- the leases, and adoption ------------------------------------------------------------------------------


async def test_a_new_log_refuses_a_shard_that_was_read_before(tmp_path, make_batch) -> None:
    sink = LogSink(DiskFiles(tmp_path), "t")
    with pytest.raises(LogIncompleteError, match=r"the lease of one is at 5, .* no partition .* `efo log adopt`"):
        async with sink.open("s", "one", FIVE):
            pass
    for sentinel in (Checkpoint.TRIM_HORIZON, Checkpoint.LATEST, Checkpoint.AT_TIMESTAMP):
        async with sink.open("s", str(sentinel), sentinel):
            pass
    (planned,) = plan_adoption(DiskFiles(tmp_path), "t", [lease("one", FIVE), lease("new", Checkpoint.TRIM_HORIZON)])
    assert planned == Adoption("one", FIVE, None)
    assert adopt_into(DiskFiles(tmp_path), "t", "s", [planned]) == {"one": 3}
    assert read_catalog(DiskFiles(tmp_path), "t").adopted == {3: "5"}
    async with sink.open("s", "one", FIVE) as shard:
        assert (shard.position, shard.end_offset) == (None, 0)
        await commit(shard, make_batch(2))
    check_topic(DiskFiles(tmp_path), "t")


def test_leases_are_compared_with_the_catalog(root) -> None:
    leases = [
        lease("one", FIVE),
        lease("three", Checkpoint.SHARD_END),
        lease("four", FIVE),
        lease("five", Checkpoint.LATEST),
    ]
    four, three = lease_problems(root / "t", read_catalog(DiskFiles(root), "t"), leases)
    assert "the lease of four is at 5" in four
    assert "the lease of three is at SHARD_END" in three
    adopt_into(DiskFiles(root), "t", "s", plan_adoption(DiskFiles(root), "t", leases))
    assert list(lease_problems(root / "t", read_catalog(DiskFiles(root), "t"), leases)) == []
    assert plan_adoption(DiskFiles(root), "t", leases) == []


def test_a_shard_is_adopted_if_the_directory_of_its_partition_is_gone(root) -> None:
    shutil.rmtree(root / "t" / "1")
    (planned,) = plan_adoption(DiskFiles(root), "t", [lease("one", FIVE), lease("two", FIVE)])
    assert planned == Adoption("two", FIVE, 1)
    assert adopt_into(DiskFiles(root), "t", "s", [planned]) == {"two": 2}
    assert not (root / "t" / "1").exists()


def test_a_log_that_does_not_exist_adopts_the_shards_that_were_read(tmp_path) -> None:
    leases = [lease("new", Checkpoint.LATEST), lease("two", Checkpoint.SHARD_END), lease("one", FIVE)]
    planned = plan_adoption(DiskFiles(tmp_path), "t", leases)
    assert planned == [Adoption("one", FIVE, None), Adoption("two", Checkpoint.SHARD_END, None)]
    assert adopt_into(DiskFiles(tmp_path), "t", "s", planned) == {"one": 0, "two": 1}


def test_a_shard_leaves_its_emptied_partition_so_that_offsets_never_begin_again(root, open_shard, make_records) -> None:
    empty(root, 1)
    (planned,) = plan_adoption(DiskFiles(root), "t", [lease("one", FIVE), lease("two", FIVE)])
    assert planned == Adoption("two", FIVE, 1)
    assert adopt_into(DiskFiles(root), "t", "s", [planned]) == {"two": 2}
    assert problems(root) == []
    writer = open_shard("two", checkpoint=FIVE)
    writer.append(make_records(1, 4))
    writer.close()
    assert [at for at in exported(root) if at[0] > 0] == [(2, 0)]
    assert problems(root) == []
    empty(root, 2)
    with pytest.raises(LogIncompleteError):
        open_shard("two", checkpoint=FIVE)


def test_segments_that_come_back_after_an_adoption_are_reported(root, tmp_path_factory) -> None:
    (segment,) = list_segments(root / "t" / "1")
    content = segment.path.read_bytes()
    segment.path.unlink()
    adopt_into(DiskFiles(root), "t", "s", plan_adoption(DiskFiles(root), "t", []))
    segment.path.write_bytes(content)
    (problem,) = problems(root)
    assert "its shard two has the partition 2. Keep the segments of one of the two" in problem


def test_an_open_partition_is_not_adopted(root, open_shard) -> None:
    writer = open_shard("two")
    empty(root, 1)
    planned = plan_adoption(DiskFiles(root), "t", [])
    assert planned == [Adoption("two", Checkpoint.TRIM_HORIZON, 1)]
    with pytest.raises(SinkLockedError, match="stop the relay"):
        adopt_into(DiskFiles(root), "t", "s", planned)
    with pytest.raises(SinkLockedError, match="stop the relay"):  # also after one that has no writer
        adopt_into(DiskFiles(root), "t", "s", [Adoption("new", Checkpoint.TRIM_HORIZON, None), *planned])
    writer.close()
    adopt_into(DiskFiles(root), "t", "s", planned)


def test_a_plan_is_not_carried_out_for_a_shard_that_got_a_partition_meanwhile(root) -> None:
    """As by a second `efo log adopt`, which an operator confirms later."""
    planned = plan_adoption(DiskFiles(root), "t", [lease("three", FIVE)])
    assert [adopt_into(DiskFiles(root), "t", "s", planned) for _ in range(2)] == [{"three": 2}, {}]
    assert read_catalog(DiskFiles(root), "t").partitions == {"one": 0, "two": 1, "three": 2}
