"""`make dashboards`. Progress goes to stderr; the last line of stdout is one JSON object.

Exits with 1 on failure, and with 69 if Prometheus, Go or Java is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import trio

from efo.errors import EfoError
from proofs.dashboards.cases import CASES
from proofs.dashboards.programs import ProgramError, build_collector, missing
from proofs.dashboards.run import run
from proofs.go_build import GoBuildError


def main() -> int:
    """Parse the command line, do the proof and return the exit code."""
    parser = argparse.ArgumentParser("python -m proofs.dashboards", description=__doc__)
    parser.add_argument("--keep", type=Path, help="keep all files, also those of Prometheus, in this new directory")
    jobs = ", ".join(sorted(case.job for case in CASES))
    parser.add_argument(
        "--only", metavar="JOBS", help=f"only these faults, and no pipeline: the panels do not count ({jobs})"
    )
    arguments = parser.parse_args()
    if advice := missing():
        print("\n".join(advice), file=sys.stderr)
        print(json.dumps({"dashboards": "skipped", "missing": advice}))
        return os.EX_UNAVAILABLE
    only = tuple(arguments.only.split(",")) if arguments.only else ()
    if unknown := set(only) - {case.job for case in CASES}:
        parser.error(f"--only: no job is {', '.join(sorted(unknown))}; there are {jobs}")
    began = time.monotonic()

    def report(text: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {text}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="efo-dashboards-", ignore_cleanup_errors=True) as name:
        directory = (arguments.keep or Path(name)).resolve()
        directory.mkdir(parents=True, exist_ok=True)
        try:
            report("building the Collector, unless it is there; the first time takes some minutes")
            build_collector()
            result = trio.run(run, directory, report, only)
        except (EfoError, GoBuildError, ProgramError, trio.TooSlowError) as error:
            print(error, file=sys.stderr)
            print(
                json.dumps({"dashboards": "failed", "error": str(error).splitlines()[0] if str(error) else "timeout"})
            )
            return 1
    print(json.dumps(result))
    return 0 if result["dashboards"] == "passed" else 1


if __name__ == "__main__":
    sys.exit(main())
