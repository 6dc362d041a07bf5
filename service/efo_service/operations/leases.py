"""What an operator does to leases, and the guard that none is pulled from under a worker unseen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Literal

import msgspec
import trio

from efo.errors import ConfigurationError
from efo.leases.lease_row import LeaseRow
from efo.leases.store import LeaseStore
from efo.model import AT_TIMESTAMP, LATEST, MAX_SEQUENCE_DIGITS, SHARD_END, TRIM_HORIZON, Checkpoint, Lease, Shard
from efo_service.errors import UsageError

EXPORT_VERSION: Final = 1


async def chosen(store: LeaseStore, keys: Sequence[str], *, every: bool = False) -> list[Lease]:
    """Return the leases of these shards, or every lease, in the order of their keys.

    Raises UsageError for a shard that has none, and for neither shards nor `every`, or both.
    """
    if every == bool(keys):
        raise UsageError("which leases? Name their shards, or say --all, not both")
    leases = {lease.key: lease for lease in await store.list()}
    if unknown := [key for key in keys if key not in leases]:
        raise UsageError(f"there is no lease {', '.join(unknown)}: see `efo leases list`")
    return sorted((leases[key] for key in dict.fromkeys(keys or leases)), key=lambda lease: lease.key)


async def living(
    store: LeaseStore,
    leases: Iterable[Lease],
    failover_time: float,
    show: Callable[[int, float], None] = lambda _left, _seconds: None,
) -> Mapping[str, str]:
    """Return the workers that keep some of these leases alive, by the leases' keys.

    A worker lives if its lease's counter moves within the fail-over time, as the other workers see it (rule R10): so
    it takes that long to be sure that one does not. `show` is told how many are in doubt, and for how many seconds
    more.
    """
    doubtful = {lease.key: lease for lease in leases if lease.holder is not None}
    alive: dict[str, str] = {}
    deadline = trio.current_time() + failover_time
    while doubtful and (left := deadline - trio.current_time()) > 0:
        show(len(doubtful), left)
        await trio.sleep(min(left, failover_time / 10))
        for row in await store.list():
            seen = doubtful.get(row.key)
            # One that was just let go of is watched on: another worker may be about to take it.
            if seen is not None and row.counter != seen.counter and row.holder is not None:
                del doubtful[row.key]
                alive[row.key] = row.holder
    return alive


async def unmoved(store: LeaseStore, lease: Lease, *, force: bool) -> Lease | None:
    """Return a lease as it now is, None if it is gone; as it was when `living` looked, unless `force`.

    Raises UsageError if a worker has taken or renewed it since.
    """
    row = await store.get(lease.key)
    if row is not None and not force and row.holder is not None and row.counter != lease.counter:
        raise UsageError(f"{row.key} is held by {row.holder} since we looked: it and those after it were left alone")
    return row


async def release(store: LeaseStore, lease: Lease) -> None:
    """Free a lease of whoever holds it and of whoever waits for it. Raises LeaseLostError if it changed."""
    if lease.holder is None:
        return
    if lease.checkpoint_owner is not None:  # else it would go to the one who waits, who may be gone as well
        lease = await store.request_handoff(lease, lease.checkpoint_owner)
    await store.release(lease)


# --- where to begin anew ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Target:
    """Where a lease is put: a checkpoint; `starts_at`, in seconds since the epoch, says where AT_TIMESTAMP is."""

    checkpoint: Checkpoint
    starts_at: float | None = None


def parse_target(text: str) -> Target:
    """Return what `--to` says. LATEST gets its time by `check_time`. Raises UsageError."""
    match text.lower():
        case "trim_horizon":
            return Target(TRIM_HORIZON)
        case "latest":
            return Target(LATEST)
    if text.isascii() and text.isdigit() and len(text) <= MAX_SEQUENCE_DIGITS:
        return Target(Checkpoint(text))
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise UsageError(
            f"--to {text}: expected trim_horizon, latest, a time with its zone like 2026-01-31T12:00:00Z, or the "
            "sequence number of the last record that is done"
        )
    return Target(AT_TIMESTAMP, time.timestamp())


def check_time(target: Target, now: float) -> Target:
    """Return the target with LATEST's time. `now`: the service's time (rule R4). Raises UsageError for the future."""
    if target.checkpoint == LATEST:
        return Target(LATEST, now)
    if target.starts_at is not None and target.starts_at > now:
        raise UsageError("--to: that time is in the future, and Kinesis refuses to read from there")
    return target


def to_reset(leases: Sequence[Lease], target: Target) -> list[Lease]:
    """Return which of the leases a reset concerns. Raises UsageError where it makes no sense.

    A finished shard begins anew with the others, so that its children come after it (rule R1); but at LATEST there is
    nothing in it any more, and it stays finished.
    """
    if not target.checkpoint.is_sentinel and len(leases) != 1:
        raise UsageError("a sequence number is of one shard: name that shard alone")
    return [lease for lease in leases if target.checkpoint != LATEST or not lease.is_finished]


def forgotten(shards: Iterable[Shard], leases: Iterable[Lease], target: Target) -> list[Lease]:
    """Return leases to create when all shards are to begin anew: of those that Kinesis has and no lease remembers.

    The leases of shards that were finished are cleaned up after a while, and their records may still be there. At
    LATEST they are over. But shards that are open have their children's leases from their parents' ends, at their
    beginning: they are made here, at LATEST, before that.
    """
    known = {lease.key for lease in leases}
    return [_begun_at(shard, target) for shard in shards if shard.shard_id not in known]


def _begun_at(shard: Shard, target: Target) -> Lease:
    lease = Lease(shard.shard_id, SHARD_END, parents=shard.parents, hash_key_range=shard.hash_key_range)
    if target.checkpoint == LATEST and not shard.is_open:
        return lease
    return replace(lease, checkpoint=target.checkpoint, latest_at=target.starts_at)


def served(lease: Lease, leases: Iterable[Lease]) -> list[Lease]:
    """Return leases of parents to create with a reset of this one: finished, where the other parent has one.

    A shard that has not begun waits for a parent without a lease if the other one has one (see `startable`): here it
    was finished and cleaned up, and must not be read again.
    """
    known = {lease.key for lease in leases}
    missing = [parent for parent in lease.parents if parent not in known]
    if len(missing) == len(lease.parents):
        return []
    return [Lease(parent, SHARD_END, children=(lease.key,)) for parent in missing]


# --- leases as a file ------------------------------------------------------------------------------------------


class Export(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Leases as a JSON document, of which another store can be made. Names and values are those of KCL's table."""

    version: Literal[1]
    application: str
    stream: str
    leases: tuple[LeaseRow, ...]


