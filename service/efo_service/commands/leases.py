"""`efo leases`: shows and changes the leases of an application."""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import trio
from cyclopts import Parameter

from efo.identity import evidence_text, recreated
from efo.kinesis.identity import StreamIdentity
from efo.leases.lease_row import LeaseRow
from efo.leases.store import LeaseStore
from efo.model import Checkpoint, Lease
from efo.protocol.identity import evidence_against
from efo_service.commands.common import Force, Yes, confirm, refuse_living_holders, with_lease_store
from efo_service.commands.options import CONFIGURED, Application, Json
from efo_service.commands.output import format_time, write_json, write_line, write_note, write_table
from efo_service.config.settings import Settings
from efo_service.errors import UsageError
from efo_service.factories.kinesis import open_stream
from efo_service.factories.lease_store import name_of_store
from efo_service.operations import leases as operations
from efo_service.operations.leases import ResetTarget
from efo_service.operations.recording import without_controls

Shards = Annotated[list[str] | None, Parameter(name="SHARD", negative="", help="The shards of the leases.")]
All = Annotated[bool, Parameter(name="--all", negative="", help="All leases of the application on the stream.")]


def list_(*, of: Application = CONFIGURED, as_json: Json = False) -> None:
    """List all leases."""

    async def work(settings: Settings, store: LeaseStore) -> tuple[Settings, list[Lease]]:
        return settings, sorted(await store.list(), key=lambda lease: lease.key)

    settings, leases = with_lease_store(of, work)
    application, name = settings.consumer.application, settings.kinesis.stream_name
    where = name_of_store(settings, of.leases)
    if as_json:
        found = [_values(lease) for lease in leases]
        write_json({"application": application, "stream": name, "store": where, "leases": found})
        return
    write_table(
        f"{len(leases)} leases of the application {application} on the stream {name}, in {where}",
        ("shard", "checkpoint", "holder", "handed to", "counter", "parents"),
        (
            (
                lease.key,
                str(lease.checkpoint) + (f" from {format_time(lease.latest_at)}" if _is_pinned(lease) else ""),
                lease.holder or "",
                lease.owner or "" if lease.checkpoint_owner else "",
                str(lease.counter),
                " ".join(lease.parents),
            )
            for lease in leases
        ),
    )


def show_(shard: str, *, of: Application = CONFIGURED, as_json: Json = False) -> None:
    """Show everything that is stored about one lease."""

    async def work(_settings: Settings, store: LeaseStore) -> Lease:
        [lease] = await operations.select_leases(store, [shard])
        return lease

    values = _values(with_lease_store(of, work))
    if as_json:
        write_json(values)
        return
    write_table(shard, ("column", "value"), ((name, _text(value)) for name, value in values.items()))


