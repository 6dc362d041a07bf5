"""Figures of two benchmarks that are commands of their own: idle shards, and the start of a process."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from proofs.benchmarks.figures.results import Measured, measured
from proofs.benchmarks.readers.running import ClientError, Timing
from proofs.paths import ROOT

LONG_ENOUGH = 15.0
"""Seconds of an idle measurement, at least: three events and three checkpoints of each shard."""
TIMEOUT = 900.0


def idle(timing: Timing) -> dict[str, Measured]:
    """Keep 1,000 and 4,000 shards subscribed that have no records, and stop."""
    seconds = max(timing.seconds, LONG_ENOUGH)
    found = run("proofs.benchmarks.idle", "--shards", "1000", "4000", "--seconds", str(seconds))
    thousand, four_thousand = found["runs"]
    return {
        "idle_1000_cpu_percent": measured([thousand["cpu_percent"]]),
        "idle_1000_kb_per_shard": measured([thousand["kb_per_shard"]]),
        "idle_4000_cpu_percent": measured([four_thousand["cpu_percent"]]),
        "stop_1000_s": measured([thousand["drain_s"] + thousand["close_s"]]),
    }


def start(timing: Timing) -> dict[str, Measured]:
    """Start processes on a fake Kinesis."""
    names = ("imports", "first_record", "restart_after_kill", "all_shards")
    only = [argument for name in names for argument in ("--only", name)]
    found = run("proofs.benchmarks.startup", "--trials", str(timing.windows), *only)
    return {
        "import_ms": measured([found["import_ms"]]),
        "first_record_cold_s": measured([found["first_record_s"]["cold"]]),
        "first_record_warm_s": measured([found["first_record_s"]["warm"]]),
        "restart_after_kill_s": measured([found["restart_after_kill_s"]]),
        "all_100_shards_s": measured([found["all_100_shards_s"]]),
    }


def run(module: str, *arguments: str) -> dict[str, Any]:
    """Run a benchmark; return the JSON of its last line. Raises ClientError."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT, check=False)  # noqa: S603
    sys.stderr.write(done.stderr)
    if done.returncode:
        end = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ClientError(f"{module} ended with exit code {done.returncode}: {end}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
