"""Which leases of efo continue what another library has read. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from efo.model import Checkpoint, Lease, Position, PositionType, Shard
from efo.protocol.lineage import leases_to_create
from efo_service.operations.leases import ImportPlan, plan_import
from efo_service.operations.migration.layout import Found, RowsSnapshot
from efo_service.operations.migration.report import Report, ShardLine, sentence, shown


@dataclass(frozen=True, slots=True)
class Start:
    """Where efo starts shards that nobody has read. `now`: the service's time, in seconds since the epoch.

    `created_at`: when the stream was created, which the leases are for; None if unknown.
    """

    initial: Position
    now: float
    created_at: float | None = None


@dataclass(frozen=True, slots=True)
class ForwardPlan:
    """The leases to write, and the report."""

    leases: tuple[Lease, ...]
    report: Report


def plan_leases(snapshot: RowsSnapshot, shards: Sequence[Shard], start: Start) -> ForwardPlan:
    """Return the leases that continue after the checkpoints of a snapshot. `shards`: all of ListShards."""
    listed = {shard.shard_id: shard for shard in shards}
    pairs = [_plan_shard(found, listed, start) for _, found in snapshot.found.values()]
    leases = tuple(lease for lease, _ in pairs if lease is not None)
    lines = {line.shard: line for _, line in pairs}
    for line in _unread(shards, leases, start):
        if line.shard not in lines or not lines[line.shard].why:
            before = lines[line.shard].before if line.shard in lines else ""
            lines[line.shard] = replace(line, before=before)
    for key, reason in snapshot.unreadable.items():
        lines[key] = ShardLine(key, "refused", why=f"the row cannot be read: {reason}; correct or delete it")
    report = Report(tuple(lines[key] for key in sorted(lines)), (*snapshot.problems, *_of_another(snapshot, listed)))
    return ForwardPlan(leases, report)


def _of_another(snapshot: RowsSnapshot, listed: dict[str, Shard]) -> list[str]:
    """Refuse rows none of which is about the stream as it is."""
    if not snapshot.found:
        return [] if snapshot.unreadable else ["there is no checkpoint of this application on this stream"]
    if not listed.keys() & snapshot.found.keys():
        return ["no row is about a shard that the stream has: they are of another stream, or of one that was deleted"]
    return []


def _plan_shard(found: Found, listed: dict[str, Shard], start: Start) -> tuple[Lease | None, ShardLine]:
    """Return the lease for a row, None if there is none, and the line of the report."""
    key, checkpoint, shard = found.shard_id, found.checkpoint, listed.get(found.shard_id)
    before = shown(checkpoint)

    def without(outcome: str, why: str) -> tuple[None, ShardLine]:
        return None, ShardLine(key, "refused" if outcome == "refused" else "nothing", before, why=why)

    if shard is None and (checkpoint is None or checkpoint != Checkpoint.SHARD_END):
        if key > max(listed, default=""):
            return without("refused", "the stream has no such shard, and never had: the row is of another stream")
        return without("nothing", "the shard has passed its retention: nothing of it can be read")
    if checkpoint is None:
        return without("nothing", "")  # `_unread` says where it starts
    if shard is not None and (reason := _outside(checkpoint, shard)):
        return without("refused", reason)
    latest_at, why = _time_of(found, checkpoint, start)
    if latest_at is None and checkpoint == Checkpoint.AT_TIMESTAMP:
        return without("refused", why)
    lease = Lease(
        key,
        checkpoint,
        parents=shard.parents if shard else found.parents,
        children=found.children,
        hash_key_range=shard.hash_key_range if shard else found.hash_key_range,
        latest_at=latest_at,
        pending_checkpoint=found.pending_checkpoint,
        pending_checkpoint_state=found.pending_checkpoint_state,
        stream_created_at=start.created_at,
    )
    return lease, ShardLine(key, "moved", before, shown(checkpoint), sentence((why, *found.notes)))


def _outside(checkpoint: Checkpoint, shard: Shard) -> str:
    """Return why a sequence number cannot be one of the shard; empty if it can."""
    if checkpoint.is_sentinel:
        return ""
    number, first = int(checkpoint.sequence_number), int(shard.starting_sequence_number)
    last = None if shard.ending_sequence_number is None else int(shard.ending_sequence_number)
    # Some servers have an end that is before the start.
    if number < first or (last is not None and first <= last < number):
        return "the shard has no such sequence number: the row is of another stream, or of one of this name before"
    return ""


def _time_of(found: Found, checkpoint: Checkpoint, start: Start) -> tuple[float | None, str]:
    """Return the time that LATEST or AT_TIMESTAMP stands for, and what the report says of it."""
    if checkpoint == Checkpoint.LATEST:
        return (found.latest_at, "") if found.latest_at is not None else (start.now, "from now on")
    if checkpoint != Checkpoint.AT_TIMESTAMP or found.latest_at is not None:
        return found.latest_at, ""
    if start.initial.type is PositionType.AT_TIMESTAMP:
        return start.initial.timestamp, "from [consumer] initial_position"
    return None, "the table does not have the time: set [consumer] initial_position to the one of the application"


def _unread(shards: Sequence[Shard], leases: Iterable[Lease], start: Start) -> list[ShardLine]:
    """Return a line for each listed shard without a lease: where efo starts it (rule R1)."""
    known = {lease.key: lease for lease in leases}
    initial = Checkpoint(start.initial.type.value)
    created = {lease.key: lease for lease in leases_to_create(shards, known, initial)}
    ancestors = set(known)
    lines = []
    for shard in sorted(shards, key=lambda shard: (int(shard.starting_sequence_number), shard.shard_id)):
        if shard.shard_id in known:
            continue
        lease, inherits = created.get(shard.shard_id), bool(ancestors.intersection(shard.parents))
        if inherits:
            ancestors.add(shard.shard_id)
        if lease is not None and lease.checkpoint == Checkpoint.TRIM_HORIZON and inherits:
            lines.append(ShardLine(shard.shard_id, "nothing", why="read from its beginning: its parents are finished"))
        elif lease is not None:
            lines.append(ShardLine(shard.shard_id, "nothing", why=f"starts at [consumer] initial_position: {initial}"))
        elif inherits:
            lines.append(ShardLine(shard.shard_id, "nothing", why="read from its beginning, after its parents"))
        else:
            lines.append(ShardLine(shard.shard_id, "nothing", why="not read: its children are read, or begin before"))
    return lines


def plan_target(plan: ForwardPlan, rows: Sequence[Lease], *, overwrite: bool) -> tuple[ImportPlan, list[str]]:
    """Return the changes of efo's store, and what forbids them: leases of another origin, unless `overwrite`.

    Leases that are already as they are to be do not: so a migration that was interrupted can be repeated.
    """
    changes = plan_import(plan.leases, rows)
    wanted = {lease.key for lease in plan.leases}
    strange = sorted({row.key for row, _ in changes.changed} | {row.key for row in rows if row.key not in wanted})
    if strange and not overwrite:
        problem = (
            f"efo's lease store has {len(strange)} leases that this migration would not write, such as {strange[0]}: "
            "efo has read the stream already, or it is the wrong store; --overwrite changes those that differ"
        )
        return changes, [problem]
    return changes, []
