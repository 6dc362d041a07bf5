"""`efo leases`: looks at the leases of an application, and changes them."""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from efo.leases.lease_row import LeaseRow
from efo.leases.store import LeaseStore
from efo.model import TRIM_HORIZON, Lease
from efo_service.commands.operating import (
    Force,
    Yes,
    agreed,
    refuse_living,
    say,
    show,
    tell,
    time_of,
    warn,
    with_leases,
)
from efo_service.commands.options import ConfigFile, Json
from efo_service.config.settings import Settings
from efo_service.errors import UsageError
from efo_service.factories.kinesis import open_stream
from efo_service.operations import leases as operations
from efo_service.operations.leases import Target

Shards = Annotated[list[str] | None, Parameter(name="SHARD", negative="", help="The shards whose leases are meant.")]
All = Annotated[bool, Parameter(name="--all", negative="", help="All leases of the application on the stream.")]


def list_(*, config: ConfigFile = None, as_json: Json = False) -> None:
    """List all leases."""

    async def work(_settings: Settings, store: LeaseStore) -> list[Lease]:
        return sorted(await store.list(), key=lambda lease: lease.key)

    leases = with_leases(config, work)
    if as_json:
        tell({"leases": [_values(lease) for lease in leases]})
        return
    show(
        f"{len(leases)} leases",
        ("shard", "checkpoint", "holder", "handed to", "counter", "parents"),
        (
            (
                lease.key,
                str(lease.checkpoint) + (f" from {time_of(lease.latest_at)}" if _is_pinned(lease) else ""),
                lease.holder or "",
                lease.owner or "" if lease.checkpoint_owner else "",
                str(lease.counter),
                " ".join(lease.parents),
            )
            for lease in leases
        ),
    )


def show_(shard: str, *, config: ConfigFile = None, as_json: Json = False) -> None:
    """Show one lease, with everything that is stored about it."""

    async def work(_settings: Settings, store: LeaseStore) -> Lease:
        [lease] = await operations.chosen(store, [shard])
        return lease

    values = _values(with_leases(config, work))
    if as_json:
        tell(values)
        return
    show(shard, ("column", "value"), ((name, _text(value)) for name, value in values.items()))


