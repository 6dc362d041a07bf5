"""Checks the lease table: where leases begin, their checkpoints and owners, shard ends, and deletions. Pure."""

from __future__ import annotations

from bisect import bisect_left

from efo.model import Checkpoint
from proofs.simulation.checks.books import Books
from proofs.simulation.checks.ledger import ShardLedger, TaskLedger
from proofs.simulation.checks.lineage import ancestry, has_progress
from proofs.simulation.checks.order import KeyOrder
from proofs.simulation.story import Created, Deleted, Held, Lost, Saved, StoreFailed

_GIVEN_UP = "store"
"""Why a worker gives up a lease while the store does not answer: a write of it may be on its way (rule R10)."""


class Leases:
    """The rows of the lease table, as the story shows them. `order`: skips the records that need not be read."""

    def __init__(self, books: Books, order: KeyOrder) -> None:
        self._books = books
        self._order = order

    def created(self, line: Created) -> None:
        """Check where a shard starts that was never read."""
        books = self._books
        shard = books.shard(line.shard)
        if shard.was_deleted:
            books.report(f"{line.shard} has a lease again after its lease was deleted")
        shard.has_lease, shard.checkpoint = True, line.checkpoint
        since_millis = books.at_millis if line.checkpoint == Checkpoint.AT_TIMESTAMP else line.since_millis
        if since_millis is not None:
            self._skip_before(shard, since_millis)
        if any(books.shards[parent].has_lease for parent in shard.parents):
            if line.checkpoint != Checkpoint.TRIM_HORIZON:
                books.report(f"the child {line.shard} starts at {line.checkpoint}, not at TRIM_HORIZON")
        elif line.checkpoint != books.initial:
            books.report(f"{line.shard} starts at {line.checkpoint}, not at {books.initial}")
        books.unprocessed += len(books.required(shard))

    def deleted(self, line: Deleted) -> None:
        """Check that nothing depends on a lease that is deleted."""
        shard = self._books.shards[line.shard]
        shard.was_deleted = True
        if shard.checkpoint != Checkpoint.SHARD_END:
            self._books.report(f"{line.worker} deletes the lease of {line.shard}, which is at {shard.checkpoint}")
        for child in shard.children:
            if not has_progress(self._books.shards[child]):
                self._books.report(
                    f"{line.worker} deletes the lease of {line.shard} before its child {child} has a checkpoint"
                )

    def store_failed(self, line: StoreFailed, now: float) -> None:
        """Note that a call failed: it is unknown whether it took effect."""
        self._books.store_failed.add(line.worker)
        for task in self._books.open.values():
            if task.worker == line.worker:
                task.save_failed, task.store_failed_at = True, now

    def saved(self, line: Saved) -> None:
        """Check a checkpoint (rule R3)."""
        books = self._books
        shard, task = books.shards[line.shard], books.open.get((line.worker, line.shard))
        closed = books.closed.get((line.worker, line.shard))
        # A write that is sent with those of other leases is not withdrawn when the store hangs and one of them is lost.
        if task is None and closed is not None and (books.guarantees.saves_late or closed.lost_reason == _GIVEN_UP):
            task = closed
        if task is None:
            books.report(f"{line.worker} saves {line.checkpoint} of {line.shard}, which it does not read")
        elif line.checkpoint == Checkpoint.SHARD_END:
            self._check_end(line, shard, task)
        else:
            task.save_failed = False
            if shard.index_after(line.checkpoint) > task.acked_to:
                books.report(
                    f"{line.worker} saves {line.checkpoint} of {line.shard} ahead of an ack: "
                    f"{shard.identities[task.acked_to]} is not acked"
                )
            if line.checkpoint < shard.checkpoint and not books.guarantees.owns_position:
                books.report(f"{line.worker} moves {line.shard} back from {shard.checkpoint} to {line.checkpoint}")
        shard.checkpoint = line.checkpoint

    def held(self, line: Held, now: float) -> None:
        """Note the new holder of a lease."""
        shard = self._books.shards[line.shard]
        shard.holder, shard.held_since, shard.is_abandoned, shard.is_started = line.holder, now, False, False
        if line.holder is not None:
            shard.taken_by[line.holder] = (now, shard.checkpoint)
        shard.holding_process = line.worker if line.worker_id == line.holder else line.holder

    def lost(self, line: Lost) -> None:
        """Note that a worker noticed the loss of a lease."""
        if task := self._books.open.get((line.worker, line.shard)):
            task.lost_reason = line.reason
        if self._books.shards[line.shard].holding_process == line.worker:
            self._books.shards[line.shard].is_abandoned = True

    def check_holder(self, worker: str, shard_id: str, now: float) -> None:
        """Check that a worker does not handle records too long after it lost the lease."""
        shard, task = self._books.shards[shard_id], self._books.open.get((worker, shard_id))
        if task is not None and shard.holder != task.worker_id:
            since = now - shard.held_since
            if since > self._books.guarantees.max_zombie_time:
                self._books.report(
                    f"{worker} handles records of {shard_id} {since:.3f} s after its lease went to {shard.holder}"
                )

    def conclude(self, shard_id: str) -> None:
        """Check that nobody holds the lease of a shard, after every worker has stopped gracefully."""
        books, shard = self._books, self._books.shards[shard_id]
        # The worker may not know that it took the lease: the response was lost.
        is_unknown = shard.holding_process in books.store_failed and not shard.is_started
        may_be_held = (
            shard.holding_process in books.crashed
            or is_unknown
            or shard.is_abandoned
            or shard.checkpoint == Checkpoint.SHARD_END
        )
        if shard.holder is not None and not may_be_held:
            books.report(f"{shard_id}: {shard.holder} still holds its lease after all workers have stopped")

    def _skip_before(self, shard: ShardLedger, since_millis: int) -> None:
        """Require no records of a shard that were put before this time, and none of its ancestors."""
        shard.first_index = bisect_left(shard.put_millis, since_millis)
        self._order.skip(shard.identities[: shard.first_index])
        for parent in shard.parents:
            if not self._books.shards[parent].has_lease:
                for ancestor in ancestry(self._books.shards, parent):
                    self._order.skip(self._books.shards[ancestor].identities)

    def _check_end(self, line: Saved, shard: ShardLedger, task: TaskLedger) -> None:
        """Check the end of a shard by rule R2: everything acked, children created, their ids saved, then SHARD_END."""
        report = self._books.report
        if not shard.is_closed:
            report(f"{line.worker} finishes {line.shard}, which is open")
        if task.acked_to < len(shard.marks):
            identity = shard.identities[task.acked_to]
            report(f"{line.worker} finishes {line.shard} ahead of an ack: {identity} is not acked")
        if missing := [child for child in shard.children if not self._books.shards[child].has_lease]:
            report(f"{line.worker} finishes {line.shard} before its children {missing} have leases")
        if sorted(shard.saved_children) != sorted(shard.children):
            report(f"{line.worker} finishes {line.shard} with the saved children {shard.saved_children}")
