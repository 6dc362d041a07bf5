"""`efo demo` as a user runs it: the command, its JSON line and its exit code."""

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
    """Run the demo; return its exit code, the JSON of its last line of stdout, and stderr."""
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


def assert_every_record_arrived(summary: dict, records: int) -> None:
    errors = {name: summary[name] for name in ("lost", "duplicated", "order_violations", "unexpected")}
    assert errors == {"lost": 0, "duplicated": 0, "order_violations": 0, "unexpected": 0}
    assert (summary["produced"], summary["relayed"]) == (records, records)
    assert (summary["splits"], summary["merges"]) == (1, 1)
    assert summary["subscriptions"] >= 6  # four shards at the start, and the children of the split and the merge
    assert summary["latency_ms"]["p99"] >= summary["latency_ms"]["p50"] > 0


def test_without_spark_every_record_arrives_in_the_log(tmp_path: Path) -> None:
    code, summary, stderr = demo("--no-spark", "--records", "5000", "--seconds", "4", "--keep", str(tmp_path / "kept"))
    assert code == Exit.OK, stderr
    assert_every_record_arrived(summary, 5000)
    assert summary["landed"] is None
    assert (tmp_path / "kept" / "efo.toml").exists()


def test_a_crash_of_the_service_loses_and_duplicates_nothing() -> None:
    code, summary, stderr = demo("--no-spark", "--records", "20000", "--seconds", "4", "--crash")
    assert code == Exit.OK, stderr
    assert_every_record_arrived(summary, 20_000)
    assert summary["crashes"] == 1


@pytest.mark.runner
@pytest.mark.spark
def test_with_spark_every_record_arrives_in_parquet() -> None:
    code, summary, stderr = demo("--records", "5000", "--seconds", "4")
    assert code == Exit.OK, stderr
    assert_every_record_arrived(summary, 5000)
    assert summary["landed"] == 5000


def test_without_java_the_demo_names_the_requirement(tmp_path: Path) -> None:
    code, _, stderr = demo("--records", "10", PATH=str(tmp_path))
    assert code == Exit.UNAVAILABLE
    assert "Spark needs Java 17 or newer" in stderr
    assert "Traceback" not in stderr


def test_a_directory_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    shutil.copy(__file__, tmp_path)
    code, _, stderr = demo("--no-spark", "--keep", str(tmp_path))
    assert code == Exit.USAGE
    assert "is not empty" in stderr
