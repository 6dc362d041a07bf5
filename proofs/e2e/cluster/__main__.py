"""`make cluster-e2e`: `format("efo")` on a standalone Spark cluster, with workers killed. Prints a JSON line last.

Exit status 1: records were lost, repeated or out of order, or a wrong environment was not refused. 69: something that
the run needs is not installed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import trio

from efo.errors import EfoError
from efo_service.exit_codes import Exit
from efo_service.spark.errors import JavaMissingError
from efo_service.spark.java import find_java
from proofs.e2e.cluster.environments import check_installed
from proofs.e2e.cluster.run import WAYS, Options, run
from proofs.e2e.cluster.verdict import problems
from proofs.e2e.command import progress, run_directory
from proofs.local_servers.running import NotInstalledError


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m proofs.e2e.cluster",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example: make cluster-e2e ARGS='--records 100000'",
    )
    parser.add_argument("--records", type=int, default=40_000, help="number of records to produce (40000)")
    parser.add_argument("--rate", type=float, default=1_000, help="most records per second (1000)")
    parser.add_argument("--keep", type=Path, help="keep logs, environments and Parquet files in this new directory")
    parsed = parser.parse_args(arguments)
    if parsed.records < 1 or parsed.rate <= 0:
        parser.error("--records and --rate must be above 0")
    return parsed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; return the exit code."""
    parsed = parse(arguments)
    report = progress()
    try:
        find_java()
        check_installed()
        with run_directory(parsed.keep) as directory:
            options = Options(records=parsed.records, rate=parsed.rate, directory=directory)
            summary = trio.run(run, options, report)
    except (NotInstalledError, JavaMissingError) as error:
        print(f"cluster-e2e: skipped: {error}", file=sys.stderr)
        return Exit.UNAVAILABLE
    except EfoError as error:
        print(error, file=sys.stderr)
        return 1
    found = problems(summary, WAYS)
    for problem in found:
        report(problem)
    print(json.dumps(summary))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
