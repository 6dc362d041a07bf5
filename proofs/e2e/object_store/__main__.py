"""`python -m proofs.e2e.object_store`, or `make object-store-e2e`. The last line of stdout is JSON, of all servers.

Exits with 1 on failure, and with 69 if a server is not installed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

import trio

from efo.errors import EfoError
from efo_service.exit_codes import Exit
from proofs.e2e.command import progress, run_directory
from proofs.e2e.object_store.run import Options, passed, run
from proofs.local_servers.object_stores import SERVERS
from proofs.local_servers.running import NotInstalledError

_COUNTS = ("produced", "landed", "lost", "duplicated", "order_violations", "kills")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all servers, or those that are named; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m proofs.e2e.object_store",
        description="Runs FakeKinesis, two `efo run` and a real object store behind a proxy that refuses, delays and"
        " loses answers. Kills the relays at random (SIGKILL). Then compares the log with the records sent.",
        epilog="example: make object-store-e2e ARGS='versitygw --kills 20 --seed 7'",
    )
    parser.add_argument("servers", nargs="*", help=f"some of {', '.join(SERVERS)} (all)")
    parser.add_argument("--kills", type=int, default=6, help="number of kills for each server (6)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the kills and faults (1)")
    parser.add_argument("--records", type=int, default=20_000, help="number of records for each server (20000)")
    parser.add_argument("--rate", type=float, default=2_000, help="most records per second (2000)")
    parser.add_argument(
        "--leases",
        choices=("sqlite", "log"),
        default="sqlite",
        help="where the leases are: log is beside the log (sqlite)",
    )
    parsed = parser.parse_args(arguments)
    names = parsed.servers or list(SERVERS)
    if unknown := [name for name in names if name not in SERVERS]:
        parser.error(f"unknown server {unknown[0]!r}: choose from {', '.join(SERVERS)}")
    report = progress()
    summaries: dict[str, dict[str, object]] = {}
    is_passed = True
    for name in names:
        report(f"--- {name}")
        with run_directory() as directory:
            options = Options(
                records=parsed.records,
                rate=parsed.rate,
                kills=parsed.kills,
                seed=parsed.seed,
                leases=parsed.leases,
                directory=directory,
            )
            try:
                summary = trio.run(run, name, options, report)
            except NotInstalledError as error:
                print(error, file=sys.stderr)
                return Exit.UNAVAILABLE
            except EfoError as error:
                print(f"{name}: {error}", file=sys.stderr)
                return 1
        report(f"{name}: {json.dumps(summary)}")
        summaries[name] = summary
        is_passed = is_passed and passed(summary)
    totals = {key: sum(int(str(summary[key])) for summary in summaries.values()) for key in _COUNTS}
    print(json.dumps({**totals, "servers": summaries}))
    return 0 if is_passed else 1


if __name__ == "__main__":
    sys.exit(main())
