"""Run the tests that show what users of other libraries can do with efo, and print a table.

The last line is one JSON object: rows, shown, missing; failed, skipped, by_command. A row is shown if all its tests
pass, or if a command shows it, which is not run here. It is missing if nothing shows it. `--write` updates
docs/parity.md instead; a test fails while that page is outdated.

Exit status: 0, also with missing rows; 1 if a test failed; 69 if a row was skipped: pytest says what it needs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from tools.parity.features import PAGE, ROOT, Feature, read_features, renewed


@dataclass(eq=False)
class Outcomes:
    """A pytest plugin that collects the outcomes of tests, by node id without parameters and by file."""

    found: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record the outcome of a test's call, or of its set-up if that fails or skips the test."""
        if report.when == "call" or report.outcome != "passed":
            node = report.nodeid.partition("[")[0]
            for name in (node, node.partition("::")[0]):
                self.found[name].add(report.outcome)

    def of(self, feature: Feature) -> str:
        """Return the result of a feature: the worst of its tests. Skipped parameters of a test that passed are fine."""
        if feature.is_missing:
            return "missing"
        if not feature.tests:
            return "by command"
        results = {self._of_test(test) for test in feature.tests}
        return next(result for result in ("failed", "skipped", "shown") if result in results)

    def _of_test(self, test: str) -> str:
        outcomes = self.found.get(test, {"failed"})  # a test that was named and not run has failed to show anything
        if "failed" in outcomes:
            return "failed"
        return "shown" if "passed" in outcomes else "skipped"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="make parity", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="update docs/parity.md and run no tests")
    parser.add_argument("-k", dest="words", default="", help="only rows whose area, feature or answer has these words")
    options = parser.parse_args(arguments)
    features = read_features()
    if options.write:
        PAGE.write_text(renewed(PAGE.read_text(), features))
        return 0
    words = options.words.lower()
    chosen = [one for one in features if words in f"{one.area} {one.name} {one.answer}".lower()]
    return _report(chosen, _run({test for one in chosen if not one.is_missing for test in one.tests}))


def _run(tests: set[str]) -> Outcomes:
    """Run the tests. Raises RuntimeError if pytest could not run them."""
    outcomes = Outcomes()
    if tests:
        status = pytest.main([*sorted(tests), "-q", "--rootdir", str(ROOT)], plugins=[outcomes])
        if status not in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}:
            raise RuntimeError(f"pytest could not run the tests: {status!r}")
    return outcomes


def _report(features: Sequence[Feature], outcomes: Outcomes) -> int:
    results = [outcomes.of(feature) for feature in features]
    for feature, result in zip(features, results, strict=True):
        print(f"{result:10} {feature.area}: {feature.name}")
        for shown in (*feature.tests, *feature.commands):
            print(f"{'':15}{shown}")
    counts = Counter(results)
    shown = counts["shown"] + counts["by command"]
    summary = {"rows": len(features), "shown": shown, "missing": counts["missing"]}
    print(
        json.dumps(
            summary | {"failed": counts["failed"], "skipped": counts["skipped"], "by_command": counts["by command"]}
        )
    )
    if counts["failed"]:
        return 1
    return os.EX_UNAVAILABLE if counts["skipped"] else 0


if __name__ == "__main__":
    sys.exit(main())
