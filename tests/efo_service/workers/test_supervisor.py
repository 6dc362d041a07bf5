"""The supervisor with real processes. Its workers are small stubs; tests/e2e/test_workers.py has real workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio
from structlog.testing import capture_logs

from efo.errors import ConfigurationError
from efo_service.commands.run import _supervise
from efo_service.config.loading import load_all
from efo_service.config.settings import Settings
from efo_service.config.streams import Configuration
from efo_service.exit_codes import Exit
from efo_service.web.probe import http_get
from efo_service.workers.process import efo_command
from efo_service.workers.supervisor import Supervisor, with_worker_id
from tests.waiting import TIMEOUT, until

pytestmark = pytest.mark.e2e

WORKER = """
import http.server, json, os, signal, sys, threading

class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_):
        pass

received = []
def stop(*_):
    received.append(1)
    if len(received) == {signals}:
        os._exit({code})
signal.signal(signal.SIGTERM, stop)
if {code_at_start} is not None:
    os._exit({code_at_start})
def orphaned():
    os.read(0, 1)
    os._exit(0)
threading.Thread(target=orphaned, daemon=True).start()
server = http.server.HTTPServer(("127.0.0.1", int(os.environ["EFO_SERVICE__PORT"])), Ready)
threading.Thread(target=server.serve_forever, daemon=True).start()
while True:
    signal.pause()
"""


@pytest.fixture
def settings(monkeypatch):
    for name in [name for name in os.environ if name.startswith("EFO_")]:
        monkeypatch.delenv(name)
    environment = {"KINESIS__STREAM": "orders", "LEASES__WORKER_ID": "w", "SERVICE__PORT": "0"}
    for name, value in environment.items():
        monkeypatch.setenv(f"EFO_{name}", value)
    return load_all(None)


def worker(*, signals=1, code=0, code_at_start=None):
    script = WORKER.format(signals=signals, code=code, code_at_start=code_at_start)
    return [sys.executable, "-S", "-E", "-c", script]


class Running:
    """A running supervisor."""

    def __init__(self, supervisor):
        self.supervisor = supervisor
        self.code = None
        self.port = 0
        self.ended = trio.Event()

    async def run(self, task_status):
        self.code = await self.supervisor.run(task_status=task_status)
        self.ended.set()

    async def start(self, nursery):
        url = await nursery.start(self.run)
        self.port = int(url.rpartition(":")[2])

    async def get(self, path):
        status, body = await trio.to_thread.run_sync(http_get, "127.0.0.1", self.port, path)
        return status, json.loads(body)

    async def until_ready(self):
        await until(lambda: not self.supervisor.obstacles())

    async def end(self):
        await self.ended.wait()
        return self.code


@pytest.fixture
async def start(settings, nursery):
    async def start(command, count=2):
        running = Running(Supervisor(settings, command, count))
        await running.start(nursery)
        return running

    with trio.fail_after(TIMEOUT):
        yield start


async def test_each_worker_has_its_own_name_and_port_and_a_signal_stops_all(start):
    running = await start(worker())
    await running.until_ready()
    assert (await running.get("/readyz"))[0] == 200
    status = (await running.get("/status"))[1]
    assert [worker["worker_id"] for worker in status["workers"]] == ["w-1", "w-2"]
    assert status["stream"] == "orders"
    assert "worker_id" not in status
    assert len({worker["port"] for worker in status["workers"]} | {running.port}) == 3
    assert len({worker["pid"] for worker in status["workers"]}) == 2
    os.kill(os.getpid(), signal.SIGTERM)
    assert await running.end() is Exit.OK


async def test_a_killed_worker_is_restarted(start):
    with capture_logs() as logs:
        running = await start(worker())
        await running.until_ready()
        killed, other = [worker.process.pid for worker in running.supervisor.workers]
        os.kill(killed, signal.SIGKILL)
        await until(lambda: running.supervisor.workers[0].process.pid != killed)
        await running.until_ready()
        assert running.supervisor.workers[1].process.pid == other
        os.kill(os.getpid(), signal.SIGINT)
        assert await running.end() is Exit.OK  # only the last exit code of each worker counts
    (ended,) = [line for line in logs if line["event"] == "worker_ended"]
    assert (ended["worker"], ended["exit_code"], ended["restart_seconds"]) == ("w-1", -9, 1.0)
    assert running.supervisor._registry.get_sample_value("efo_worker_restarts_total", {"worker": "w-1"}) == 1


@pytest.mark.parametrize("code", [Exit.UNAVAILABLE, Exit.CONFIGURATION])
async def test_a_worker_that_fails_before_any_was_ready_stops_all(start, code):
    running = await start(worker(code_at_start=int(code)))
    assert await running.end() is code


async def test_a_second_signal_is_forwarded_and_the_most_severe_exit_code_counts(start):
    running = await start(worker(signals=2, code=int(Exit.DRAIN_DEADLINE)))
    await running.until_ready()
    os.kill(os.getpid(), signal.SIGTERM)
    await until(running.supervisor._stopping.is_set)
    status, body = await running.get("/readyz")
    assert (status, body["problems"][0]) == (503, "draining")
    assert all(worker.is_running for worker in running.supervisor.workers)
    while running.code is None:  # two signals at once may be delivered as one
        os.kill(os.getpid(), signal.SIGTERM)
        with trio.move_on_after(0.5):
            await running.ended.wait()
    assert running.code is Exit.DRAIN_DEADLINE


async def test_a_worker_that_does_not_stop_is_killed(start, monkeypatch):
    monkeypatch.setattr("efo_service.workers.supervisor._GRACE_SECONDS", -24.5)  # half a second after the signal
    with capture_logs() as logged:
        running = await start(worker(signals=1000))
        await running.until_ready()
        os.kill(os.getpid(), signal.SIGTERM)
        assert await running.end() is Exit.INTERNAL
    killed = [line["worker"] for line in logged if line["event"] == "worker_killed"]
    assert sorted(killed) == ["w-1", "w-2"]


def test_several_workers_are_refused_with_the_jsonl_sink(settings, monkeypatch):
    monkeypatch.setenv("EFO_RELAY__SINK", "jsonl")
    with pytest.raises(ConfigurationError, match='sink = "jsonl" writes one file from one process'):
        _supervise(load_all(None), None, 2)


SUPERVISE = """
import json, sys, trio
from efo_service.config.loading import load_all
from efo_service.workers.supervisor import Supervisor

