"""`make conformance`: runs the conformance suite on every lease store; prints a table and, last, one JSON object."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import redirect_stdout

import pytest
from rich.console import Console
from rich.table import Table

from proofs.local_servers import installing

SUITE = "tests/efo/leases/stores/test_conformance.py"
MARKS = {"passed": "[green]passed[/]", "failed": "[bold red]FAILED[/]", "skipped": "[yellow]skipped[/]"}
HELP = """
Downloads DynamoDB Local and MiniStack if they are missing; `.ci/servers` installs PostgreSQL and Redis. Exit status: 1
if a test failed, 69 if tests were skipped because a server is missing: the last lines before the JSON say which.

Example: python -m tools.conformance --store postgres --store redis
"""


class Results:
    """A pytest plugin that collects the outcome of each test with each store."""

    def __init__(self, stores: Sequence[str]) -> None:
        self._chosen = stores
        self._cells: dict[str, tuple[str, str]] = {}
        self.outcomes: dict[tuple[str, str], str] = {}
        self.reasons: dict[str, str] = {}

    @property
    def stores(self) -> list[str]:
        """The stores that were tested."""
        return list(dict.fromkeys(store for _, store in self._cells.values()))

    @property
    def tests(self) -> list[str]:
        """The names of the tests, as words."""
        return list(dict.fromkeys(test for test, _ in self._cells.values()))

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the tests of the chosen stores, and record the test and store of each item."""
        for item in list(items):
            store = item.callspec.params["pair"]
            if self._chosen and store not in self._chosen:
                items.remove(item)
                continue
            case = f"-{item.callspec.id}-".replace(f"-{store}-", "-").strip("-")
            self._cells[item.nodeid] = (case, store)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record an outcome. One other than passed is not overwritten by a pass."""
        cell = self._cells[report.nodeid]
        if report.outcome != "passed" or (report.when == "call" and cell not in self.outcomes):
            self.outcomes[cell] = report.outcome
        if report.skipped:
            self.reasons[cell[1]] = str(report.longrepr[2]).removeprefix("Skipped: ")

    def counts(self) -> dict[str, object]:
        """Return the counts for the last line."""
        by_store = {
            store: Counter(outcome for cell, outcome in self.outcomes.items() if cell[1] == store)
            for store in self.stores
        }
        return {
            "stores": {store: {outcome: count[outcome] for outcome in MARKS} for store, count in by_store.items()},
            "skipped": sum(count["skipped"] for count in by_store.values()),
        }


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.conformance",
        description=__doc__,
        epilog=HELP,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--store", action="append", default=[], help="only this store; may be repeated")
    parser.add_argument("--no-download", action="store_true", help="download no server")
    options = parser.parse_args()
    results = Results(options.store)
    if not options.no_download:
        installing.download(options.store or installing.TARGETS)
    with redirect_stdout(sys.stderr):  # for progress
        code = pytest.main(["-q", "--no-header", SUITE], plugins=[results])
    table = Table("test", *results.stores)
    for test in results.tests:
        table.add_row(test, *(MARKS.get(results.outcomes.get((test, store), ""), "") for store in results.stores))
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    console.print(table)
    for store, reason in results.reasons.items():
        console.print(f"{store} skipped: {reason}", markup=False)
    sys.stdout.write(json.dumps(results.counts()) + "\n")
    return exit_status(int(code), results)


def exit_status(code: int, results: Results) -> int:
    """Return the exit status: pytest's, but a run that skipped tests has not passed."""
    return os.EX_UNAVAILABLE if not code and results.reasons else code


if __name__ == "__main__":
    sys.exit(main())
