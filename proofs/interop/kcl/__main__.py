"""Let KCL and efo share an application: play the story and print, last, one line of JSON with its figures.

Exit status: 0 if nothing was lost or out of order and leases moved both ways, 1 if not, 69 if something is missing.
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

from proofs.interop.clients.examination import WitnessError
from proofs.interop.kcl.story import play
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
    parser.add_argument("--efo-makes-table", action="store_true", help="efo makes the lease table, by default KCL does")
    options = parser.parse_args()
    if missing := KCL_CLIENT.missing():
        print(f"KCL's worker cannot be built: {missing}", file=sys.stderr)
        return UNAVAILABLE
    try:
        verdict = trio.run(partial(play, partial(_say, time.monotonic()), efo_makes_table=options.efo_makes_table))
    except NotInstalledError as error:
        print(error, file=sys.stderr)
        return UNAVAILABLE
    except WitnessError as error:
        print(error, file=sys.stderr)
        return 1
    for name, value in asdict(verdict).items():
        print(f"{name:20} {value:>8}")
    print(json.dumps(asdict(verdict)))
    return 0 if verdict.is_right else 1


def _say(since: float, what: str) -> None:
    print(f"[{time.monotonic() - since:5.0f} s] {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
