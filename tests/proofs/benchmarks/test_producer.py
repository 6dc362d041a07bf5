"""The benchmark of the producer, at a small scale: its last line is JSON with a figure for each kind."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.paths import ROOT


@pytest.mark.runner
@pytest.mark.e2e
def test_its_last_line_has_the_figures_of_both_kinds():
    command = [sys.executable, "-m", "proofs.benchmarks.producer", "--seconds", "0.3", "--shards", "2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    figures = json.loads(done.stdout.splitlines()[-1])
    assert (figures["size"], figures["shards"]) == (100, 2)
    for kind in ("aggregated", "plain"):
        assert figures[kind]["records"] > 0
        assert figures[kind]["records_per_cpu_second"] > 0
        assert figures[kind]["kinesis_records_again"] == 0
