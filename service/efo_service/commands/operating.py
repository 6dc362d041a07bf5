"""What the operator's commands share: confirmation, the guard of living workers, JSON and tables."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, TypeVar

import trio
from cyclopts import Parameter
from rich.console import Console
from rich.prompt import Confirm
from rich.table import Table

from efo.leases.store import LeaseStore
from efo.model import Lease
from efo_service.commands.options import ConfigFile
from efo_service.config.loading import load
from efo_service.config.settings import Settings
from efo_service.errors import UsageError
from efo_service.factories.lease_store import open_leases
from efo_service.operations.leases import living

T = TypeVar("T")

Yes = Annotated[bool, Parameter(name=["--yes", "-y"], negative="", help="Do it without asking.")]
Force = Annotated[bool, Parameter(negative="", help="Do it even while a living worker holds the lease.")]


def with_leases(config: ConfigFile, work: Callable[[Settings, LeaseStore], Awaitable[T]]) -> T:
    """Load the configuration, open its lease store, and do the work. Raises what these raise."""
    settings = load(config)

    async def run() -> T:
        async with open_leases(settings) as store:
            return await work(settings, store)

    return trio.run(run)


async def refuse_living(leases: Iterable[Lease], settings: Settings, store: LeaseStore) -> None:
    """Raise UsageError if a living worker holds any of the leases."""
    console = Console(stderr=True)
    with console.status("looking whether their workers live") if console.is_terminal else nullcontext() as status:

        def show(left: int, seconds: float) -> None:
            if status is not None:
                status.update(f"looking whether the workers of {left} leases live: {seconds:.0f} s at most")

        alive = await living(store, leases, settings.leases.failover_seconds, show)
    if alive:
        held = ", ".join(f"{key} by {worker}" for key, worker in sorted(alive.items())[:5])
        raise UsageError(
            f"{len(alive)} of these leases are held by living workers: {held}. Stop them first, or use --force: they "
            "then lose what they have not checkpointed"
        )


async def agreed(what: str, *, yes: bool) -> None:
    """Ask the operator. Raises UsageError where there is none to ask, and where the answer is no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{what}: nobody is there to confirm it; say --yes")
    ask = partial(Confirm.ask, what, console=Console(stderr=True), default=False)
    try:
        is_agreed = await trio.to_thread.run_sync(ask, abandon_on_cancel=True)
    except EOFError:
        is_agreed = False
    if not is_agreed:
        raise UsageError("nothing was changed")


def tell(value: Any) -> None:
    """Write one JSON document on one line."""
    sys.stdout.write(json.dumps(value) + "\n")


def show(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write a table."""
    table = Table(*columns, title=title, title_justify="left")
    for row in rows:
        table.add_row(*row)
    Console(highlight=False).print(table, markup=False)


def say(text: str) -> None:
    """Write a line."""
    Console(highlight=False, soft_wrap=True).print(text, markup=False)


def warn(text: str) -> None:
    """Tell the operator what he may not expect, beside the result."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(f"note: {text}", markup=False)


def time_of(seconds: float | None) -> str:
    """Return a time as text; nothing for None."""
    return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
