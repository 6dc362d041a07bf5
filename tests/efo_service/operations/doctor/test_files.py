"""The embedded log and JSON lines: rights, owners, and who writes. Nothing is created."""

import os

import pytest

from efo.model import Record
from efo_service.exit_codes import Exit
from efo_service.log.disk import DiskFiles
from efo_service.log.partition_writer import open_partition
from efo_service.operations.doctor import files
from efo_service.operations.doctor.files import by_whom, holders, jsonl_check, lock_holders, log_checks
from efo_service.operations.doctor.running import run_checks
from efo_service.relay.storage import lock

SHARD = "shardId-000000000000"
LOCKS = """\
1: POSIX  ADVISORY  WRITE 41 08:01:900 1073741824 1073742335
2: FLOCK  ADVISORY  WRITE 42 08:01:901 0 EOF
2: -> FLOCK  ADVISORY  WRITE 43 08:01:901 0 EOF
3: FLOCK  ADVISORY  READ 44 00:2d:902 0 EOF
4: LEASE  ACTIVE    READ 45 08:01:903 0 EOF
5: FLOCK  ADVISORY  WRITE 46 00:2d:904 0 EOF
"""


@pytest.fixture
def root(tmp_path):
    return tmp_path / "log"


@pytest.fixture
def written(root):
    """Open the partition of a shard, as a running service does; return its writer."""
    writer = open_partition(DiskFiles(root), "orders", "orders", SHARD, lambda: 0.0)
    yield writer
    writer.close()


def contents(path):
    return {file: file.read_bytes() if file.is_file() else None for file in path.rglob("*")}


async def found(checks):
    return {finding.name: finding.outcome for finding in await run_checks(checks, 60)}


def of_log(root, stream="orders"):
    return log_checks(root, {"log topic": "orders"}, stream)


async def test_a_log_that_does_not_exist_passes_and_is_not_created(root, tmp_path):
    outcomes = await found(of_log(root))
    assert {outcome.result for outcome in outcomes.values()} == {"passed"}
    assert outcomes["log topic"].detail == f"{root / 'orders'} does not exist: `efo run` creates it"
    assert list(tmp_path.iterdir()) == []


async def test_the_log_of_a_running_writer_passes_names_it_and_leaves_it_its_lock(root, written):
    before = contents(root)
    outcome = (await found(of_log(root)))["log topic"]
    assert outcome.result == "passed"
    assert outcome.detail == f"{root / 'orders'} has 1 partitions, 1 of them open in process {os.getpid()}"
    assert contents(root) == before
    with pytest.raises(BlockingIOError):
        lock(root / "orders" / "0" / "writer.lock", wait=False)
    written._opened._epoch.check()  # it is not fenced


async def test_a_writer_that_this_process_cannot_see_is_found_all_the_same(root, written, monkeypatch, tmp_path):
    monkeypatch.setattr(files, "_LOCKS", tmp_path / "no-such-file")
    assert (await found(of_log(root)))["log topic"].detail.endswith("open in a process that this one cannot see")


async def test_a_log_that_is_closed_can_be_opened_after_the_check(root, written):
    written.close()
    assert (await found(of_log(root)))["log topic"].detail.endswith("0 of them open in no process")
    lock(root / "orders" / "0" / "writer.lock", wait=False).close()


async def test_a_topic_of_another_stream_fails_with_its_remedy(root, written):
    outcome = (await found(of_log(root, stream="clicks")))["log topic"]
    assert outcome.result == "failed"
    assert "'orders'" in outcome.detail
    assert "'clicks'" in outcome.detail
    assert outcome.remedy == "choose another [relay] topic or directory"
    assert outcome.code == Exit.UNAVAILABLE  # as `efo run` exits


async def test_a_log_that_lost_its_catalog_fails_with_the_remedy_of_its_error(root, written):
    (root / "orders" / "catalog.json").unlink()
    outcome = (await found(of_log(root)))["log topic"]
    assert outcome.result == "failed"
    assert outcome.remedy.startswith("restore it from a copy")


async def test_a_partition_that_was_emptied_fails_with_the_remedy_of_its_error(root, written):
    written.append([Record("1", 0.0, b"value", "key")])
    written.close()
    for segment in (root / "orders" / "0").glob("*.arrow"):
        segment.unlink()
    outcome = (await found(of_log(root)))["log topic"]
    assert outcome.result == "failed"
    assert outcome.remedy.startswith("restore its segments from a copy")


async def test_a_directory_without_rights_fails(root, written, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    outcomes = await found(of_log(root))
    assert [outcome.result for outcome in outcomes.values()] == ["failed", "failed"]
    assert str(root) in outcomes["log directory"].remedy


# --- JSON lines ------------------------------------------------------------------------------------------------


async def of_jsonl(path):
    return (await found([jsonl_check(path)]))["jsonl file"]


async def test_json_lines_go_to_stdout_or_to_a_file_that_is_not_created(tmp_path):
    assert (await of_jsonl(None)).detail == "records go to stdout"
    assert (await of_jsonl(tmp_path / "a" / "records.jsonl")).result == "passed"
    assert list(tmp_path.iterdir()) == []


async def test_a_file_of_json_lines_names_who_writes(tmp_path):
    path = tmp_path / "records.jsonl"
    with lock(path):
        assert (await of_jsonl(path)).detail == f"{path} can be written; it is open in process {os.getpid()}"
    assert (await of_jsonl(path)).detail == f"{path} can be written; it is open in no process"


async def test_a_directory_in_the_place_of_the_file_fails(tmp_path):
    assert (await of_jsonl(tmp_path)).result == "failed"


async def test_a_file_without_rights_fails(tmp_path, monkeypatch):
    path = tmp_path / "records.jsonl"
    path.touch()
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert (await of_jsonl(path)).result == "failed"


# --- locks -----------------------------------------------------------------------------------------------------


def test_the_holders_of_exclusive_locks_are_found_by_inode():
    assert holders(LOCKS) == {901: 42, 904: 46}


def test_a_lock_file_that_does_not_exist_is_not_locked(tmp_path):
    (tmp_path / "free").touch()
    assert lock_holders([tmp_path / "none", tmp_path / "free"]) == []


@pytest.mark.parametrize(
    ("held", "text"),
    [
        ([], "in no process"),
        ([7, 7], "in process 7"),
        ([7, None, 8], "in process 7 and a process that this one cannot see and process 8"),
    ],
)
def test_processes_are_named_once(held, text):
    assert by_whom(held) == text
