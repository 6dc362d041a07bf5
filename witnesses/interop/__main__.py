"""`python -m witnesses.interop`: play the story and print, last, one line of JSON with its figures.

Exit status: 0 if nothing was lost or out of order and leases moved both ways, 1 if not, 69 if something is missing.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from functools import partial
from typing import Final

import trio

from tests.servers.running import NotInstalledError
from witnesses.examination import WitnessError
from witnesses.interop.story import play
from witnesses.interop.workers import KCL_CLIENT

UNAVAILABLE: Final = 69
USAGE: Final = 64


def main() -> int:
    """Run the command."""
    if sys.argv[1:]:
        is_help = sys.argv[1] in {"-h", "--help"}
        print(f"{__doc__}\nExample: make kcl-interop", file=sys.stdout if is_help else sys.stderr)
        return 0 if is_help else USAGE
    if missing := KCL_CLIENT.missing():
        print(f"KCL's worker cannot be built: {missing}", file=sys.stderr)
        return UNAVAILABLE
    try:
        verdict = trio.run(play, partial(_say, time.monotonic()))
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
