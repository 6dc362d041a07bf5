"""The table and the last line of `make conformance`."""

import json
import os
import subprocess
import sys

import pytest

from tests.paths import ROOT
from tools.conformance import Results, exit_status


def run(*arguments):
    command = [sys.executable, "-m", "tools.conformance", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.e2e
def test_the_table_lists_each_test_and_the_last_line_has_the_counts():
    done = run("--store", "memory")
    assert done.returncode == 0, done.stderr
    *table, last = done.stdout.splitlines()
    counts = json.loads(last)
    assert counts["skipped"] == 0
    memory = counts["stores"].pop("memory")
    assert counts["stores"] == {}
    assert memory["failed"] == memory["skipped"] == 0
    assert memory["passed"] == sum("passed" in line for line in table) > 20
    assert any("one of many concurrent takes succeeds" in line for line in table)


def test_a_store_without_its_server_is_counted_as_skipped():
    results = Results([])
    for store, outcome in (("memory", "passed"), ("redis", "skipped")):
        results._cells[store] = ("a test", store)
        results.outcomes["a test", store] = outcome
    assert results.counts() == {
        "stores": {
            "memory": {"passed": 1, "failed": 0, "skipped": 0},
            "redis": {"passed": 0, "failed": 0, "skipped": 1},
        },
        "skipped": 1,
    }


def test_a_run_that_skipped_tests_has_not_passed():
    results = Results([])
    assert exit_status(0, results) == 0
    results.reasons["redis"] = "Redis is not installed"
    assert exit_status(0, results) == os.EX_UNAVAILABLE
    assert exit_status(1, results) == 1
