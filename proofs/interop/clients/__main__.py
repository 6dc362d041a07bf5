"""`python -m proofs.interop.clients [name ...]`: hear the witnesses, print a table and, last, one line of JSON.

Exit status: 0 if all that this machine can run are right, 1 if one is not, or none could be run, 2 for a wrong name.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Final

import trio

from efo.testing import FakeKinesis, FakeSettings
from efo.testing.server.listener import Address
from proofs.interop.clients.clients import CLIENTS, Client
from proofs.interop.clients.examination import WitnessError, build, examine
from proofs.interop.clients.load import RECORDS
from proofs.interop.clients.testimony import Verdict, is_right

_CLOSED: Final = 3
"""Shards that end: one is split, two are merged."""
_LIFE: Final = 12.0
"""Seconds that a subscription lives, so that every client sees it end by itself and subscribes again."""


def main() -> int:
    """Run the command."""
    names = sys.argv[1:]
    if unknown := set(names) - {client.name for client in CLIENTS}:
        known = ", ".join(client.name for client in CLIENTS)
        print(f"no witness is called {', '.join(sorted(unknown))}. There are: {known}", file=sys.stderr)
        return 2
    verdicts = trio.run(_hear_all, [client for client in CLIENTS if not names or client.name in names])
    _print_table(verdicts)
    print(json.dumps({name: asdict(v) if isinstance(v, Verdict) else v for name, v in verdicts.items()}))
    heard = [verdict for verdict in verdicts.values() if "skipped" not in _members(verdict)]
    right = [isinstance(v, Verdict) and is_right(v, records=RECORDS, shard_ends=_CLOSED) for v in heard]
    return 0 if right and all(right) else 1


async def _hear_all(clients: Sequence[Client]) -> dict[str, Verdict | dict[str, str]]:
    settings = FakeSettings(subscription_life=_LIFE)
    async with FakeKinesis(settings=settings, clock=time.time) as fake, fake.serve() as address:
        return {client.name: await _hear(client, fake, address) for client in clients}


async def _hear(client: Client, fake: FakeKinesis, address: Address) -> Verdict | dict[str, str]:
    say = partial(_say, client, trio.current_time())
    if missing := client.missing():
        say(f"skipped: {missing}")
        return {"skipped": missing}
    try:
        say("building")
        await build(client)
        say("starting")
        return await examine(client, fake, address, say)
    except WitnessError as error:
        say(f"failed: {error}")
        return {"failed": str(error).partition("\n")[0]}


def _say(client: Client, since: float, what: str) -> None:
    print(f"[{client.name} {trio.current_time() - since:5.1f} s] {what}", file=sys.stderr, flush=True)


def _members(verdict: Verdict | dict[str, str]) -> dict[str, Any]:
    return asdict(verdict) if isinstance(verdict, Verdict) else verdict


def _print_table(verdicts: dict[str, Verdict | dict[str, str]]) -> None:
    names = list(Verdict.__dataclass_fields__)
    print("  ".join([f"{'client':20}", *names]))
    for client, verdict in verdicts.items():
        if isinstance(verdict, Verdict):
            values = asdict(verdict)
            print("  ".join([f"{client:20}", *(f"{values[name]!s:>{len(name)}}" for name in names)]))
        else:
            print(f"{client:20}  {'; '.join(f'{what}: {why}' for what, why in verdict.items())}")


if __name__ == "__main__":
    sys.exit(main())
