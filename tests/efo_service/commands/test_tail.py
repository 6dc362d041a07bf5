"""`efo tail` as an operator uses it, on a served fake."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys

import pytest
import trio

from efo.model import Position
from efo.testing import FakeKinesis, FakeKinesisThread, When
from efo.testing.faults.kinds import Refuse
from efo_service.cli import call
from efo_service.commands.tail import _say_if_idle, parse_start, parse_until
from efo_service.exit_codes import Exit
from efo_service.operations.tail import Tail, Tailer
from tests.environment import use_fake
from tests.paths import ROOT


@pytest.fixture(scope="module")
def kinesis():
    with FakeKinesisThread() as fake:
        yield fake


@pytest.fixture(autouse=True)
def environment(kinesis, monkeypatch):
    """Neither a configuration file nor a configured stream."""
    use_fake(monkeypatch, kinesis)


@pytest.fixture
def stream(kinesis, request):
    """Create a stream with two records, and return its name."""
    name = re.sub(r"\W", "-", request.node.name)[:100]
    kinesis.create_stream(name, 1)
    kinesis.put(name, "a", b'{"id":1}')
    kinesis.put(name, "b", b'{"id":2}')
    return name


def start(*arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "efo_service.cli", "tail", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_it_shows_the_records_of_a_stream_without_a_configuration(stream, capsys):
    assert call(["tail", stream, "--from", "trim_horizon", "--until", "now", "--filter", '"id":2']) == Exit.OK
    shown = capsys.readouterr()
    [line] = shown.out.splitlines()
    assert line.endswith('Z shardId-000000000000 b {"id":2}')
    assert shown.err == ""


def test_a_record_without_a_partition_key_has_none(kinesis, capsys):
    kinesis.create_stream("auto", 1, distribution="AUTO")
    kinesis.put("auto", None, b"text")
    assert call(["tail", "auto", "--from", "trim_horizon", "--limit", "1"]) == Exit.OK
    assert capsys.readouterr().out.endswith("Z shardId-000000000000 - text\n")
    assert call(["tail", "auto", "--from", "trim_horizon", "--limit", "1", "--json"]) == Exit.OK
    assert json.loads(capsys.readouterr().out)["key"] is None


@pytest.mark.parametrize("options", [["--json"], ["--format", "json"]])
def test_json_has_one_object_per_record(stream, options, capsys):
    assert call(["tail", stream, "--from", "-1h", "--limit", "2", "--encoding", "utf-8", *options]) == Exit.OK
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["key"], line["value"]) for line in lines] == [("a", '{"id":1}'), ("b", '{"id":2}')]


def test_the_stream_of_the_command_line_goes_before_the_configured_one(stream, capsys, tmp_path, monkeypatch):
    (tmp_path / "efo.toml").write_text('[kinesis]\nstream = "another"\n')
    arguments = ["--config", str(tmp_path / "efo.toml"), "--from", "trim_horizon", "--limit", "1", "--format", "raw"]
    assert call(["tail", stream, *arguments]) == Exit.OK
    assert capsys.readouterr().out == '{"id":1}\n'
    monkeypatch.setenv("EFO_KINESIS__STREAM", stream)
    assert call(["tail", *arguments]) == Exit.OK
    assert capsys.readouterr().out == '{"id":1}\n'


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nothing"], Exit.UNAVAILABLE, "the stream nothing was not found: check its name"),
        (["no/stream"], Exit.CONFIGURATION, "no/stream"),
        ([], Exit.CONFIGURATION, "EFO_KINESIS__STREAM"),
        (["orders", "--from", "tomorrow"], Exit.USAGE, "--from tomorrow: expected latest"),
        (["orders", "--from", "2026-01-31T12:00:00"], Exit.USAGE, "a time with its zone"),
        (["orders", "--from", "2999-01-01T00:00:00Z"], Exit.USAGE, "--from: 2999-01-01T00:00:00Z is in the future"),
        (["orders", "--until", "later"], Exit.USAGE, "--until later: expected now"),
        (["orders", "--from", "-1h", "--until", "-2h"], Exit.USAGE, "--until -2h is before --from -1h"),
        (["orders", "--shard", "shardId-9"], Exit.USAGE, "no such shard; it has 1: shardId-000000000000"),
        (["orders", "--limit", "0"], Exit.USAGE, "limit"),
        (["orders", "--interval", "0.1"], Exit.USAGE, "interval"),
    ],
)
def test_a_wrong_request_is_one_clear_sentence(kinesis, arguments, code, message, capsys):
    if "orders" not in kinesis.call(lambda fake: list(fake._core.streams)):
        kinesis.create_stream("orders", 1)
    assert call(["tail", *arguments]) == code
    shown = capsys.readouterr()
    assert message in " ".join(shown.err.split())
    assert "Traceback" not in shown.err
    assert shown.out == ""


def test_a_missing_permission_is_named(kinesis, stream, capsys):
    message = "User: ann is not authorized to perform: kinesis:GetRecords"
    kinesis.inject(Refuse("AccessDeniedException", message), When(operation="GetRecords"))
    assert call(["tail", stream]) == Exit.UNAVAILABLE
    assert message in " ".join(capsys.readouterr().err.split())


def test_ctrl_c_ends_it_quietly(stream):
    with start(stream, "--from", "trim_horizon") as child:
        assert b'{"id":1}' in child.stdout.readline()
        child.send_signal(signal.SIGINT)
        assert child.stderr.read() == b""
    assert child.returncode == Exit.INTERRUPTED


def test_a_closed_pipe_ends_it_quietly_even_if_nothing_arrives(stream):
    with start(stream, "--from", "trim_horizon") as child:
        assert b'{"id":1}' in child.stdout.readline()
        child.stdout.close()
        assert child.stderr.read() == b""
    assert child.returncode == Exit.OK


async def test_a_terminal_is_reported_once_what_is_being_read_if_nothing_arrives(autojump_clock, capsys):
    async with FakeKinesis() as fake:
        fake.create_stream("quiet", 3)
        tailer = Tailer(fake.kinesis("quiet"), Tail(start=Position.latest()), lambda *_: None, print)
        with trio.move_on_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_say_if_idle, tailer)
                await tailer.run()
    assert capsys.readouterr().err == "note: no records for 10 s: 3 shards, up to 0.0 s behind the tip\n"


def test_times_are_positions_or_how_long_ago():
    now = 1_700_000_000.0
    assert parse_start("-15m", now).timestamp == now - 900
    assert parse_start("-1.5h", now).timestamp == now - 5400
    assert parse_start("-2d", now).timestamp == now - 2 * 86400
    assert parse_start("2023-11-14T22:13:10Z", now).timestamp == now - 10
    assert parse_start("LATEST", now).timestamp is None
    assert parse_until("now", now) == now + 1  # the service's time may be late by a second
    assert parse_until("-30s", now) == now - 30
