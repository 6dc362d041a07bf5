"""Cross every form in which a program may be written with everything that holds in each, in virtual time.

The forms: trio, asyncio and synchronous code; `consume`, `open_consumer` with a handler, an iteration or a processor;
one stream and many. stdout has the matrix and, as the last line, one JSON object. `shown`: cells whose test passed;
`missing`: cells whose test failed, or that have none, and no reason for it. Exit status 1 if any is missing.

example: make forms; make forms ARGS="-k until"
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import defaultdict
from typing import Any, Final

import pytest

from proofs.paths import ROOT

TESTS: Final = (
    "tests/efo/adapters/test_conformance.py",
    "tests/efo/adapters/test_rules.py",
    "tests/efo/adapters/test_ends.py",
    "tests/efo/adapters/test_advice.py",
    "tests/efo/adapters/test_messages.py",
)
SIGNS: Final = {"shown": "+", "none": "-", "missing": "!"}


class Cells:
    """What became of each promise in each form; a plugin of pytest. `reasons`: why a cell needs no test."""

    def __init__(self) -> None:
        self.states: dict[str, dict[str, str]] = defaultdict(dict)
        self.reasons: dict[str, set[str]] = defaultdict(set)
        self._promises: dict[str, str] = {}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Note which test is of which promise."""
        for item in items:
            if (mark := item.get_closest_marker("promise")) is not None:
                self._promises[item.nodeid] = mark.args[0]

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Note how a test ended."""
        promise = self._promises.get(report.nodeid)
        if promise is None or (report.when != "call" and report.passed):
            return
        form = report.nodeid.rpartition("[")[2].rstrip("]")
        if report.skipped:
            self.states[promise][form] = "none"
            self.reasons[promise].add(str(report.longrepr[2]).removeprefix("Skipped: "))
        elif self.states[promise].get(form) != "missing":
            self.states[promise][form] = "shown" if report.passed else "missing"


def main(arguments: list[str]) -> int:
    """Run the tests and print the matrix; return the exit status. Arguments are pytest's, but for --help."""
    parser = argparse.ArgumentParser(
        "make forms", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    _, arguments = parser.parse_known_args(arguments)
    os.environ["EFO_FORMS"] = "all"
    cells = Cells()
    os.chdir(ROOT)
    pytest.main(["-q", "-p", "no:cacheprovider", "--no-header", *TESTS, *arguments], plugins=[cells])
    from tests.efo.adapters.programs import PROGRAMS, WITH_POLICY  # noqa: PLC0415 - pytest rewrites it first

    needs_policy = "it needs a failure policy, which only a handler or a processor has"
    for promise, states in cells.states.items():
        is_of_policies = set(states) <= set(WITH_POLICY)
        for form in PROGRAMS:
            if is_of_policies and form not in WITH_POLICY:
                states[form] = "none"
                cells.reasons[promise].add(needs_policy)
            states.setdefault(form, "missing")
    counts = _print(cells, list(PROGRAMS))
    print(json.dumps({"forms": len(PROGRAMS), "promises": len(cells.states), **counts}))
    return 1 if counts["missing"] or not cells.states else 0


def _print(cells: Cells, forms: list[str]) -> dict[str, int]:
    width = max(map(len, cells.states), default=0)
    for number, form in enumerate(forms):
        print(f"{'':{width}}  {'| ' * number}{form}")
    counts = {"shown": 0, "missing": 0}
    for promise, states in cells.states.items():
        print(f"{promise:{width}}  {' '.join(SIGNS[states[form]] for form in forms)}")
        for state in counts:
            counts[state] += list(states.values()).count(state)
    for promise, reasons in cells.reasons.items():
        print(f"- {promise}: {'; '.join(sorted(reasons))}")
    return counts


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
