"""Why a record was processed twice: what efo allows, and what is a defect. Pure."""

from __future__ import annotations

from proofs.simulation.checks.ledger import TaskLedger


def unexplained(
    older: TaskLedger, newer: TaskLedger, index: int, *, max_save_delay: float, has_failed: bool
) -> str | None:
    """Return why it is a defect that two shard tasks processed the same record, or None if it is allowed.

    `index`: of the record in its shard. `max_save_delay`: see Guarantees. `has_failed`: whether the older task's worker
    ended with an error.
    """
    end = older.closed_at
    is_acked = index < older.acked_to
    if end is None:
        return f"although {older.worker}, which read it earlier, still reads the shard"
    if older.save_failed:
        return None  # its last checkpoint was not saved, or it is unknown whether it was
    if older.has_crashed or older.lost_reason is not None:
        since = older.acked_at[index - older.start] if is_acked and index >= older.start else end
        end = min(end, newer.lease_taken_at)
        if since + max_save_delay >= end:
            return None
        return f"although {older.worker} acked it at {since:.3f}, long before its shard task ended at {end:.3f}"
    if not is_acked and (older.by_key or older.error is not None or has_failed):
        return None  # processed ahead of an unprocessed record, or interrupted between its effect and its ack
    return f"although {older.worker} ended normally at {end:.3f}, with the record {'' if is_acked else 'not '}acked"
