"""The simulated disk: it does what a real one does for the log, and a crash leaves what it may leave."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from efo.model import Checkpoint, Record
from efo_service.log.disk import DiskFiles
from efo_service.log.maintenance import LogMaintenance
from efo_service.log.partition_writer import PartitionWriter, open_partition
from efo_service.log.retention import RetentionRules
from efo_service.log.segments import read_parts
from efo_service.relay import storage
from efo_service.relay.errors import SinkError, SinkFencedError, SinkFullError, SinkLockedError
from proofs.simulation.disk import Disk, DiskFaults, DiskView, ProcessKilled

NOW = 1_700_000_000.0
SHARD = "shardId-000000000000"


def records(start: int, count: int = 5) -> list[Record]:
    return [Record(str(10**20 + number), NOW, b"x" * 100, "key") for number in range(start, start + count)]


def make_disk(seed: int = 0, *, has_locks: bool = True) -> Disk:
    return Disk(lambda: NOW, Random(seed), has_locks=has_locks)


def open_writer(root: Any) -> PartitionWriter:
    return open_partition(DiskFiles(root), "t", "s", SHARD, lambda: NOW)


def offsets(root: Any) -> list[int]:
    parts = read_parts(root / "t" / "0", 0, 10**6, ("s", SHARD), allow_gaps=True)
    return [offset for _, batch in parts for offset in batch.column("offset").to_pylist()]


@pytest.fixture(params=["real", "simulated"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return tmp_path if request.param == "real" else DiskView(make_disk()).root


# --- on both disks ---------------------------------------------------------------------------------------


def test_files_are_written_renamed_listed_and_removed(root: Any) -> None:
    directory = root / "a" / "b"
    directory.mkdir(parents=True, exist_ok=True)
    directory.mkdir(exist_ok=True)
    with (directory / "x.tmp").open("w") as file:
        file.write("content")
        storage.sync(file)
    assert (directory / "x.tmp").stat().st_size == 7
    (directory / "x.tmp").rename(directory / "y.json")
    assert storage.names(directory) == ["y.json"]
    assert (directory / "y.json").read_bytes() == b"content"
    assert [path.name for path in root.glob("*/b")] == ["b"]
    assert [path.name for path in directory.glob("*.tmp")] == []
    assert [path.name for path in root.iterdir()] == ["a"]
    assert (directory.is_dir(), (directory / "y.json").is_dir(), directory.exists()) == (True, False, True)
    storage.sync_directory(directory)
    (directory / "y.json").unlink()
    (directory / "y.json").unlink(missing_ok=True)
    assert not (directory / "y.json").exists()


def no_file(root: Any) -> object:
    return (root / "missing").read_bytes()


def no_directory(root: Any) -> object:
    return storage.names(root / "missing")


def no_file_to_rename(root: Any) -> object:
    return (root / "missing").rename(root / "other")


def no_file_to_remove(root: Any) -> object:
    return (root / "missing").unlink()


def existing_directory(root: Any) -> object:
    (root / "a").mkdir()
    return (root / "a").mkdir()


@pytest.mark.parametrize("call", [no_file, no_directory, no_file_to_rename, no_file_to_remove, existing_directory])
def test_calls_that_cannot_succeed_raise(root: Any, call: Callable[[Any], object]) -> None:
    with pytest.raises(FileExistsError if call is existing_directory else FileNotFoundError):
        call(root)


def test_a_lock_is_held_until_it_is_closed(root: Any) -> None:
    with storage.lock(root / "lock", wait=False), pytest.raises(BlockingIOError):
        storage.lock(root / "lock", wait=False)
    storage.lock(root / "lock", wait=False).close()


def test_the_log_writes_compacts_expires_and_recovers(root: Any) -> None:
    writer = open_writer(root)
    for start in range(0, 50, 5):
        writer.append(records(start))
    with pytest.raises(SinkLockedError):
        open_writer(root)
    writer.close()
    report = LogMaintenance(DiskFiles(root), "t", RetentionRules(), fan_in=4).run(NOW)
    assert report is not None
    assert (report.parts, report.compacted) == (9, 1)
    assert offsets(root) == list(range(50))
    writer = open_writer(root)
    assert (writer.end, writer.position) == (50, Checkpoint(str(10**20 + 49)))
    writer.close()
    LogMaintenance(DiskFiles(root), "t", RetentionRules(seconds=60.0)).run(NOW + 61)
    assert offsets(root) == list(range(45, 50))


# --- a crash ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_a_power_failure_keeps_what_was_synced_and_a_part_of_the_rest(seed: int) -> None:
    disk = make_disk(seed)
    root = DiskView(disk).root
    file = (root / "a").open("w")
    file.write("synced")
    storage.sync(file)
    storage.sync_directory(root)
    file.write(" torn")
    (root / "b").open("w")
    (root / "c").open("w")
    disk.fail_power()
    assert (root / "a").read_bytes() in [b"synced torn"[:end] for end in range(6, 12)]
    assert sorted(storage.names(root)) in (["a"], ["a", "b"], ["a", "b", "c"])


def test_power_failures_tear_files_and_lose_names() -> None:
    contents, names = set[bytes](), set[int]()
    for seed in range(40):
        disk = make_disk(seed)
        root = DiskView(disk).root
        (root / "a").open("w")
        storage.sync_directory(root)
        (root / "a").open("w").write("torn")
        (root / "b").open("w")
        disk.fail_power()
        contents.add((root / "a").read_bytes())
        names.add(len(storage.names(root)))
    assert contents == {b"", b"t", b"to", b"tor", b"torn"}
    assert names == {1, 2}


def test_a_killed_process_loses_nothing_releases_its_locks_and_makes_no_call() -> None:
    disk = make_disk()
    dead, other = DiskView(disk), DiskView(disk)
    (dead.root / "a").open("w").write("written")
    storage.lock(dead.root / "lock", wait=False)
    disk.faults = DiskFaults(kill=1.0)
    with pytest.raises(ProcessKilled):
        (dead.root / "a").unlink()
    disk.faults = DiskFaults()
    with pytest.raises(ProcessKilled):
        (dead.root / "a").exists()
    assert (other.root / "a").read_bytes() == b"written"
    storage.lock(other.root / "lock", wait=False)
    disk.fail_power()
    assert (other.root / "a").read_bytes() == b"written"


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_a_commit_that_a_crash_interrupts_is_durable_as_a_whole_or_not_at_all(seed: int, power: bool) -> None:  # noqa: FBT001
    disk = make_disk(seed)
    writer = open_writer(DiskView(disk).root)
    writer.append(records(0))
    disk.faults = DiskFaults(power=0.02) if power else DiskFaults(kill=0.02)
    end = 5
    with suppress(ProcessKilled):
        while True:
            writer.append(records(end))
            end += 5
    disk.faults = DiskFaults()
    again = open_writer(DiskView(disk).root)
    assert again.end in (end, end + 5)
    assert again.position == Checkpoint(str(10**20 + again.end - 1))
    assert offsets(DiskView(disk).root) == list(range(again.end))


# --- faults ----------------------------------------------------------------------------------------------


def test_a_full_disk_and_an_error_are_reported_and_leave_no_commit() -> None:
    disk, reported = make_disk(), list[str]()
    view = DiskView(disk, reported.append)
    writer = open_writer(view.root)
    disk.faults = DiskFaults(full=1.0)
    with pytest.raises(SinkFullError, match="no space"):
        writer.append(records(0))
    disk.faults = DiskFaults(error=1.0)
    with pytest.raises(SinkError, match="Input/output error"):
        writer.append(records(0))
    disk.faults = DiskFaults()
    assert {*reported} == {"full", "error"}
    assert offsets(view.root) == []
    writer.append(records(0))
    assert offsets(view.root) == list(range(5))


def test_without_common_locks_the_earlier_writer_is_fenced() -> None:
    disk = make_disk(has_locks=False)
    first = open_writer(DiskView(disk).root)
    first.append(records(0))
    second = open_writer(DiskView(disk).root)
    with pytest.raises(SinkFencedError):
        first.append(records(5))
    second.append(records(5))
    assert offsets(DiskView(disk).root) == list(range(10))
