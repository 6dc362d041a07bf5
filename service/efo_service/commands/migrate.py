"""`efo migrate`: moves checkpoints of another library to efo's leases, or back."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import trio
from cyclopts import Parameter
from cyclopts.validators import Number

from efo.arn import parse_stream
from efo.checks import shown
from efo.kinesis.identity import StreamIdentity
from efo.leases.store import LeaseStore
from efo.model import Lease, Shard
from efo_service.commands.common import Force, Yes, confirm, refuse_living_holders
from efo_service.commands.options import ConfigFile, Json, StreamName
from efo_service.commands.output import write_json, write_line, write_note, write_table
from efo_service.config.loading import load
from efo_service.config.settings import Settings
from efo_service.errors import UsageError
from efo_service.factories.kinesis import open_stream
from efo_service.factories.lease_store import inspectable_leases, open_leases
from efo_service.operations.leases import apply_import
from efo_service.operations.migration.aggregates import find_marks
from efo_service.operations.migration.back import plan_rows
from efo_service.operations.migration.formats import FORMATS, Format, FormatName
from efo_service.operations.migration.layout import Layout, Mark, RowsSnapshot, Scope
from efo_service.operations.migration.plan import Start, plan_leases, plan_target
from efo_service.operations.migration.report import Report
from efo_service.operations.migration.stores.opening import Defaults, dynamodb_table, open_rows
from efo_service.operations.migration.stores.rows import RowTable, look_twice, refuse_changes

_OF_KCL = ("KCL", "amazon_kclpy")
_SHORT = {"moved": "moved", "nothing": "", "refused": "REFUSED"}


@dataclass(frozen=True, slots=True)
class _Options:
    """The options of one call. `source` may have a password."""

    format: Format
    source: str
    table: str
    look: float | None
    write: bool
    overwrite: bool
    partial: bool
    yes: bool
    force: bool
    as_json: bool


@dataclass(frozen=True, slots=True)
class _Site:
    """What a migration works with: the other library's rows, looked at twice, and the stream."""

    settings: Settings
    options: _Options
    rows: RowTable
    layout: Layout
    scope: Scope
    snapshot: RowsSnapshot
    shards: Sequence[Shard]
    start: Start


