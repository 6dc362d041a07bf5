"""config/otel-collector/config.yaml, as a real Collector reads it; and what the proof does without its programs."""

from __future__ import annotations

import os
import subprocess

import pytest

from proofs.dashboards import __main__ as command, programs
from tests.paths import ROOT

CONFIGURATION = ROOT / "config/otel-collector/config.yaml"


@pytest.mark.parametrize("exporter", ["", "debug", "otlphttp"])
def test_a_collector_accepts_the_configuration(exporter):
    if not programs.COLLECTOR.exists():
        pytest.skip("the Collector is not built: make dashboards builds it")
    done = subprocess.run(
        [programs.COLLECTOR, "validate", "--config", CONFIGURATION],
        env={**os.environ, **({"EFO_TRACES_EXPORTER": exporter} if exporter else {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_missing_program_is_named_with_how_to_install_it(monkeypatch, capsys):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setattr("sys.argv", ["dashboards"])
    assert command.main() == 69
    printed = capsys.readouterr()
    assert "apt-get install prometheus" in printed.err
    assert "Go 1.25" in printed.err
    assert '"dashboards": "skipped"' in printed.out
