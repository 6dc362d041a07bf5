from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
import trio

from efo.leases.stores.sqlite.store import SqliteLeaseStore
from efo.model import Checkpoint, Lease, Record
from efo_service.cli import call
from efo_service.exit_codes import Exit
from efo_service.log.disk import DiskFiles
from efo_service.log.partition_writer import open_partition
from efo_service.log.reader_offsets import commit_reader
from efo_service.log.segments import SCHEMA, list_segments


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "log"
    writer = open_partition(DiskFiles(root), "orders", "orders", "shardId-000000000000", lambda: 1_700_000_000.0)
    writer.append([Record(str(number), 1.0, b"v", "k") for number in range(1, 4)])
    writer.close()
    commit_reader(DiskFiles(root), "orders", "billing", {0: 1}, 1_700_000_100.0)
    return root


def test_inspect_shows_partitions_and_readers_as_tables_and_as_json(root, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert call(["log", "inspect", "--directory", str(root)]) == Exit.OK
    shown = capsys.readouterr().out
    assert "shardId-000000000000" in shown
    assert "2023-11-14T22:13:20" in shown
    assert "billing" in shown
    assert call(["log", "inspect", "--directory", str(root), "--json"]) == Exit.OK
    (line,) = capsys.readouterr().out.splitlines()
    (topic,) = json.loads(line)["topics"]
    assert topic["partitions"][0]["end"] == 3
    assert topic["readers"] == [{"name": "billing", "lag": 2, "committed_at": 1_700_000_100.0}]


def test_inspect_notes_what_the_catalog_and_the_directories_contradict(root, capsys) -> None:
    list_segments(root / "orders" / "0")[0].path.unlink()
    (root / "lost" / "0").mkdir(parents=True)
    assert call(["log", "inspect", "--directory", str(root)]) == Exit.OK
    notes = capsys.readouterr().err
    assert "orders/0 has no segment, but records were committed to it" in notes
    assert "lost has partitions, but no catalog" in notes
    assert call(["log", "inspect", "--directory", str(root), "--json"]) == Exit.OK
    (topic,) = json.loads(capsys.readouterr().out)["topics"]
    assert len(topic["problems"]) == 1


def test_the_default_directory_is_that_of_the_configuration(root, capsys, monkeypatch) -> None:
    monkeypatch.setenv("EFO_KINESIS__STREAM", "orders")
    monkeypatch.setenv("EFO_RELAY__DIRECTORY", str(root))
    monkeypatch.setenv("EFO_LEASES__PATH", str(root / "leases.sqlite"))
    assert call(["log", "verify"]) == Exit.OK
    assert "3 records in 1 segments verified: no problems" in capsys.readouterr().out


def test_verify_exits_with_1_if_there_is_a_problem(root, capsys) -> None:
    (segment,) = list_segments(root / "orders" / "0")
    segment.path.write_bytes(b"")
    assert call(["log", "verify", "--directory", str(root), "--json"]) == 1
    result = json.loads(capsys.readouterr().out)
    assert (result["records"], len(result["problems"])) == (0, 1)
    assert call(["log", "verify", "--directory", str(root)]) == 1
    assert "there are problems" in capsys.readouterr().out


def test_export_writes_a_new_file_and_refuses_an_existing_one(root, tmp_path, capsys) -> None:
    arguments = ["log", "export", "--directory", str(root), "--topic", "orders", "--output", str(tmp_path / "out")]
    assert call(arguments) == Exit.OK
    assert [json.loads(line)["offset"] for line in (tmp_path / "out").read_text().splitlines()] == [0, 1, 2]
    assert call(arguments) == Exit.USAGE
    assert "choose a new file" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_export_writes_the_columns_of_the_log_as_a_file(root, tmp_path, capsys, form) -> None:
    output = tmp_path / f"orders.{form}"
    arguments = ["log", "export", "--directory", str(root), "--format", form]
    assert call([*arguments, "--output", str(output), "--start", "1"]) == Exit.OK
    table = pq.read_table(output) if form == "parquet" else pa.ipc.open_file(output).read_all()
    assert table.schema.equals(SCHEMA)
    assert table.column("offset").to_pylist() == [1, 2]
    assert call(arguments) == Exit.USAGE
    assert f"--format {form} is for a file: name it with --output" in capsys.readouterr().err


def test_export_takes_times_as_bounds(root, capsys) -> None:
    arguments = ["log", "export", "--directory", str(root)]
    assert call([*arguments, "--start", "1970-01-01T00:00:01Z"]) == Exit.OK
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert call([*arguments, "--end=-15m"]) == Exit.OK
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert call([*arguments, "--end", "1970-01-01T00:00:01Z"]) == Exit.OK
    assert capsys.readouterr().out == ""
    assert call([*arguments, "--start", "yesterday"]) == Exit.USAGE
    assert "--start yesterday: expected an offset, or a time with its zone" in capsys.readouterr().err


def test_an_export_that_fails_leaves_no_file(root, tmp_path) -> None:
    list_segments(root / "orders" / "0")[0].path.write_bytes(b"")
    output = tmp_path / "orders.parquet"
    assert call(["log", "export", "--directory", str(root), "--format", "parquet", "--output", str(output)]) != Exit.OK
    assert not output.exists()


def test_export_to_a_closed_pipe_ends_without_an_error(root) -> None:
    writer = open_partition(DiskFiles(root), "big", "orders", "shardId-000000000000", lambda: 1.0)
    writer.append([Record(str(number), 1.0, bytes(1000), "k") for number in range(1, 500)])
    writer.close()
    command = [sys.executable, "-m", "efo_service.cli", "log", "export", "--directory", str(root), "--topic", "big"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout.readline().startswith(b'{"topic":"big"')
        child.stdout.close()
        assert child.stderr.read() == b""
    assert child.returncode == 0


@pytest.mark.parametrize("command", [["inspect"], ["verify"], ["export", "--topic", "t"]])
def test_a_missing_log_directory_is_a_usage_error(tmp_path, capsys, command) -> None:
    assert call(["log", *command, "--directory", str(tmp_path / "nothing")]) == Exit.USAGE
    assert "is not a directory" in capsys.readouterr().err


# --- the leases ----------------------------------------------------------------------------------------


SHARD = "shardId-000000000000"


@pytest.fixture
def with_leases(root, tmp_path, monkeypatch):
    """Configure the log and a lease store; return a function that creates a lease."""
    monkeypatch.setenv("EFO_KINESIS__STREAM", "orders")
    monkeypatch.setenv("EFO_RELAY__DIRECTORY", str(root))
    monkeypatch.setenv("EFO_LEASES__PATH", str(tmp_path / "leases.sqlite"))

    def create(shard_id: str, checkpoint: Checkpoint) -> None:
        async def work():
            async with SqliteLeaseStore(tmp_path / "leases.sqlite", "efo", "orders") as store:
                await store.create(Lease(shard_id, checkpoint))

        trio.run(work)

    return create


def test_verify_compares_the_leases_of_the_configuration(with_leases, root, tmp_path, capsys) -> None:
    assert call(["log", "verify"]) == Exit.OK
    assert not (tmp_path / "leases.sqlite").exists()
    with_leases(SHARD, Checkpoint("3"))
    assert call(["log", "verify"]) == Exit.OK
    assert "verified, 1 leases compared: no problems" in capsys.readouterr().out
    with_leases("shardId-000000000001", Checkpoint("9"))
    assert call(["log", "verify", "--topic", "orders"]) == 1
    assert "the lease of shardId-000000000001 is at 9" in capsys.readouterr().out
    assert call(["log", "verify", "--directory", str(root)]) == Exit.OK


def test_verify_reports_a_log_that_is_gone(with_leases, root, capsys) -> None:
    with_leases(SHARD, Checkpoint("3"))
    shutil.rmtree(root / "orders")
    assert call(["log", "verify", "--json"]) == 1
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert f"the lease of {SHARD} is at 3" in problem


def test_verify_reports_a_lost_catalog_once(with_leases, root, capsys) -> None:
    with_leases(SHARD, Checkpoint("3"))
    (root / "orders" / "catalog.json").unlink()
    for arguments in ([], ["--topic", "orders"]):
        assert call(["log", "verify", "--json", *arguments]) == 1
        (problem,) = json.loads(capsys.readouterr().out)["problems"]
        assert "catalog.json does not exist" in problem


def test_adopt_lists_what_it_does_and_does_it_once(with_leases, root, capsys) -> None:
    with_leases(SHARD, Checkpoint("3"))
    with_leases("shardId-000000000001", Checkpoint("9"))
    assert call(["log", "adopt"]) == Exit.USAGE  # there is no terminal to ask
    shown = capsys.readouterr().err
    assert "shardId-000000000001 continues after its lease's checkpoint 9: what was read before" in shown
    assert "use --yes" in shown
    assert call(["log", "adopt", "--yes"]) == Exit.OK
    assert "shardId-000000000001: adopted as partition 1" in capsys.readouterr().out
    assert call(["log", "verify"]) == Exit.OK
    capsys.readouterr()
    assert call(["log", "adopt", "--json"]) == Exit.OK
    assert json.loads(capsys.readouterr().out) == {"adopted": {}, "continued": False}


def test_adopt_replaces_an_emptied_partition_also_of_dead_letters(with_leases, root, capsys) -> None:
    writer = open_partition(DiskFiles(root), "refused", "orders", SHARD, lambda: 1.0)
    writer.append([Record("1", 1.0, b"v", "k")])
    writer.close()
    list_segments(root / "refused" / "0")[0].path.unlink()
    with_leases("shardId-000000000001", Checkpoint("9"))
    assert call(["log", "adopt", "--topic", "refused", "--yes", "--json"]) == Exit.OK
    result = capsys.readouterr()
    assert json.loads(result.out) == {"adopted": {SHARD: 1}, "continued": False}
    assert "the records of its emptied partition 0 are lost" in result.err


def test_export_ends_with_an_error_at_a_hole_unless_gaps_are_allowed(root, capsys) -> None:
    writer = open_partition(DiskFiles(root), "orders", "orders", SHARD, lambda: 1.0)
    for number in (4, 5):
        writer.append([Record(str(number), 1.0, b"v", "k")])
    writer.close()
    list_segments(root / "orders" / "0")[1].path.unlink()
    arguments = ["log", "export", "--directory", str(root), "--topic", "orders"]
    assert call(arguments) == Exit.UNAVAILABLE
    assert "offsets 3 to 3 are missing" in capsys.readouterr().err
    assert call([*arguments, "--allow-gaps"]) == Exit.OK
    shown = capsys.readouterr()
    assert [json.loads(line)["offset"] for line in shown.out.splitlines()] == [0, 1, 2, 4]
    assert "0: the offsets 3 to 3 are missing" in shown.err


def test_export_takes_the_only_topic_and_names_them_if_there_are_several(root, capsys) -> None:
    assert call(["log", "export", "--directory", str(root), "--start", "2"]) == Exit.OK
    assert json.loads(capsys.readouterr().out)["offset"] == 2
    open_partition(DiskFiles(root), "clicks", "clicks", "shardId-000000000000", lambda: 1.0).close()
    assert call(["log", "export", "--directory", str(root)]) == Exit.USAGE
    assert "has 2 topics: choose one with --topic: clicks, orders" in capsys.readouterr().err


def test_the_live_files_are_listed_for_other_tools(root, capsys, monkeypatch) -> None:
    [segment] = list_segments(root / "orders" / "0")
    monkeypatch.chdir(root.parent)
    assert call(["log", "segments", "--directory", "log"]) == Exit.OK
    assert capsys.readouterr().out == f"{segment.path}\n"
    assert call(["log", "segments", "--directory", str(root), "--topic", "orders", "--json"]) == Exit.OK
    assert json.loads(capsys.readouterr().out) == {
        "partition": 0,
        "shard_id": "shardId-000000000000",
        "start": 0,
        "end": 3,
        "size": segment.path.stat().st_size,
        "name": str(segment.path),
    }


def test_readers_are_listed_and_removed(root, capsys) -> None:
    of = ["--directory", str(root)]
    assert call(["log", "readers", "list", *of]) == Exit.OK
    assert "billing" in capsys.readouterr().out
    assert call(["log", "readers", "remove", "biling", "--yes", *of]) == Exit.USAGE
    assert "has no reader 'biling': it has billing" in capsys.readouterr().err
    assert call(["log", "readers", "remove", "billing", "--yes", *of, "--json"]) == Exit.OK
    assert json.loads(capsys.readouterr().out) == {"removed": "billing"}
    assert call(["log", "readers", "list", *of, "--json"]) == Exit.OK
    assert json.loads(capsys.readouterr().out)["readers"] == []