def migrate(
    library: Annotated[FormatName, Parameter(name="LIBRARY", help="The library that wrote the checkpoints.")],
    source: Annotated[
        str,
        Parameter(
            name="CHECKPOINTS",
            env_var="EFO_MIGRATE_CHECKPOINTS",
            help="Where they are: dynamodb:TABLE, redis://..., postgresql://... or mysql://...",
        ),
    ],
    *,
    application: Annotated[
        str | None, Parameter(help="The application's name in that library. Default: [consumer] application.")
    ] = None,
    table: Annotated[str, Parameter(help="The table in PostgreSQL or MySQL.")] = "kinesis_consumer",
    stream_id: Annotated[
        str | None,
        Parameter(help="account:stream:epoch, in a KCL table of many streams. Default: that of the stream's rows."),
    ] = None,
    back: Annotated[bool, Parameter(negative="", help="From efo's leases to that library's checkpoints.")] = False,
    write: Annotated[bool, Parameter(negative="", help="Write. Without it, only report.")] = False,
    overwrite: Annotated[bool, Parameter(negative="", help="Change leases of efo that differ.")] = False,
    partial: Annotated[
        bool, Parameter(negative="", help="With --back: write what the library can hold, and leave out the rest.")
    ] = False,
    look: Annotated[
        float | None,
        Parameter(validator=Number(gte=0), help="Seconds between the two looks for a running application."),
    ] = None,
    config: ConfigFile = None,
    stream: StreamName = None,
    yes: Yes = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Move checkpoints of another library to efo's leases, or back."""
    settings = load(config, stream)
    if partial and not back:
        raise UsageError("--partial belongs to --back: towards efo, every row can be held or is a mistake")
    _refuse_own_table(settings, source)
    _check_stream_id(library, stream_id, settings.kinesis.stream_name)
    os.umask(settings.service.umask)  # it may create the store
    options = _Options(FORMATS[library], source, table, look, write, overwrite, partial, yes, force, as_json)
    scope = Scope(application or settings.consumer.application, settings.kinesis.stream_name, stream_id)

    async def run() -> None:
        async with _site(settings, options, scope) as site:
            await (_back(site) if back else _forward(site))

    trio.run(run)


@asynccontextmanager
async def _site(settings: Settings, options: _Options, scope: Scope) -> AsyncIterator[_Site]:
    """Open the other library's rows, look at them twice, and list the stream's shards."""
    defaults = Defaults(
        options.table,
        settings.kinesis.region or parse_stream(settings.kinesis.stream)[1],
        settings.kinesis.profile,
        settings.kinesis.proxy,
    )
    async with AsyncExitStack() as stack:
        rows = await stack.enter_async_context(open_rows(options.source, defaults))
        layout = options.format.layout(rows.kind)
        async with open_stream(settings.kinesis) as kinesis:
            shards = await kinesis.control_plane.list_shards()
            described = await StreamIdentity(kinesis.control_plane).look(trio.current_time())
            now = (kinesis.service_time or kinesis.clock)()
            created_at = None if described is None else described.created_at

        def show(seconds: float) -> None:
            write_note(f"looking for {seconds:g} s whether the application of {rows.name} runs")

        seconds = layout.look_seconds if options.look is None else options.look
        snapshot = await look_twice(rows, layout, scope, seconds, show)
        yield _Site(
            settings, options, rows, layout, scope, snapshot, shards, Start(settings.consumer.position, now, created_at)
        )


async def _forward(site: _Site) -> None:
    """Report the leases that continue after the checkpoints, and write them."""
    options = site.options
    plan = plan_leases(site.snapshot, site.shards, site.start)
    changes, problems = plan_target(plan, await _leases(site), overwrite=options.overwrite)
    initial = f"[consumer] initial_position, {site.start.initial}"
    notes = [f"a shard that nobody has read starts at {initial}; in {options.format.library}: {options.format.initial}"]
    if site.settings.relay.owns_positions:
        notes.append(
            f'[relay] sink = "{site.settings.relay.sink}" keeps the position of each shard itself: before `efo run`, '
            "call `efo log adopt` for the log (docs/log.md)"
        )
    report = _with(plan.report, site, problems, notes)
    if not _may_write(report, report.refusals, options):
        return
    async with open_leases(site.settings) as store:
        if not options.force:
            await refuse_living_holders((row for row, _ in changes.changed), site.settings, store)
        await confirm(f"create {len(changes.new)} leases and change {len(changes.changed)}", yes=options.yes)
        await refuse_changes(site.rows, site.layout, site.scope, site.snapshot)
        await apply_import(store, changes)
    _done(f"{len(changes.new)} leases created, {len(changes.changed)} changed, {len(changes.same)} unchanged", options)


async def _back(site: _Site) -> None:
    """Report the rows that continue after efo's leases, and write them."""
    options = site.options
    leases = await _leases(site)
    plan = plan_rows(leases, site.snapshot, site.shards, site.layout, site.scope, await _marks(site, leases))
    notes = ["efo's leases stay: delete them before you migrate to efo again (`efo leases delete --all`)"]
    report = _with(plan.report, site, [], notes)
    if not _may_write(report, report.problems if options.partial else report.refusals, options):
        return
    async with open_leases(site.settings) as store:
        if not options.force:
            await refuse_living_holders(leases, site.settings, store)
        await confirm(f"write {len(plan.rows)} rows to {site.rows.name}", yes=options.yes)
        await _refuse_moved(store, leases)
        await site.rows.replace_rows(plan.rows)
    _done(f"{len(plan.rows)} rows written", options)


async def _marks(site: _Site, leases: Sequence[Lease]) -> Mapping[str, Mark]:
    """Return the whole records up to which the shards were read, if the other library can hold nothing else."""
    if not site.layout.marks_whole_records:
        return {}
    async with open_stream(site.settings.kinesis) as kinesis:
        return await find_marks(kinesis.control_plane, leases, site.shards, site.settings.consumer.aggregates)


async def _leases(site: _Site) -> Sequence[Lease]:
    """Return efo's leases. A store that does not exist has none, and is not created."""
    if not (await inspectable_leases(site.settings).inspect()).exists:
        return ()
    async with open_leases(site.settings) as store:
        return await store.list()


async def _refuse_moved(store: LeaseStore, leases: Sequence[Lease]) -> None:
    """Raise UsageError if a lease has changed since the report."""
    counters = {lease.key: lease.counter for lease in await store.list()}
    if counters != {lease.key: lease.counter for lease in leases}:
        raise UsageError("efo's leases have changed since the report: stop its workers, and run the command again")


def _refuse_own_table(settings: Settings, source: str) -> None:
    leases = settings.leases
    own = leases.dynamodb.table or settings.consumer.application
    if leases.store == "dynamodb" and dynamodb_table(source) == own:
        raise UsageError(
            f"{own!r} is the table of [leases] already: efo and KCL share such a table, and nothing has to be migrated "
            "(docs/migrate.md#from-kcl). For another library, choose another table for efo: [leases.dynamodb] table"
        )


def _check_stream_id(library: FormatName, stream_id: str | None, stream: str) -> None:
    if stream_id is None:
        return
    if FORMATS[library].library not in _OF_KCL:
        raise UsageError(f"--stream-id belongs to {' and '.join(_OF_KCL)}: {library} has no tables for many streams")
    if not re.fullmatch(rf"\d{{12}}:{re.escape(stream)}:\d+", stream_id):
        raise UsageError(
            f"--stream-id {shown(stream_id)}: expected account:stream:epoch, such as 123456789012:{stream}:1767225600"
        )


def _with(report: Report, site: _Site, problems: Sequence[str], notes: Sequence[str]) -> Report:
    others = site.snapshot.others
    more = [f"{others} rows of {site.rows.name} are not about this application and stream"] if others else []
    if blind := site.layout.blind:
        more.append(f"a running application is not noticed if {blind}")
    return Report(report.lines, (*report.problems, *problems), (*more, *notes))


def _may_write(report: Report, refusals: Sequence[str], options: _Options) -> bool:
    """Show the report. Return whether to write. Raises UsageError if that is forbidden."""
    if options.as_json:
        write_json(report.values())
    else:
        write_table(
            f"{len(report.lines)} shards",
            ("shard", "from", "to", "", "remarks"),
            ((line.shard, line.before, line.after, _SHORT[line.outcome], line.why) for line in report.lines),
        )
        for note in report.notes:
            write_note(note)
    if refusals:
        raise UsageError("nothing was written: " + "; ".join(refusals))
    if not options.write and not options.as_json:
        write_note("nothing was written: this was a dry run, --write writes")
    return options.write


def _done(what: str, options: _Options) -> None:
    if options.as_json:
        values: dict[str, Any] = {"written": what}
        write_json(values)
    else:
        write_line(what)
