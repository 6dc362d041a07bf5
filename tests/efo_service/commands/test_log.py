from __future__ import annotations

import json
import subprocess
import sys

import pytest

from efo.model import Record
from efo_service.cli import call
from efo_service.exit_codes import Exit
from efo_service.relay.log.partition_writer import open_partition
from efo_service.relay.log.reader_offsets import commit_reader
from efo_service.relay.log.segments import list_segments


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "log"
    writer = open_partition(root, "orders", "orders", "shardId-000000000000", lambda: 1_700_000_000.0)
    writer.append([Record(str(number), 1.0, b"v", "k") for number in range(1, 4)])
    writer.close()
    commit_reader(root, "orders", "billing", {0: 1}, 1_700_000_100.0)
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


def test_the_default_directory_is_that_of_the_configuration(root, capsys, monkeypatch) -> None:
    monkeypatch.setenv("EFO_KINESIS__STREAM", "orders")
    monkeypatch.setenv("EFO_RELAY__DIRECTORY", str(root))
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


def test_export_to_a_closed_pipe_ends_without_an_error(root) -> None:
    writer = open_partition(root, "big", "orders", "shardId-000000000000", lambda: 1.0)
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
