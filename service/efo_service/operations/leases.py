"""How an operator changes leases, and the check that a living worker does not lose its lease by accident."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import msgspec
import trio

from efo.checks import shown
from efo.errors import ConfigurationError
from efo.leases.lease_row import LeaseRow
from efo.leases.store import LeaseStore
from efo.model import MAX_SEQUENCE_DIGITS, Checkpoint, Lease, Position, Shard, is_decimal, is_shard_id
from efo.protocol.identity import are_same
from efo.settings import pinned
from efo.text import decode
from efo.third_party_errors import reason_of
from efo_service.errors import UsageError
from efo_service.times import parse_time

EXPORT_VERSION: Final = 2
"""Since 2, a lease names its stream, and since when its records are unread. Both versions are read."""


async def select_leases(store: LeaseStore, keys: Sequence[str], *, select_all: bool = False) -> list[Lease]:
    """Return the leases of the shards `keys`, or all leases, sorted by key.

    Raises UsageError if a shard has no lease, or unless exactly one of `keys` and `select_all` is given.
    """
    if select_all == bool(keys):
        raise UsageError("no leases are selected: name either shards or --all, not both")
    leases = {lease.key: lease for lease in await store.list()}
    if unknown := [key for key in keys if key not in leases]:
        raise UsageError(f"no lease {', '.join(unknown)}: see `efo leases list`")
    return sorted((leases[key] for key in dict.fromkeys(keys or leases)), key=lambda lease: lease.key)


async def living_holders(
    store: LeaseStore,
    leases: Iterable[Lease],
    failover_seconds: float,
    show: Callable[[int, float], None] = lambda _left, _seconds: None,
) -> Mapping[str, str]:
    """Return the living workers that hold some of these leases, by lease key.

    A worker lives if its lease's counter changes within the fail-over time, by the rule of the other workers (R10). So
    the call takes the fail-over time, unless all holders prove to be alive. `show` gets the number of leases not yet
    decided, and the seconds left.
    """
    undecided = {lease.key: lease for lease in leases if lease.holder is not None}
    alive: dict[str, str] = {}
    deadline = trio.current_time() + failover_seconds
    while undecided and (left := deadline - trio.current_time()) > 0:
        show(len(undecided), left)
        await trio.sleep(min(left, failover_seconds / 10))
        for row in await store.list():
            seen = undecided.get(row.key)
            # A lease that was just released stays undecided: another worker may be about to take it.
            if seen is not None and row.counter != seen.counter and row.holder is not None:
                del undecided[row.key]
                alive[row.key] = row.holder
    return alive


async def reread(store: LeaseStore, lease: Lease, *, force: bool) -> Lease | None:
    """Return the current row of a lease, None if it was deleted.

    Raises UsageError if a worker has taken or renewed the lease since `lease` was read, unless `force`.
    """
    row = await store.get(lease.key)
    if row is not None and not force and row.holder is not None and row.counter != lease.counter:
        raise UsageError(f"{row.key} was taken by {row.holder} during the check: it and the following were not changed")
    return row


async def release(store: LeaseStore, lease: Lease) -> None:
    """Release a lease from its holder, and from the worker that requested it. Raises LeaseLostError if it changed."""
    if lease.holder is None:
        return
    if lease.checkpoint_owner is not None:  # else the lease would go to the worker that requested it, which may be dead
        lease = await store.request_handoff(lease, lease.checkpoint_owner)
    await store.release(lease)


# --- reset -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ResetTarget:
    """The checkpoint that a reset writes. `starts_at`: the time of AT_TIMESTAMP, in seconds since the epoch."""

    checkpoint: Checkpoint
    starts_at: float | None = None


def parse_target(text: str, now: float) -> ResetTarget:
    """Return the target of the option `--to`. `resolve_time` sets the time of LATEST. Raises UsageError.

    `now`: seconds since the epoch, for a time like -15m.
    """
    match text.lower():
        case "trim_horizon":
            return ResetTarget(Checkpoint.TRIM_HORIZON)
        case "latest":
            return ResetTarget(Checkpoint.LATEST)
    number, _, sub = text.partition("/")
    if is_decimal(number) and len(number) <= MAX_SEQUENCE_DIGITS and (is_decimal(sub) or number == text):
        return ResetTarget(Checkpoint(number, int(sub[:MAX_SEQUENCE_DIGITS] or 0)))
    if (at := parse_time(text, now)) is None:
        raise UsageError(
            f"--to {text}: expected trim_horizon, latest, a time with a time zone like 2026-01-31T12:00:00Z, how long "
            "ago like -15m, or the sequence number of the last record that is done, with /SUB_SEQUENCE_NUMBER within a "
            "KPL aggregate"
        )
    return ResetTarget(Checkpoint.AT_TIMESTAMP, at)


def resolve_time(target: ResetTarget, now: float) -> ResetTarget:
    """Return the target with the time of LATEST set to `now`, the service's time (rule R4).

    Raises UsageError if the target is in the future, by more than the error of a clock.
    """
    if target.checkpoint == Checkpoint.LATEST:
        return ResetTarget(Checkpoint.LATEST, now)
    if target.starts_at is None:
        return target
    try:
        position = pinned(Position.at_timestamp(target.starts_at), now, "--to")
    except ConfigurationError as error:
        raise UsageError(str(error)) from None
    return ResetTarget(target.checkpoint, position.timestamp)


def leases_to_reset(leases: Sequence[Lease], target: ResetTarget) -> list[Lease]:
    """Return the leases that a reset changes. Raises UsageError if the target does not suit them.

    Finished shards are read again too, before their children (rule R1). With LATEST they stay finished, since they
    have no later records.
    """
    if not target.checkpoint.is_sentinel and len(leases) != 1:
        raise UsageError("--to: a sequence number belongs to one shard: name only that shard")
    return [lease for lease in leases if target.checkpoint != Checkpoint.LATEST or not lease.is_finished]


def missing_leases(
    shards: Iterable[Shard], leases: Iterable[Lease], target: ResetTarget, created_at: float | None = None
) -> list[Lease]:
    """Return the leases to create in a reset of all shards: those of listed shards that have no lease.

    `created_at`: when the stream was created, None if unknown.

    Leases of finished shards are cleaned up after some time, although their records may still exist. With LATEST these
    shards stay finished. The end of a parent would create the lease of an open child at TRIM_HORIZON; with LATEST, this
    lease is created here first.
    """
    known = {lease.key for lease in leases}
    return [_new_lease(shard, target, created_at) for shard in shards if shard.shard_id not in known]


def _new_lease(shard: Shard, target: ResetTarget, created_at: float | None) -> Lease:
    lease = Lease(
        shard.shard_id,
        Checkpoint.SHARD_END,
        parents=shard.parents,
        hash_key_range=shard.hash_key_range,
        stream_created_at=created_at,
    )
    if target.checkpoint == Checkpoint.LATEST and not shard.is_open:
        return lease
    return replace(lease, checkpoint=target.checkpoint, latest_at=target.starts_at)


def finished_parents(lease: Lease, leases: Iterable[Lease]) -> list[Lease]:
    """Return the finished leases to create for parents of `lease` when it is reset.

    If only one parent of an unread shard has a lease, the shard waits for the lease of the other (see `is_startable`).
    Here the other parent was finished and its lease cleaned up, so it must not be read again.
    """
    known = {lease.key for lease in leases}
    missing = [parent for parent in lease.parents if parent not in known]
    if len(missing) == len(lease.parents):
        return []
    return [Lease(parent, Checkpoint.SHARD_END, children=(lease.key,)) for parent in missing]


# --- leases as a file ------------------------------------------------------------------------------------------


class Export(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Leases as a JSON document, for import into another store. Names and values are those of KCL's lease table."""

    version: Literal[1, 2]
    application: str
    stream: str
    leases: tuple[LeaseRow, ...]


