"""Which rows of another library continue after efo's leases. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from efo.model import Checkpoint, Lease, Shard
from efo.protocol.lineage import passed_shards
from efo_service.operations.migration.layout import Found, Layout, Mark, NotHeldError, Row, RowsSnapshot, Scope
from efo_service.operations.migration.report import Report, ShardLine, sentence, shown

_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class BackPlan:
    """The rows to write, each with the row that it replaces, and the report."""

    rows: tuple[tuple[Row, Row | None], ...]
    report: Report


def plan_rows(
    leases: Sequence[Lease],
    snapshot: RowsSnapshot,
    shards: Sequence[Shard],
    layout: Layout,
    scope: Scope,
    marks: Mapping[str, Mark],
) -> BackPlan:
    """Return the rows that continue after efo's leases. `snapshot`: the rows as they are. `shards`: of ListShards.

    `marks`: of each lease that has a sequence number, if the layout marks whole records; else none.
    """
    listed = {shard.shard_id: shard for shard in shards}
    deleted = [_finished(shard, shards) for shard in passed_shards({lease.key: lease for lease in leases}, shards)]
    scope = replace(scope, stream_id=scope.stream_id or snapshot.stream_id)
    rows: list[tuple[Row, Row | None]] = []
    lines = []
    for lease in sorted([*leases, *deleted], key=lambda lease: lease.key):
        old = snapshot.found.get(lease.key)
        before = str(lease.checkpoint)
        try:
            marked, why = _marked(lease, layout, marks)
            row = layout.write(marked, listed.get(lease.key), scope, old)
        except NotHeldError as error:
            lines.append(ShardLine(lease.key, "refused", before, why=str(error)))
            continue
        if row is None:
            lines.append(ShardLine(lease.key, "nothing", before, why="the library needs no row of a finished shard"))
            continue
        rows.append((row, old[0] if old else None))
        written = layout.read(row, scope)  # as the library will read it
        after = shown(written.checkpoint if isinstance(written, Found) else None)
        lines.append(ShardLine(lease.key, "moved", before, after, sentence([why, *_remarks(lease, written, deleted)])))
    problems = list(snapshot.problems)
    problems += [f"{key}: {reason}; correct or delete the row" for key, reason in snapshot.unreadable.items()]
    if scope.stream_id is None and snapshot.other_streams:
        problems.append(
            f"the table has rows of several streams ({', '.join(snapshot.other_streams[:_SHOWN])}), and none of"
            f" {scope.stream}: name it with --stream-id as the application does, account:{scope.stream}:epoch"
        )
    if not leases:
        problems.append("efo has no leases of this application on this stream")
    return BackPlan(tuple(rows), Report(tuple(lines), tuple(problems)))


def _finished(shard: Shard, shards: Sequence[Shard]) -> Lease:
    """Return the lease that a shard had before efo deleted it. Without a row, or with an old one, it is read again."""
    children = tuple(child.shard_id for child in shards if shard.shard_id in child.parents)
    return Lease(
        shard.shard_id,
        Checkpoint.SHARD_END,
        parents=shard.parents,
        children=children,
        hash_key_range=shard.hash_key_range,
    )


def _marked(lease: Lease, layout: Layout, marks: Mapping[str, Mark]) -> tuple[Lease, str]:
    """Return a lease with a checkpoint that the layout can hold, and why it is another one. Raises NotHeldError."""
    if not layout.marks_whole_records or lease.checkpoint.is_sentinel:
        return lease, ""
    mark = marks[lease.key]
    if mark.sequence_number is None:
        raise NotHeldError(mark.why)
    return replace(lease, checkpoint=Checkpoint(mark.sequence_number)), mark.why


def _remarks(lease: Lease, written: object, deleted: Sequence[Lease]) -> list[str]:
    remarks = ["efo has read it, and deleted its lease"] if lease in deleted else []
    kept = written.pending_checkpoint if isinstance(written, Found) else None
    if kept != lease.pending_checkpoint:
        remarks.append(f"its pending checkpoint {lease.pending_checkpoint} is not kept")
    if lease.checkpoint == Checkpoint.LATEST:
        remarks.append("the library's LATEST is when it starts: what is put before is not read")
    if lease.checkpoint == Checkpoint.AT_TIMESTAMP:
        remarks.append("the time is the one in the library's configuration")
    return remarks
