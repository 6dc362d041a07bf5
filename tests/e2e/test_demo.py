"""`efo demo` as a user runs it: one command, a JSON line, an exit code."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from efo_service.exit_codes import Exit

pytestmark = pytest.mark.e2e


def demo(*arguments: str, **environment: str) -> tuple[int, dict, str]:
    """Run the demo; return its exit code, its last line of stdout, and stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "efo_service.cli", "demo", "--json", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=environment or None,
    )
    lines = done.stdout.splitlines()
    return done.returncode, json.loads(lines[-1]) if lines else {}, done.stderr


def assert_nothing_is_amiss(summary: dict, records: int) -> None:
    amiss = {name: summary[name] for name in ("lost", "duplicated", "order_violations", "foreign")}
    assert amiss == {"lost": 0, "duplicated": 0, "order_violations": 0, "foreign": 0}
    assert (summary["produced"], summary["relayed"]) == (records, records)
    assert (summary["splits"], summary["merges"]) == (1, 1)
    assert summary["subscriptions"] >= 6  # three shards that live on, one split, two merged; and their children
    assert summary["latency_ms"]["p99"] >= summary["latency_ms"]["p50"] > 0


def test_without_spark(tmp_path: Path) -> None:
    code, summary, stderr = demo("--no-spark", "--records", "5000", "--seconds", "4", "--keep", str(tmp_path / "kept"))
    assert code == Exit.OK, stderr
    assert_nothing_is_amiss(summary, 5000)
    assert summary["landed"] is None
    assert (tmp_path / "kept" / "efo.toml").exists()


def test_a_kill_in_the_middle_loses_and_doubles_nothing() -> None:
    code, summary, stderr = demo("--no-spark", "--records", "20000", "--seconds", "4", "--crash")
    assert code == Exit.OK, stderr
    assert_nothing_is_amiss(summary, 20_000)
    assert summary["crashes"] == 1


@pytest.mark.spark
def test_with_spark() -> None:
    code, summary, stderr = demo("--records", "5000", "--seconds", "4")
    assert code == Exit.OK, stderr
    assert_nothing_is_amiss(summary, 5000)
    assert summary["landed"] == 5000


def test_without_java_it_says_what_to_install(tmp_path: Path) -> None:
    code, _, stderr = demo("--records", "10", PATH=str(tmp_path))
    assert code == Exit.UNAVAILABLE
    assert "Spark needs Java 17 or newer" in stderr
    assert "Traceback" not in stderr


def test_a_directory_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    shutil.copy(__file__, tmp_path)
    code, _, stderr = demo("--no-spark", "--keep", str(tmp_path))
    assert code == Exit.USAGE
    assert "is not empty" in stderr
