"""Let workers of KCL and efo share an application. Print the figures and, as the last line, one JSON object.

With --aggregates, KCL reads what efo's producer puts.

Exit status: 0 if nothing is lost or out of order and leases moved both ways, 1 otherwise, 69 if a tool is missing.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from functools import partial
from typing import Final

import trio

from proofs.interop.clients.runner import InteropError
from proofs.interop.kcl.aggregates import Deaggregated, run_aggregates
from proofs.interop.kcl.comparison import Comparison
from proofs.interop.kcl.migration import MigrationScenario
from proofs.interop.kcl.scenario import run_scenario
from proofs.interop.kcl.workers import KCL_CLIENT
from proofs.local_servers.running import NotInstalledError

UNAVAILABLE: Final = 69


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="make kcl-interop",
        description=__doc__,
        epilog='example: make kcl-interop ARGS="--efo-makes-table"',
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--efo-makes-table", action="store_true", help="let efo create the lease table, instead of KCL")
    parser.add_argument("--many-streams", action="store_true", help="share a multi-stream application, of two streams")
    parser.add_argument(
        "--aggregates", action="store_true", help="let KCL alone read KPL aggregates of efo's producer; two minutes"
    )
    parser.add_argument(
        "--migration", action="store_true", help="let KCL migrate to a single table and assign by CPU, beside efo"
    )
    options = parser.parse_args()
    if missing := KCL_CLIENT.missing():
        print(f"KCL's worker cannot be built: {missing}", file=sys.stderr)
        return UNAVAILABLE
    progress = partial(_print_progress, time.monotonic())
    scenario = partial(
        run_scenario,
        progress,
        MigrationScenario if options.migration else None,
        efo_makes_table=options.efo_makes_table,
        many_streams=options.many_streams,
    )
    comparison: Comparison | Deaggregated
    try:
        comparison = trio.run(run_aggregates, progress) if options.aggregates else trio.run(scenario)
    except NotInstalledError as error:
        print(error, file=sys.stderr)
        return UNAVAILABLE
    except InteropError as error:
        print(error, file=sys.stderr)
        return 1
    for name, value in asdict(comparison).items():
        print(f"{name:20} {value:>8}")
    print(json.dumps(asdict(comparison)))
    return 0 if comparison.passed else 1


def _print_progress(since: float, message: str) -> None:
    print(f"[{time.monotonic() - since:5.0f} s] {message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
