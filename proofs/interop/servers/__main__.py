"""Let efo read servers that others wrote: kinesis-mock, MiniStack and LocalStack.

Each is fetched from its registry when it is first needed, started on the loopback interface, and put through
registration, positions, renewal, splits, merges and errors. On stdout comes a table and, as the last line, one JSON
object. Exit status: 0 if all is right, 1 if a record is lost, doubled or out of order or an exercise failed, 69 if a
server cannot be fetched or started.

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
from proofs.interop.servers.running import Say, ServerError, install
from proofs.interop.servers.servers import SERVERS, Server
from proofs.interop.servers.trial import LIFE, WHOLE, Exercise, Report, attempt

_RECORDS: Final = 1000
_COLUMNS: Final = ("records", "lost", "duplicated", "order_violations", "renewals")


def main() -> int:
    """Run the command."""
    options = _parse(sys.argv[1:])
    servers = [server for server in SERVERS if not options.servers or server.name in options.servers]
    stream.set_credentials()
    if options.install:
        return os.EX_UNAVAILABLE if trio.run(_fetch_all, servers) else 0
    outcomes = trio.run(_try_all, servers, {**(LIFE if options.life else {}), **WHOLE})
    if not options.json:
        _print_table(outcomes)
    print(json.dumps({name: _members(outcome) for name, outcome in outcomes.items()}))
    if any(isinstance(outcome, Report) and not outcome.is_right for outcome in outcomes.values()):
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
    parser.add_argument("--install", action="store_true", help="fetch the servers, and no more")
    parser.add_argument("--life", action="store_true", help="wait for the usual renewals, too: five minutes more each")
    parser.add_argument("--json", action="store_true", help="print the JSON object alone, without the table")
    options = parser.parse_args(arguments)
    if unknown := set(options.servers) - set(names):
        parser.error(f"no server is called {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    return options


async def _fetch_all(servers: Sequence[Server]) -> list[ServerError]:
    """Fetch the servers, and return what went wrong."""
    errors = []
    for server in servers:
        say = _teller(server)
        try:
            say("fetching, where it is not there yet")
            await install(server)
        except ServerError as error:
            say(str(error))
            errors.append(error)
    return errors


async def _try_all(servers: Sequence[Server], exercises: dict[str, Exercise]) -> dict[str, Report | ServerError]:
    """Try one server after the other."""
    outcomes: dict[str, Report | ServerError] = {}
    for server in servers:
        say = _teller(server)
        try:
            say("fetching, where it is not there yet")
            await install(server)
            outcomes[server.name] = await attempt(server, exercises, _RECORDS, say)
        except ServerError as error:
            say(str(error))
            outcomes[server.name] = error
    return outcomes


def _teller(server: Server) -> Say:
    return partial(_say, server, time.monotonic())


def _say(server: Server, since: float, what: str) -> None:
    print(f"[{server.name} {time.monotonic() - since:5.1f} s] {what}", file=sys.stderr, flush=True)


def _members(outcome: Report | ServerError) -> dict[str, Any]:
    if not isinstance(outcome, Report):
        return {"unavailable": str(outcome).partition("\n")[0]}
    verdict = outcome.verdict
    return {
        "version": outcome.server.version,
        "records": verdict.records,
        "lost": verdict.lost,
        "duplicated": verdict.duplicated,
        "order_violations": verdict.order_violations,
        "renewals": outcome.renewals,
        "exercises": {name: finding.outcome for name, finding in outcome.findings.items()},
    }


def _print_table(outcomes: dict[str, Report | ServerError]) -> None:
    for name, outcome in outcomes.items():
        if isinstance(outcome, Report):
            print(f"{name} {outcome.server.version}")
            for exercise, finding in outcome.findings.items():
                print(f"  {exercise:27} {finding}")
    print("  ".join([f"{'server':14}", *_COLUMNS]))
    for name, outcome in outcomes.items():
        members = _members(outcome)
        shown = members.get("unavailable") or "  ".join(f"{members[column]:>{len(column)}}" for column in _COLUMNS)
        print(f"{name:14}  {shown}")


if __name__ == "__main__":
    sys.exit(main())