def release(
    shard: Shards = None,
    *,
    select_all: All = False,
    of: Application = CONFIGURED,
    yes: Yes = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Release leases from the workers that hold them."""

    async def work(settings: Settings, store: LeaseStore) -> list[Lease]:
        leases = [
            lease for lease in await operations.select_leases(store, shard or [], select_all=select_all) if lease.holder
        ]
        change = partial(operations.release, store)
        return await _change(f"release {len(leases)} leases", leases, change, settings, store, yes, force)

    _write_result("released", with_lease_store(of, work), as_json=as_json)


def reset(
    shard: Shards = None,
    *,
    to: Annotated[
        str,
        Parameter(
            allow_leading_hyphen=True,
            help="trim_horizon, latest, a time, how long ago like -15m, or the sequence number of the last record that"
            " is done.",
        ),
    ],
    select_all: All = False,
    of: Application = CONFIGURED,
    yes: Yes = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Move the checkpoints of shards. Leases of a stream that was deleted and created again are replaced.

    A sink that keeps the position of each shard itself (the log, Kafka exactly once) ignores the new checkpoints.
    """
    target = operations.parse_target(to, time.time())

    async def work(settings: Settings, store: LeaseStore) -> list[Lease]:
        selected = await operations.select_leases(store, shard or [], select_all=select_all)
        leases = operations.leases_to_reset(selected, target)
        plan = await _plan_reset(target, settings, selected, select_all=select_all)
        known = selected if select_all else await store.list()

        async def change(lease: Lease) -> None:
            if plan.is_former:
                await store.delete(lease.key)
                return
            for parent in (
                operations.finished_parents(lease, [*known, *plan.missing]) if target.checkpoint.is_sentinel else ()
            ):
                await store.create(parent)
            await store.reset(lease, plan.target.checkpoint, plan.target.starts_at)

        _note_positions(settings, is_former=plan.is_former)
        missing = plan.missing
        if plan.is_former:
            leases, action = selected, f"delete {len(selected)} leases of the former stream"
        else:
            action = f"reset {len(leases)} leases to {to}"
        action += f" and create {len(missing)}" * bool(missing)
        changed = await _change(action, leases, change, settings, store, yes, force, more=bool(missing))
        created = [lease for lease in missing if await store.create(lease)]
        return created if plan.is_former else changed + created

    _write_result("reset", with_lease_store(of, work), as_json=as_json)


def delete(
    shard: Shards = None,
    *,
    select_all: All = False,
    of: Application = CONFIGURED,
    yes: Yes = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Delete leases with their checkpoints."""

    async def work(settings: Settings, store: LeaseStore) -> list[Lease]:
        leases = await operations.select_leases(store, shard or [], select_all=select_all)

        async def change(lease: Lease) -> None:
            await store.delete(lease.key)

        return await _change(f"delete {len(leases)} leases", leases, change, settings, store, yes, force)

    _write_result("deleted", with_lease_store(of, work), as_json=as_json)


def export(
    *,
    of: Application = CONFIGURED,
    output: Annotated[Path | None, Parameter(help="A new file. Default: stdout.")] = None,
) -> None:
    """Write all leases as JSON."""

    async def work(settings: Settings, store: LeaseStore) -> bytes:
        leases = sorted(await store.list(), key=lambda lease: lease.key)
        if not leases:
            raise UsageError(
                f"{name_of_store(settings, of.leases)} has no leases of the application"
                f" {settings.consumer.application} on the stream {settings.kinesis.stream_name}: nothing was written"
            )
        return operations.export_leases(leases, settings.consumer.application, settings.kinesis.stream_name)

    document = with_lease_store(of, work)
    if output is None:
        sys.stdout.write(without_controls(document).decode())
        return
    try:
        with output.open("xb") as file:
            file.write(document)
    except OSError as error:
        raise UsageError(f"--output {output}: {error.strerror}: choose a new file") from error


def import_(
    file: Annotated[Path, Parameter(help="A file that `efo leases export` wrote.")],
    *,
    overwrite: Annotated[
        bool, Parameter(negative="", help="Change existing leases that have another checkpoint.")
    ] = False,
    of: Application = CONFIGURED,
    yes: Yes = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Create the leases of a file, without their owners."""
    try:
        document = file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from error

    async def work(settings: Settings, store: LeaseStore) -> operations.ImportPlan:
        imported = operations.parse_export(document, settings.kinesis.stream_name, str(file))
        plan = operations.plan_import(imported, await store.list())
        if plan.changed and not overwrite:
            keys = ", ".join(row.key for row, _ in plan.changed[:5])
            raise UsageError(
                f"{len(plan.changed)} leases exist with another checkpoint, such as {keys}: use --overwrite"
            )
        if not force:
            await refuse_living_holders((row for row, _ in plan.changed), settings, store)
        if plan.new or plan.changed:
            await confirm(f"create {len(plan.new)} leases and change {len(plan.changed)}", yes=yes)
        await operations.apply_import(store, plan)
        return plan

    plan = with_lease_store(of, work, creates=True)
    if as_json:
        write_json({"created": len(plan.new), "changed": len(plan.changed), "same": len(plan.same)})
    else:
        write_line(f"{len(plan.new)} leases created, {len(plan.changed)} changed, {len(plan.same)} unchanged")


async def _change(
    action: str,
    leases: Sequence[Lease],
    change: Callable[[Lease], Awaitable[None]],
    settings: Settings,
    store: LeaseStore,
    yes: bool,  # noqa: FBT001 - as in the commands
    force: bool,  # noqa: FBT001 - the same
    *,
    more: bool = False,
) -> list[Lease]:
    """Check the holders, ask for confirmation, and change the current rows of the leases, one after the other.

    `more`: whether there is something to do without leases, too. Raises UsageError, LeaseError.
    """
    if not leases and not more:
        return []
    if not force:
        await refuse_living_holders(leases, settings, store)
    await confirm(action, yes=yes)
    changed: list[Lease] = []
    for lease in leases:
        row = await operations.reread(store, lease, force=force)
        if row is not None:
            await change(row)
            changed.append(row)
    return changed


@dataclass(frozen=True, slots=True)
class _Reset:
    """What a reset does. `target`: with its time by the service's clock. `missing`: the leases to create.

    `is_former`: the leases are of a former stream of this name. They are deleted, and all leases are missing.
    """

    target: ResetTarget
    missing: Sequence[Lease] = ()
    is_former: bool = False


async def _plan_reset(target: ResetTarget, settings: Settings, leases: Sequence[Lease], *, select_all: bool) -> _Reset:
    """Return what a reset of these leases does. Raises UsageError if only a reset of all would help."""
    if not target.checkpoint.is_sentinel or (target.checkpoint == Checkpoint.TRIM_HORIZON and not select_all):
        return _Reset(target)
    async with open_stream(settings.kinesis) as kinesis:
        shards = await kinesis.control_plane.list_shards()
        described = await StreamIdentity(kinesis.control_plane).look(trio.current_time())
        created_at = None if described is None else described.created_at
        resolved = operations.resolve_time(target, (kinesis.service_time or time.time)())
        evidence = evidence_against(leases, shards, created_at)
    if evidence and not select_all:
        how = evidence_text(evidence[0], created_at)
        raise UsageError(recreated(settings.kinesis.stream_name, how, "reset all leases: --all"))
    if not select_all:
        return _Reset(resolved)
    known = () if evidence else leases
    return _Reset(resolved, operations.missing_leases(shards, known, resolved, created_at), bool(evidence))


def _note_positions(settings: Settings, *, is_former: bool) -> None:
    """Say that the sink keeps positions, which a reset does not change."""
    if settings.relay.owns_positions:
        effect = (
            "the relay refuses those of the former stream"
            if is_former
            else "the relay resumes there, not at the checkpoint of the lease"
        )
        write_note(
            f'[relay] sink = "{settings.relay.sink}" keeps the position of each shard itself, and {effect}: see'
            " docs/leases.md, Reset leases"
        )


def _values(lease: Lease) -> dict[str, Any]:
    """Return the columns of a lease row, as JSON values."""
    return dict(msgspec.to_builtins(LeaseRow.of(lease)))


def _text(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)


def _is_pinned(lease: Lease) -> bool:
    return lease.checkpoint.is_sentinel and not lease.is_finished and lease.latest_at is not None


def _write_result(verb: str, leases: Sequence[Lease], *, as_json: bool) -> None:
    keys = [lease.key for lease in leases]
    if as_json:
        write_json({verb: keys})
    else:
        write_line(f"{len(keys)} leases {verb}" + (f": {' '.join(keys)}" if keys else ""))