def release(
    shard: Shards = None,
    *,
    every: All = False,
    config: ConfigFile = None,
    yes: Yes = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Free leases of the workers that hold them."""

    async def work(settings: Settings, store: LeaseStore) -> list[Lease]:
        leases = [lease for lease in await operations.chosen(store, shard or [], every=every) if lease.holder]
        let_go = partial(operations.release, store)
        return await _change(f"release {len(leases)} leases", leases, let_go, settings, store, yes, force)

    _tell_done("released", with_leases(config, work), as_json=as_json)


def reset(
    shard: Shards = None,
    *,
    to: Annotated[
        str, Parameter(help="trim_horizon, latest, a time, or the sequence number of the last record that is done.")
    ],
    every: All = False,
    config: ConfigFile = None,
    yes: Yes = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Let shards be read anew from another place.

    A sink that knows itself how far each shard is (the log, Kafka exactly once) goes on there in any case.
    """
    target = operations.parse_target(to)

    async def work(settings: Settings, store: LeaseStore) -> list[Lease]:
        chosen = await operations.chosen(store, shard or [], every=every)
        leases = operations.to_reset(chosen, target)
        there, missing = await _place(target, settings, chosen, every=every)
        known = chosen if every else await store.list()

        async def put(lease: Lease) -> None:
            for parent in operations.served(lease, [*known, *missing]) if target.checkpoint.is_sentinel else ():
                await store.create(parent)
            await store.reset(lease, there.checkpoint, there.starts_at)

        if settings.relay.owns_positions:
            warn(
                f'[relay] sink = "{settings.relay.sink}" knows itself how far each shard is, and its relay goes on'
                " there, whatever the leases say: docs/leases.md, Reset leases"
            )
        what = f"reset {len(leases)} leases to {to}" + f" and make {len(missing)}" * bool(missing)
        done = await _change(what, leases, put, settings, store, yes, force, more=bool(missing))
        return done + [lease for lease in missing if await store.create(lease)]

    _tell_done("reset", with_leases(config, work), as_json=as_json)


def delete(
    shard: Shards = None,
    *,
    every: All = False,
    config: ConfigFile = None,
    yes: Yes = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Delete leases: what was read of their shards is forgotten."""

    async def work(settings: Settings, store: LeaseStore) -> list[Lease]:
        leases = await operations.chosen(store, shard or [], every=every)

        async def remove(lease: Lease) -> None:
            await store.delete(lease.key)

        return await _change(f"delete {len(leases)} leases", leases, remove, settings, store, yes, force)

    _tell_done("deleted", with_leases(config, work), as_json=as_json)


def export(
    *,
    config: ConfigFile = None,
    output: Annotated[Path | None, Parameter(help="A new file; else stdout.")] = None,
) -> None:
    """Write all leases as JSON."""

    async def work(settings: Settings, store: LeaseStore) -> bytes:
        leases = sorted(await store.list(), key=lambda lease: lease.key)
        return operations.exported(leases, settings.consumer.application, settings.kinesis.stream_name)

    document = with_leases(config, work)
    if output is None:
        sys.stdout.write(document.decode())
        return
    try:
        with output.open("xb") as file:
            file.write(document)
    except OSError as error:
        raise UsageError(f"--output {output}: {error.strerror}; give it a new file") from error


def import_(
    file: Annotated[Path, Parameter(help="What `efo leases export` wrote.")],
    *,
    overwrite: Annotated[
        bool, Parameter(negative="", help="Change leases that are there and stand elsewhere, not refuse.")
    ] = False,
    config: ConfigFile = None,
    yes: Yes = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Create the leases of a file, without the workers that held them."""
    try:
        document = file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from error

    async def work(settings: Settings, store: LeaseStore) -> operations.Import:
        wanted = operations.imported(document, settings.kinesis.stream_name, str(file))
        plan = operations.plan_import(wanted, await store.list())
        if plan.changed and not overwrite:
            keys = ", ".join(row.key for row, _ in plan.changed[:5])
            raise UsageError(f"{len(plan.changed)} leases are there and stand elsewhere, as {keys}: use --overwrite")
        if not force:
            await refuse_living((row for row, _ in plan.changed), settings, store)
        if plan.new or plan.changed:
            await agreed(f"create {len(plan.new)} leases and change {len(plan.changed)}", yes=yes)
        await operations.bring_in(store, plan)
        return plan

    plan = with_leases(config, work)
    if as_json:
        tell({"created": len(plan.new), "changed": len(plan.changed), "same": len(plan.same)})
    else:
        say(f"{len(plan.new)} leases created, {len(plan.changed)} changed, {len(plan.same)} were so already")


async def _change(
    what: str,
    leases: Sequence[Lease],
    act: Callable[[Lease], Awaitable[None]],
    settings: Settings,
    store: LeaseStore,
    yes: bool,  # noqa: FBT001 - as the commands have it
    force: bool,  # noqa: FBT001 - the same
    *,
    more: bool = False,
) -> list[Lease]:
    """Make sure and ask, then change one lease after the other as it now is. Raises UsageError, LeaseError.

    `more`: there is something to do even without leases.
    """
    if not leases and not more:
        return []
    if not force:
        await refuse_living(leases, settings, store)
    await agreed(what, yes=yes)
    changed: list[Lease] = []
    for lease in leases:
        row = await operations.unmoved(store, lease, force=force)
        if row is not None:
            await act(row)
            changed.append(row)
    return changed


async def _place(
    target: Target, settings: Settings, leases: Sequence[Lease], *, every: bool
) -> tuple[Target, list[Lease]]:
    """Return the target by the service's clock, and the leases that are missing if all shards are to begin anew."""
    if not target.checkpoint.is_sentinel or (target.checkpoint == TRIM_HORIZON and not every):
        return target, []
    async with open_stream(settings.kinesis) as kinesis:
        shards = await kinesis.control.list_shards()
        there = operations.check_time(target, (kinesis.service_time or time.time)())
        return there, operations.forgotten(shards, leases, there) if every else []


def _values(lease: Lease) -> dict[str, Any]:
    """Return what is stored of a lease, as JSON has it."""
    return dict(msgspec.to_builtins(LeaseRow.of(lease)))


def _text(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)


def _is_pinned(lease: Lease) -> bool:
    return lease.checkpoint.is_sentinel and not lease.is_finished and lease.latest_at is not None


def _tell_done(word: str, leases: Sequence[Lease], *, as_json: bool) -> None:
    keys = [lease.key for lease in leases]
    if as_json:
        tell({word: keys})
    else:
        say(f"{len(keys)} leases {word}" + (f": {' '.join(keys)}" if keys else ""))