def export_leases(leases: Iterable[Lease], application: str, stream: str) -> bytes:
    """Return the leases as a JSON document, one lease per line."""
    lines = b",\n  ".join(msgspec.json.encode(LeaseRow.of(lease)) for lease in leases)
    head = msgspec.json.encode({"version": EXPORT_VERSION, "application": application, "stream": stream})
    return b'%s,"leases":[\n  %s\n]}\n' % (head.removesuffix(b"}"), lines)


def parse_export(document: bytes, stream: str, source: str) -> list[Lease]:
    """Return the leases of an export, without their owners.

    `source`: names the document in errors. Raises ConfigurationError if it is not an export or is for another stream.
    """
    try:
        text = decode(document)
    except ValueError as error:
        raise ConfigurationError(f"{source} was not written by `efo leases export`: {error}") from None
    try:
        export = msgspec.json.decode(text, type=Export)
        leases = [_checked(columns.lease()) for columns in export.leases]
    except (msgspec.DecodeError, RecursionError, ConfigurationError) as error:
        raise ConfigurationError(f"{source} was not written by `efo leases export`: {reason_of(error)}") from None
    if export.stream != stream:
        raise ConfigurationError(
            f"{source} has leases of the stream {export.stream!r}, but [kinesis] stream is {stream!r}: "
            "sequence numbers of one stream are invalid in another"
        )
    return [replace(lease, owner=None, checkpoint_owner=None) for lease in leases]


def _checked(lease: Lease) -> Lease:
    """Return a lease whose shards have ids that Kinesis has. Raises ConfigurationError."""
    for shard_id in (lease.key, *lease.parents, *lease.children):
        if not is_shard_id(shard_id):
            raise ConfigurationError(f"{shown(shard_id)} is not a shard's id")
    return lease


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """What an import changes.

    `new`: leases to create. `changed`: rows with another checkpoint, each with the lease of the document.
    `same`: rows that already have the checkpoint of the document.
    """

    new: tuple[Lease, ...]
    changed: tuple[tuple[Lease, Lease], ...]
    same: tuple[Lease, ...]


def plan_import(imported: Iterable[Lease], rows: Iterable[Lease]) -> ImportPlan:
    """Return the changes that give the rows the checkpoints of the imported leases."""
    known = {row.key: row for row in rows}
    new, changed, same = [], [], []
    for lease in imported:
        row = known.get(lease.key)
        if row is None:
            new.append(lease)
        elif _position(row) == _position(lease) and _may_be_of_one_stream(row, lease):
            same.append(row)
        else:
            changed.append((row, lease))
    return ImportPlan(tuple(new), tuple(changed), tuple(same))


async def apply_import(store: LeaseStore, plan: ImportPlan) -> None:
    """Create and change the leases. If it fails midway, a new import completes it.

    Raises LeaseLostError if a row has changed, UsageError if a lease was created since the plan was made.
    """
    for lease in plan.new:
        if not await store.create(lease):
            raise UsageError(f"{lease.key} was created during the import: run the import again")
    for row, lease in plan.changed:
        if not _may_be_of_one_stream(row, lease):
            await store.delete(row.key)
            await store.create(lease)
            continue
        if lease.children:
            await store.save_children(row, lease.children)
        await store.reset(row, lease.checkpoint, lease.latest_at)


def _may_be_of_one_stream(row: Lease, lease: Lease) -> bool:
    return are_same(row.stream_created_at, lease.stream_created_at) is not False


def _position(lease: Lease) -> tuple[Checkpoint, float | None]:
    return lease.checkpoint, lease.latest_at if lease.checkpoint.is_sentinel else None
