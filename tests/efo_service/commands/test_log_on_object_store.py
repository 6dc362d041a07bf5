"""`efo log` on an object store: the commands are those of a log on a disk."""

from __future__ import annotations

import json

import pytest

from efo_service.cli import call
from efo_service.exit_codes import Exit
from efo_service.log.objects import files
from efo_service.log.reader_offsets import commit_reader
from efo_service.log.topic import log_files
from efo_service.object_store.url import log_root
from tests.efo_service.log.objects.logs import SHARD, Log

URL = "s3://logs/efo"


@pytest.fixture
def log(monkeypatch) -> Log:
    log = Log()
    monkeypatch.setattr(files, "open_store", lambda _url: log.client())
    writer = log.writer()
    for _ in range(2):
        log.append(writer, 3)
        log.fold()
    return log


def test_inspect_verify_and_export_read_it(log, capsys) -> None:
    assert call(["log", "inspect", "--directory", URL]) == Exit.OK
    assert SHARD in capsys.readouterr().out
    assert call(["log", "inspect", "--directory", URL, "--json"]) == Exit.OK
    inspected = json.loads(capsys.readouterr().out)
    assert (inspected["log"], inspected["topics"][0]["partitions"][0]["end"]) == (URL, 6)
    assert call(["log", "verify", "--directory", URL]) == Exit.OK
    assert "6 records in 2 segments verified: no problems" in capsys.readouterr().out
    assert call(["log", "export", "--topic", "orders", "--directory", URL, "--start", "4"]) == Exit.OK
    assert [json.loads(line)["offset"] for line in capsys.readouterr().out.splitlines()] == [4, 5]


def test_its_live_files_are_listed_and_its_readers_removed(log, capsys) -> None:
    assert call(["log", "segments", "--directory", URL, "--json"]) == Exit.OK
    files = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["start"], one["end"]) for one in files] == [(0, 3), (3, 6)]
    keys = [one["name"].removeprefix(f"{log.memory.name}/") for one in files]
    assert [len(log.memory.objects[key].content) for key in keys] == [one["size"] for one in files]
    commit_reader(log_files(log_root(URL)), "orders", "billing", {0: 1}, 1.0)
    assert call(["log", "readers", "remove", "billing", "--yes", "--directory", URL]) == Exit.OK
    capsys.readouterr()
    assert call(["log", "readers", "list", "--directory", URL, "--json"]) == Exit.OK
    assert json.loads(capsys.readouterr().out)["readers"] == []


def test_verify_compares_the_leases_and_names_what_is_deleted(log, capsys, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("EFO_KINESIS__STREAM", "orders")
    monkeypatch.setenv("EFO_RELAY__DIRECTORY", URL)
    monkeypatch.setenv("EFO_LEASES__PATH", str(tmp_path / "leases.sqlite"))
    assert call(["log", "verify"]) == Exit.OK
    del log.memory.objects["orders/catalog.json"]
    capsys.readouterr()
    assert call(["log", "verify"]) == 1
    assert f"{URL}/orders/catalog.json does not exist, but the topic has" in capsys.readouterr().out


@pytest.mark.parametrize("url", ["s3://logs/../x", "ftp://logs/x"])
def test_a_wrong_url_is_a_mistake_in_the_configuration(url, capsys) -> None:
    assert call(["log", "inspect", "--directory", url]) == Exit.CONFIGURATION
    assert "expected s3://bucket/prefix" in capsys.readouterr().err or ".." in url
