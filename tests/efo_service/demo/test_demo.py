"""How the demo ends, and what its children inherit. Its result is checked in tests/e2e/test_demo.py."""

from __future__ import annotations

import os
import signal

import pytest

from efo_service.cli import call
from efo_service.demo import demo
from efo_service.demo.demo import DemoProcess
from efo_service.demo.report import ProgressBars
from efo_service.exit_codes import Exit


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_demo_and_its_children(number, tmp_path, monkeypatch, capsys):
    children = []

    class RecordedChild(DemoProcess):
        async def start(self):
            await super().start()
            children.append(self._process)

    monkeypatch.setattr(demo, "DemoProcess", RecordedChild)
    monkeypatch.setattr(ProgressBars, "show", lambda _bars, _progress: os.kill(os.getpid(), number))
    code = call(["demo", "--no-spark", "--records", "10", "--keep", str(tmp_path / "kept")])
    shown = capsys.readouterr()
    assert code == Exit.INTERRUPTED, shown.err
    assert shown.err.endswith("efo: interrupted\n")
    assert shown.out == ""
    assert [child.returncode for child in children] == [-signal.SIGKILL]


def test_children_do_not_inherit_variables_that_configure_efo_aws_or_telemetry(tmp_path, monkeypatch):
    real = {
        "EFO_RELAY__SINK": "kafka",
        "efo_kinesis__stream": "billing",
        "EFO_CONFIG": "/etc/efo/efo.toml",
        "AWS_PROFILE": "production",
        "AWS_ENDPOINT_URL_DYNAMODB": "https://vpce.example.com",
        "AWS_ACCESS_KEY_ID": "AKIDREAL",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "https://collector.example.com",
    }
    for name, value in real.items():
        monkeypatch.setenv(name, value)
    inherited = DemoProcess("run", ["run"], tmp_path, {"AWS_ACCESS_KEY_ID": "demo"})._environment
    assert {name: inherited[name] for name in real if name in inherited} == {"AWS_ACCESS_KEY_ID": "demo"}
    assert inherited["PATH"] == os.environ["PATH"]


async def test_children_run_efos_own_code_in_any_directory(tmp_path):
    (tmp_path / "efo_service.py").write_text('raise SystemExit("imported from the current directory")')
    child = DemoProcess("version", ["version"], tmp_path, {})
    await child.start()
    try:
        assert await child._running.wait() == Exit.OK, child.log.read_text()
    finally:
        await child.end()


@pytest.mark.parametrize("path", ["file", "file/below"])
def test_a_directory_that_cannot_be_created_is_a_usage_error(path, tmp_path, capsys):
    (tmp_path / "file").touch()
    assert call(["demo", "--no-spark", "--keep", str(tmp_path / path)]) == Exit.USAGE
    assert "Traceback" not in capsys.readouterr().err