async def main():
    supervisor = Supervisor(load_all(None), json.loads(sys.argv[1]), 2)
    async def report():
        while not supervisor._has_been_ready:
            await trio.sleep(0.05)
        sys.stderr.write(json.dumps([worker.process.pid for worker in supervisor.workers]) + "\\n")
        sys.stderr.flush()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(report)
        await supervisor.run()

trio.run(main)
"""


async def test_workers_end_when_their_supervisor_is_killed(settings):
    with trio.fail_after(TIMEOUT):
        process = await trio.lowlevel.open_process(
            [sys.executable, "-c", SUPERVISE, json.dumps(worker())], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        reported = b""
        while not reported.endswith(b"\n"):
            reported += await process.stderr.receive_some()
        process.kill()
        await process.wait()
        for pid in json.loads(reported):
            await until(lambda pid=pid: not is_alive(pid))


def is_alive(pid):
    """Return whether a process runs. A zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


TRAP = 'raise SystemExit("imported from the current directory")'


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A directory with modules that must not be imported, and `lib` in it, which may be on the path."""
    (tmp_path / "efo_service.py").write_text(TRAP)
    (tmp_path / "mine.py").write_text(TRAP)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/mine.py").write_text("found = True")
    return tmp_path


def run(command: list[str], directory: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("EFO_")}
    return subprocess.run(
        command, cwd=directory, env=own | environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_the_command_runs_efos_own_code_in_any_directory(elsewhere):
    done = run(efo_command("version"), elsewhere)
    assert done.returncode == Exit.OK, done.stderr


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize(("path", "message"), [("", "cannot be imported"), ("lib", "is not a function")])
def test_an_extractor_is_imported_from_the_same_path_with_and_without_workers(elsewhere, workers, path, message):
    script = str(Path(sys.executable).with_name("efo"))
    done = run(
        [script, "run", "--workers", workers],
        elsewhere,
        PYTHONPATH=str(elsewhere / path) if path else "",
        EFO_KINESIS__STREAM="orders",
        EFO_RELAY__TRACE_EXTRACTOR="mine:found",
        EFO_SERVICE__PORT="0",
    )
    assert done.returncode == Exit.CONFIGURATION, done.stdout + done.stderr
    assert message in done.stdout
    assert "current directory" not in done.stdout + done.stderr


def settings_in(directory, **leases):
    return Configuration.of(
        Settings(kinesis={"stream": "orders"}, leases={"path": directory / "leases.sqlite", **leases})
    )


def streams_in(directory, *streams):
    found = {name: Settings(kinesis={"stream": name}, leases={"path": directory / "leases.sqlite"}) for name in streams}
    return Configuration(found, has_tables=True)


def test_processes_on_one_host_have_different_ids(tmp_path):
    with with_worker_id(settings_in(tmp_path)) as one, with_worker_id(settings_in(tmp_path)) as other:
        assert one.worker_id != other.worker_id


def test_a_process_that_is_restarted_has_the_same_id(tmp_path):
    with with_worker_id(settings_in(tmp_path / "var")) as before:
        pass
    with with_worker_id(settings_in(tmp_path / "var")) as after:
        assert after.worker_id == before.worker_id


def test_all_streams_have_the_id_of_the_process_and_it_does_not_depend_on_them(tmp_path):
    with with_worker_id(streams_in(tmp_path, "a", "b")) as before:
        assert len({settings.leases.worker_id for settings in before.streams.values()} - {None}) == 1
    with with_worker_id(streams_in(tmp_path, "c")) as after:
        assert after.worker_id == before.worker_id


def test_a_configured_id_is_used_as_it_is(tmp_path):
    with with_worker_id(settings_in(tmp_path, worker_id="pod-7")) as configuration:
        assert configuration.worker_id == "pod-7"
    assert list(tmp_path.iterdir()) == []
