"""What an operator does to leases, and the guard that none is pulled from under a worker unseen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Literal

import msgspec
import trio

from efo.errors import ConfigurationError
from efo.leases.columns import Columns
from efo.leases.store import LeaseStore
from efo.model import AT_TIMESTAMP, LATEST, MAX_SEQUENCE_DIGITS, SHARD_END, TRIM_HORIZON, Checkpoint, Lease
from service.errors import UsageError

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
    return sorted((leases[key] for key in keys or leases), key=lambda lease: lease.key)


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
            if seen is not None and row.counter != seen.counter:
                del doubtful[row.key]
                if row.holder is not None:
                    alive[row.key] = row.holder
    return alive


# --- where to begin anew ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Target:
    """Where a lease is put: a checkpoint; `starts_at`, in seconds since the epoch, says where AT_TIMESTAMP is."""

    checkpoint: Checkpoint
    starts_at: float | None = None


def parse_target(text: str) -> Target:
    """Return what `--to` says. LATEST gets its time from the service, see `reset`. Raises UsageError."""
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


def to_reset(leases: Sequence[Lease], target: Target) -> list[Lease]:
    """Return which of the leases a reset concerns. Raises UsageError where it makes no sense.

    A finished shard begins anew with the others, so that its children come after it (rule R1); but at LATEST there is
    nothing in it any more, and it stays finished.
    """
    if not target.checkpoint.is_sentinel and len(leases) != 1:
        raise UsageError("a sequence number is of one shard: name that shard alone")
    return [lease for lease in leases if target.checkpoint != LATEST or not lease.is_finished]


async def reset(store: LeaseStore, lease: Lease, target: Target) -> Lease:
    """Put a lease elsewhere. Raises LeaseLostError if it changed since it was read."""
    return await store.reset(lease, target.checkpoint, target.starts_at)


# --- leases as a file ------------------------------------------------------------------------------------------


class Export(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Leases as a JSON document, of which another store can be made. Names and values are those of KCL's table."""

    version: Literal[1]
    application: str
    stream: str
    leases: tuple[Columns, ...]


def exported(leases: Iterable[Lease], application: str, stream: str) -> bytes:
    """Return the leases as a JSON document, one lease per line."""
    document = Export(EXPORT_VERSION, application, stream, tuple(Columns.of(lease) for lease in leases))
    lines = b",\n  ".join(msgspec.json.encode(columns) for columns in document.leases)
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
    """Create and change the leases. Run again after a failure midway it does the rest."""
    for lease in plan.new:
        await store.create(lease)
    for row, lease in plan.changed:
        written = await store.reset(row, lease.checkpoint, lease.latest_at)
        if lease.children and lease.checkpoint == SHARD_END:
            await store.save_children(written, lease.children)


def _place(lease: Lease) -> tuple[Checkpoint, float | None]:
    return lease.checkpoint, lease.latest_at if lease.checkpoint.is_sentinel else None