def exported(leases: Iterable[Lease], application: str, stream: str) -> bytes:
    """Return the leases as a JSON document, one lease per line."""
    lines = b",\n  ".join(msgspec.json.encode(LeaseRow.of(lease)) for lease in leases)
    head = msgspec.json.encode({"version": EXPORT_VERSION, "application": application, "stream": stream})
    return b'%s,"leases":[\n  %s\n]}\n' % (head.removesuffix(b"}"), lines)


def imported(document: bytes, stream: str, source: str) -> list[Lease]:
    """Return the leases of a document, free of the workers that held them.

    `source`: names the document in errors. Raises ConfigurationError: it is none, or of another stream.
    """
    try:
        export = msgspec.json.decode(document, type=Export)
        leases = [columns.lease() for columns in export.leases]
    except (msgspec.DecodeError, UnicodeDecodeError, ConfigurationError) as error:
        raise ConfigurationError(f"{source} is not what `efo leases export` writes: {error}") from error
    if export.stream != stream:
        raise ConfigurationError(
            f"{source} has leases of the stream {export.stream!r}, and [kinesis] stream is {stream!r}: "
            "sequence numbers of one stream mean nothing in another"
        )
    return [replace(lease, owner=None, checkpoint_owner=None) for lease in leases]


@dataclass(frozen=True, slots=True)
class Import:
    """What an import comes to.

    `new`: leases to create. `changed`: those that are there and stand elsewhere, each with what the document has.
    `same`: those that stand there already.
    """

    new: tuple[Lease, ...]
    changed: tuple[tuple[Lease, Lease], ...]
    same: tuple[Lease, ...]


def plan_import(wanted: Iterable[Lease], rows: Iterable[Lease]) -> Import:
    """Return what has to be done so that the rows stand where the document says."""
    known = {row.key: row for row in rows}
    new, changed, same = [], [], []
    for lease in wanted:
        row = known.get(lease.key)
        if row is None:
            new.append(lease)
        elif _place(row) == _place(lease):
            same.append(row)
        else:
            changed.append((row, lease))
    return Import(tuple(new), tuple(changed), tuple(same))


async def bring_in(store: LeaseStore, plan: Import) -> None:
    """Create and change the leases. Run again after a failure midway it does the rest.

    Raises LeaseLostError for one that changed since, and UsageError for one that was created since.
    """
    for lease in plan.new:
        if not await store.create(lease):
            raise UsageError(f"{lease.key} was created meanwhile: run the import again")
    for row, lease in plan.changed:
        if lease.children:
            await store.save_children(row, lease.children)
        await store.reset(row, lease.checkpoint, lease.latest_at)


def _place(lease: Lease) -> tuple[Checkpoint, float | None]:
    return lease.checkpoint, lease.latest_at if lease.checkpoint.is_sentinel else None
