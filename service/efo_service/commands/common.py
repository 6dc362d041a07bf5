"""Shared by the operator's commands: the lease store, the check for living workers, and confirmation."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import Annotated, Final, TypeVar

import trio
from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape
from rich.prompt import Confirm

from efo.checks import printable
from efo.exception_groups import collapse_groups
from efo.leases.store import LeaseStore
from efo.model import Lease
from efo_service.commands.options import Application
from efo_service.commands.output import write_note
from efo_service.config.loading import load_for_stream
from efo_service.config.settings import Settings
from efo_service.errors import UsageError
from efo_service.factories.lease_store import open_existing_leases, open_leases
from efo_service.operations.leases import living_holders

T = TypeVar("T")

_PATIENCE_SECONDS: Final = 5.0

Yes = Annotated[bool, Parameter(name=["--yes", "-y"], negative="", help="Do not ask for confirmation.")]
Force = Annotated[bool, Parameter(negative="", help="Proceed even if a living worker holds the lease.")]


def settings_of(of: Application) -> Settings:
    """Return the settings of an application's stream. Raises ConfigurationError."""
    settings = load_for_stream(of.config, of.stream)
    if of.application is None:
        return settings
    consumer = settings.consumer.model_copy(update={"application": of.application})
    return settings.model_copy(update={"consumer": consumer})


def with_lease_store(
    of: Application, work: Callable[[Settings, LeaseStore], Awaitable[T]], *, creates: bool = False
) -> T:
    """Load the settings of a stream, open its lease store, return the result of `work`. Raises the errors of all.

    `creates`: whether the store may be created. Otherwise UsageError says where it was looked for.
    """
    settings = settings_of(of)
    os.umask(settings.service.umask)  # it may create the store, or a catalog

    async def run() -> T:
        if creates and of.leases is None:
            opening = open_leases(settings)
        else:
            opening = open_existing_leases(settings, of.leases, creates=creates)
        async with opening as store:
            return await work(settings, store)

    return trio.run(run)


async def refuse_living_holders(leases: Iterable[Lease], settings: Settings, store: LeaseStore) -> None:
    """Raise UsageError if a living worker holds any of the leases."""
    console = Console(stderr=True)
    with console.status("checking whether their workers are alive") if console.is_terminal else nullcontext() as status:

        def show(left: int, seconds: float) -> None:
            if status is not None:
                status.update(f"checking whether the workers of {left} leases are alive: {seconds:.0f} s at most")

        alive = await living_holders(store, leases, settings.leases.failover_seconds, show)
    if alive:
        held = ", ".join(f"{key} by {worker}" for key, worker in sorted(alive.items())[:5])
        raise UsageError(
            f"{len(alive)} of these leases are held by living workers ({held}): stop these workers first, or use "
            "--force, which repeats the records that they have not checkpointed"
        )


@asynccontextmanager
async def waiting_for(what: str) -> AsyncIterator[None]:
    """Say on stderr what a command waits for, whenever the block has taken another five seconds."""

    async def note() -> None:
        while True:
            await trio.sleep(_PATIENCE_SECONDS)
            write_note(f"waiting for {what}")

    with collapse_groups():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(note)
            yield
            nursery.cancel_scope.cancel()


async def confirm(action: str, *, yes: bool) -> None:
    """Ask the operator to confirm `action`. Raises UsageError if the operator declines, or without a terminal."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{action}: there is no terminal to ask for confirmation, use --yes")
    ask = partial(Confirm.ask, escape(printable(action)), console=Console(stderr=True), default=False)
    try:
        is_confirmed = await trio.to_thread.run_sync(ask, abandon_on_cancel=True)
    except EOFError:
        is_confirmed = False
    if not is_confirmed:
        raise UsageError("nothing was changed")
