"""`efo top` against the endpoints of a service: in a pipe, and on a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import termios

import pytest
import trio
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily

from efo_service.cli import call
from efo_service.exit_codes import Exit
from efo_service.web.app import create_app
from efo_service.web.health import Health
from efo_service.web.server import serve
from tests.paths import ROOT

SHARD = {
    "condition": "current",
    "subscription": "live",
    "lag_seconds": 0.0,
    "last_event_age_seconds": 1.5,
    "checkpoint_age_seconds": 0.0,
}


class Growing(CollectorRegistry):
    """Metrics of shard-1 that have grown by 100 records each time that they are asked for. `step`: by how many."""

    def __init__(self) -> None:
        super().__init__()
        self.value, self.step = 1000, 100

    def collect(self):
        family = CounterMetricFamily(
            "messaging_client_consumed_messages", ".", labels=["messaging_destination_partition_id"]
        )
        family.add_metric(["shard-1"], self.value)
        self.value += self.step
        yield family


@pytest.fixture
async def metrics(nursery, monkeypatch):
    """Serve the endpoints of a worker with two shards, and return its metrics."""
    metrics = Growing()
    status = {
        "version": "0.1.0",
        "application": "billing",
        "worker_id": "w-1",
        "problems": ["shard-1: paused: resume it"],
        "lease_table": "known",
        "workers": 1,
        "shards": [
            {**SHARD, "shard_id": "shard-0"},
            {**SHARD, "shard_id": "shard-1", "lag_seconds": 42.0, "condition": "paused"},
        ],
    }
    url = await nursery.start(serve, create_app(Health(clock=lambda: 0.0), metrics, lambda: status), "127.0.0.1", 0)
    monkeypatch.setenv("EFO_KINESIS__STREAM", "orders")
    monkeypatch.setenv("EFO_SERVICE__PORT", url.rpartition(":")[2])
    return metrics


async def top(*arguments: str) -> int:
    return await trio.to_thread.run_sync(call, ["top", "--interval", "0.001", *arguments])


@pytest.mark.parametrize("options", [[], ["--once"]])
async def test_without_a_terminal_it_prints_one_table_with_rates(options, metrics, capsys):
    assert await top(*options) == Exit.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        "billing, worker w-1: not ready; lease table known; shards: 1 current, 1 paused",
        "! shard-1: paused: resume it",
    ]
    first, second = (line.split() for line in lines[4:])
    assert first[:4] == ["shard-1", "paused", "live", "42.0s"]
    assert float(first[4].replace(",", "")) > 0
    assert second == ["shard-0", "current", "live", "0.0s", "-", "-", "1.5s", "0.0s"]


async def test_json_has_the_same_as_numbers(metrics, capsys):
    assert await top("--once", "--json", "--sort", "shard", "--limit", "1") == Exit.OK
    (line,) = capsys.readouterr().out.splitlines()
    shown = json.loads(line)
    assert shown["conditions"] == {"current": 1, "paused": 1}
    assert (shown["application"], shown["ready"], shown["shards_not_shown"]) == ("billing", False, 1)
    (shard,) = shown["shards"]
    assert shard == {**SHARD, "shard_id": "shard-0", "worker_id": "w-1", "records_per_second": None} | {
        "bytes_per_second": None
    }


async def test_counters_that_fell_have_no_rate(metrics, capsys):
    metrics.step = -100
    assert await top("--once", "--json") == Exit.OK
    assert [shard["records_per_second"] for shard in json.loads(capsys.readouterr().out)["shards"]] == [None, None]


@pytest.mark.parametrize("options", [[], ["--once"], ["--json"], ["--once", "--json"]])
def test_a_service_that_does_not_answer_is_unavailable(options, capsys, monkeypatch):
    monkeypatch.setenv("EFO_KINESIS__STREAM", "orders")
    monkeypatch.setenv("EFO_SERVICE__PORT", "1")
    assert call(["top", *options]) == Exit.UNAVAILABLE
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "no response from http://127.0.0.1:1/status" in shown.err


@pytest.mark.parametrize(
    "options", [["--interval", "0"], ["--interval", "nan"], ["--interval", "1e9"], ["--limit", "0"], ["--sort", "x"]]
)
def test_an_impossible_option_is_refused(options):
    assert call(["top", *options]) == Exit.USAGE


async def test_json_in_a_pipe_goes_on_until_the_reader_ends(metrics):
    command = [sys.executable, "-m", "efo_service.cli", "top", "--json", "--interval", "0.001"]
    process = await trio.lowlevel.open_process(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with trio.fail_after(60):
        received = b""
        while received.count(b"\n") < 3:
            received += await process.stdout.receive_some()
        await process.stdout.aclose()
        assert await process.wait() == Exit.OK
        assert await process.stderr.receive_some() == b""
    assert all(json.loads(line)["application"] == "billing" for line in received.splitlines()[:3])


class Terminal:
    """A process of `efo top` on a terminal of 120 columns and 20 lines."""

    def __init__(self, *options: str) -> None:
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 120, 0, 0))
        environ = {key: value for key, value in os.environ.items() if key not in {"COLUMNS", "LINES", "NO_COLOR"}}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "efo_service.cli", "top", *options],
            cwd=ROOT, stdin=slave, stdout=slave, stderr=slave, env={**environ, "TERM": "xterm"}, start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        self.shown = b""

    def read_until(self, text: bytes, count: int = 1) -> None:
        while self.shown.count(text) < count:
            self.shown += os.read(self._master, 4096)

    def type(self, key: bytes) -> None:
        os.write(self._master, key)

    def end(self) -> int:
        try:
            while chunk := os.read(self._master, 4096):
                self.shown += chunk
        except OSError:  # Linux: the other side is closed
            pass
        os.close(self._master)
        return self.process.wait(60)


async def in_thread(function, *arguments):
    with trio.fail_after(60):
        return await trio.to_thread.run_sync(function, *arguments, abandon_on_cancel=True)


async def test_a_terminal_is_redrawn_until_q(metrics):
    terminal = Terminal("--interval", "0.05")
    await in_thread(terminal.read_until, b"shard-0", 3)
    terminal.type(b"q")
    assert await in_thread(terminal.end) == Exit.OK
    assert b"\x1b[1A" in terminal.shown  # it went up to draw in place
    assert b"Traceback" not in terminal.shown


async def test_ctrl_c_ends_it_quietly(metrics):
    terminal = Terminal("--interval", "600")
    await in_thread(terminal.read_until, b"shard-0")
    terminal.process.send_signal(signal.SIGINT)
    assert await in_thread(terminal.end) == Exit.OK
    assert b"interrupted" not in terminal.shown


@pytest.mark.parametrize("options", [[], ["--json"]])
async def test_on_a_terminal_it_tries_again_while_nothing_answers(options, monkeypatch):
    monkeypatch.setenv("EFO_KINESIS__STREAM", "orders")
    monkeypatch.setenv("EFO_SERVICE__PORT", "1")
    terminal = Terminal("--interval", "0.05", *options)
    await in_thread(terminal.read_until, b"trying again", 2)
    terminal.type(b"q")
    assert await in_thread(terminal.end) == Exit.OK
