"""`python -m proofs.compatibility`: read what earlier versions wrote; print a table and, last, one line of JSON.

Exit status: 0 if everything was read as it was written, 1 if not, 2 for invalid arguments.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from efo_service.version import VERSION
from proofs.compatibility.golden import write
from proofs.compatibility.reading import Reading, read_all
from proofs.compatibility.upgrade import before_the_last_format, last_release, upgrade_and_downgrade
from proofs.paths import ROOT

GOLDEN: Final = ROOT / "tests" / "golden"
"""A directory for each version."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m proofs.compatibility", description=__doc__)
    parser.add_argument(
        "--write",
        nargs="?",
        const=VERSION,
        metavar="NAME",
        help="first write the golden files of this version, once; NAME: before a release, after a change of a format",
    )
    parser.add_argument("--golden", type=Path, default=GOLDEN, help="directory of the golden files")
    parser.add_argument(
        "--upgrade",
        nargs="?",
        const="",
        metavar="COMMIT",
        help="run that version and this one in turn on one log and lease store (default: the last release, or while "
        "there is none, before the last change of a format)",
    )
    options = parser.parse_args(arguments)
    if options.upgrade is not None:
        return _upgrade(options.upgrade)
    if options.write is not None:
        try:
            write(options.golden / options.write)
        except FileExistsError as error:
            print(f"{error.filename} exists: golden files are written once", file=sys.stderr)
            return 2
    results = read_versions(options.golden)
    for version, readings in results.items():
        for name, reading in readings.items():
            print(f"{version:12} {name:10} {reading.read:4} read, {len(reading.problems)} problems")
            for problem in reading.problems:
                print(f"    {problem}")
    passed = bool(results) and not any(one.problems for readings in results.values() for one in readings.values())
    versions = {version: {name: asdict(one) for name, one in readings.items()} for version, readings in results.items()}
    print(json.dumps({"passed": passed, "versions": versions}))
    return 0 if passed else 1


def _upgrade(commit: str) -> int:
    with tempfile.TemporaryDirectory(prefix="efo-upgrade-") as scratch:
        result = upgrade_and_downgrade(commit or last_release() or before_the_last_format(), Path(scratch))
    for step in result.steps:
        print(f"{step.version:12} {step.outcome:8} {step.records:5} records in the log  {step.reason}")
    print(json.dumps(asdict(result)))
    return 0 if result.passed else 1


def read_versions(golden: Path) -> dict[str, dict[str, Reading]]:
    """Read the golden files of all versions; return the results by version and format."""
    with tempfile.TemporaryDirectory(prefix="efo-compat-") as scratch:
        return {version.name: read_all(version, Path(scratch) / version.name) for version in sorted(golden.iterdir())}


if __name__ == "__main__":
    sys.exit(main())
