"""Let efo read third-party Kinesis servers: kinesis-mock, MiniStack and LocalStack.

Each server is downloaded when it is first needed, started on the loopback interface, and checked: registration,
positions, renewal, splits, merges and errors. stdout has a table and, as the last line, one JSON object. Exit status:
0 if everything passed, 1 if a record is lost, duplicated or out of order or a check failed, 69 if a server cannot be
downloaded or started.

example: python -m proofs.interop.servers ministack kinesis-mock
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import trio

from proofs.interop.servers import stream
from proofs.interop.servers.launcher import Progress, ServerError, install
from proofs.interop.servers.runner import ALL_CHECKS, LIFE_CHECKS, Check, Report, run_checks
from proofs.interop.servers.servers import SERVERS, Server

_RECORDS: Final = 1000
_COLUMNS: Final = ("records", "lost", "duplicated", "order_violations", "renewals")


def main() -> int:
    """Run the command."""
    options = _parse(sys.argv[1:])
    servers = [server for server in SERVERS if not options.servers or server.name in options.servers]
    stream.set_credentials()
    if options.install:
        return os.EX_UNAVAILABLE if trio.run(_install_all, servers) else 0
    outcomes = trio.run(_check_all, servers, {**(LIFE_CHECKS if options.life else {}), **ALL_CHECKS})
    if not options.json:
        _print_table(outcomes)
    print(json.dumps({name: _members(outcome) for name, outcome in outcomes.items()}))
    if any(isinstance(outcome, Report) and not outcome.passed for outcome in outcomes.values()):
        return 1
    return os.EX_UNAVAILABLE if any(isinstance(outcome, ServerError) for outcome in outcomes.values()) else 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    summary, _, example = (__doc__ or "").rpartition("\n\n")
    parser = argparse.ArgumentParser(
        prog="python -m proofs.interop.servers",
        description=summary,
        epilog=example,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [server.name for server in SERVERS]
    parser.add_argument("servers", nargs="*", metavar="server", help=f"some of {', '.join(names)}; default: all")
    parser.add_argument("--install", action="store_true", help="only download the servers")
    parser.add_argument("--life", action="store_true", help="also wait for the usual renewals: five more minutes each")
    parser.add_argument("--json", action="store_true", help="print only the JSON object, without the table")
    options = parser.parse_args(arguments)
    if unknown := set(options.servers) - set(names):
        parser.error(f"unknown server {', '.join(sorted(unknown))}: choose from {', '.join(names)}")
    return options


async def _install_all(servers: Sequence[Server]) -> list[ServerError]:
    """Download the servers, and return the errors."""
    errors = []
    for server in servers:
        progress = _progress_of(server)
        try:
            progress("downloading, unless it is installed")
            await install(server)
        except ServerError as error:
            progress(str(error))
            errors.append(error)
    return errors


async def _check_all(servers: Sequence[Server], checks: dict[str, Check]) -> dict[str, Report | ServerError]:
    """Check the servers one after the other."""
    outcomes: dict[str, Report | ServerError] = {}
    for server in servers:
        progress = _progress_of(server)
        try:
            progress("downloading, unless it is installed")
            await install(server)
            outcomes[server.name] = await run_checks(server, checks, _RECORDS, progress)
        except ServerError as error:
            progress(str(error))
            outcomes[server.name] = error
    return outcomes


def _progress_of(server: Server) -> Progress:
    return partial(_print_progress, server, time.monotonic())


def _print_progress(server: Server, since: float, message: str) -> None:
    print(f"[{server.name} {time.monotonic() - since:5.1f} s] {message}", file=sys.stderr, flush=True)


def _members(outcome: Report | ServerError) -> dict[str, Any]:
    if not isinstance(outcome, Report):
        return {"unavailable": str(outcome).partition("\n")[0]}
    comparison = outcome.comparison
    return {
        "version": outcome.server.version,
        "records": comparison.records,
        "lost": comparison.lost,
        "duplicated": comparison.duplicated,
        "order_violations": comparison.order_violations,
        "renewals": outcome.renewals,
        "exercises": {name: result.outcome for name, result in outcome.results.items()},
    }


def _print_table(outcomes: dict[str, Report | ServerError]) -> None:
    for name, outcome in outcomes.items():
        if isinstance(outcome, Report):
            print(f"{name} {outcome.server.version}")
            for check, result in outcome.results.items():
                print(f"  {check:27} {result}")
    print("  ".join([f"{'server':14}", *_COLUMNS]))
    for name, outcome in outcomes.items():
        members = _members(outcome)
        shown = members.get("unavailable") or "  ".join(f"{members[column]:>{len(column)}}" for column in _COLUMNS)
        print(f"{name:14}  {shown}")


if __name__ == "__main__":
    sys.exit(main())
