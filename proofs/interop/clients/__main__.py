"""Let third-party clients read the fake; print a table and, as the last line, one JSON object.

Exit status: 0 if every client passed, 1 if one failed, 2 for an unknown name, 69 if one lacks its toolchain.

example: make third-party-clients ARGS="boto3"
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Final

import trio

from efo.testing import FakeKinesis, FakeSettings
from efo.testing.server.listener import Address
from proofs.interop.clients.clients import CLIENTS, Client
from proofs.interop.clients.load import RECORDS
from proofs.interop.clients.runner import InteropError, build, run_client
from proofs.interop.clients.transcript import Comparison, passed

_CLOSED: Final = 3
"""Shards that end: one is split, two are merged."""
_LIFE: Final = 12.0
"""Lifetime of a subscription in seconds: short, so that every client sees subscriptions expire and renews them."""


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        "make third-party-clients", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clients", nargs="*", help="some of the clients (all)")
    names = parser.parse_args().clients
    if unknown := set(names) - {client.name for client in CLIENTS}:
        known = ", ".join(client.name for client in CLIENTS)
        print(f"unknown client {', '.join(sorted(unknown))}: choose from {known}", file=sys.stderr)
        return 2
    outcomes = trio.run(_run_all, [client for client in CLIENTS if not names or client.name in names])
    _print_table(outcomes)
    print(json.dumps({name: asdict(v) if isinstance(v, Comparison) else v for name, v in outcomes.items()}))
    return exit_status(outcomes)


def exit_status(outcomes: Mapping[str, Comparison | dict[str, str]]) -> int:
    """Return 1 if a client failed, and 69 if one was skipped: a proof that skips has not passed."""
    ran = [outcome for outcome in outcomes.values() if "skipped" not in _members(outcome)]
    if not all(isinstance(v, Comparison) and passed(v, records=RECORDS, shard_ends=_CLOSED) for v in ran):
        return 1
    return 0 if len(ran) == len(outcomes) else os.EX_UNAVAILABLE


async def _run_all(clients: Sequence[Client]) -> dict[str, Comparison | dict[str, str]]:
    settings = FakeSettings(subscription_life=_LIFE)
    async with FakeKinesis(settings=settings, clock=time.time) as fake, fake.serve() as address:
        return {client.name: await _run(client, fake, address) for client in clients}


async def _run(client: Client, fake: FakeKinesis, address: Address) -> Comparison | dict[str, str]:
    progress = partial(_print_progress, client, trio.current_time())
    if missing := client.missing():
        progress(f"skipped: {missing}")
        return {"skipped": missing}
    try:
        progress("building")
        await build(client)
        progress("starting")
        return await run_client(client, fake, address, progress)
    except InteropError as error:
        progress(f"failed: {error}")
        return {"failed": str(error).partition("\n")[0]}


def _print_progress(client: Client, since: float, message: str) -> None:
    print(f"[{client.name} {trio.current_time() - since:5.1f} s] {message}", file=sys.stderr, flush=True)


def _members(outcome: Comparison | dict[str, str]) -> dict[str, Any]:
    return asdict(outcome) if isinstance(outcome, Comparison) else outcome


def _print_table(outcomes: dict[str, Comparison | dict[str, str]]) -> None:
    names = list(Comparison.__dataclass_fields__)
    print("  ".join([f"{'client':20}", *names]))
    for client, outcome in outcomes.items():
        if isinstance(outcome, Comparison):
            values = asdict(outcome)
            print("  ".join([f"{client:20}", *(f"{values[name]!s:>{len(name)}}" for name in names)]))
        else:
            print(f"{client:20}  {'; '.join(f'{kind}: {reason}' for kind, reason in outcome.items())}")


if __name__ == "__main__":
    sys.exit(main())
