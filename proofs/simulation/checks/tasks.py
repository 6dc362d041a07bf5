"""Checks shard tasks and workers: where a task starts, what it has saved at its end, and what ended it. Pure."""

from __future__ import annotations

from efo import events
from efo.consumer.shard_task import LAST_SAVE_TIMEOUT
from efo.model import Checkpoint
from proofs.simulation.checks.books import Books
from proofs.simulation.checks.ledger import ShardLedger, TaskLedger
from proofs.simulation.story import Closed, Crashed, Exited, Opened, Reported, Repositioned


class Tasks:
    """The shard tasks of all workers, and how the workers end."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._isolated: set[tuple[str, str]] = set()
        self._failing: set[str] = set()

    def opened(self, line: Opened, now: float) -> None:
        """Check where a shard task starts."""
        shard = self._books.shard(line.shard)
        if (line.worker, line.shard) in self._books.open:
            self._books.report(f"{line.worker} reads {line.shard} twice at once")
        lease_taken_at, checkpoint = shard.taken_by.get(line.worker_id, (now, None))
        if line.checkpoint != checkpoint:
            self._books.report(
                f"{line.worker} starts {line.shard} at {line.checkpoint}, but its lease has {checkpoint}"
            )
        self._books.check_parents(line.shard)
        shard.is_started = True
        start = shard.index_after(line.checkpoint)
        self._books.open[line.worker, line.shard] = TaskLedger(
            line.worker,
            line.worker_id,
            line.shard,
            lease_taken_at,
            start,
            line.by_key,
            next_index=start,
            acked_to=start,
        )

    def repositioned(self, line: Repositioned) -> None:
        """Note that a task continues after the position of its sink."""
        self._books.open[line.worker, line.shard].seek(self._books.shards[line.shard].index_after(line.to))

    def reported(self, line: Reported) -> None:
        """Note an isolated shard, whose error does not end the worker; and a handler that stops the worker."""
        match line.event:
            case events.ShardIsolated(shard_id=shard_id):
                self._isolated.add((line.worker, shard_id))
            case events.HandlerFailed(action="stop"):
                self._failing.add(line.worker)

    def closed(self, line: Closed, now: float) -> None:
        """Check that a task that ends has saved what it acked."""
        books, key = self._books, (line.worker, line.shard)
        if line.error is not None and key not in self._isolated:
            self._failing.add(line.worker)
        self._isolated.discard(key)
        task = books.open.pop(key, None)
        if task is None:
            return
        task.closed_at, task.error = now, line.error
        books.closed[key] = task
        shard = books.shards[line.shard]
        # The last save and the release of an interrupted task have little time (rule R14): a slow store may use it up.
        is_cut = line.error is not None and now - task.store_failed_at <= LAST_SAVE_TIMEOUT
        task.save_failed |= is_cut
        shard.is_abandoned |= is_cut and shard.holding_process == line.worker
        if line.is_finished and shard.checkpoint != Checkpoint.SHARD_END:
            books.report(f"{line.worker} reports {line.shard} as finished, but its checkpoint is {shard.checkpoint}")
        if task.lost_reason is None and not task.save_failed and not _covers(shard, task.acked_to):
            identity = shard.identities[task.acked_to - 1]
            books.report(
                f"{line.worker} stops reading {line.shard} with {identity} acked, "
                f"but the checkpoint is {shard.checkpoint}"
            )

    def crashed(self, line: Crashed, now: float) -> None:
        """Note a crash. If an error was ending the worker meanwhile, it had interrupted all of its shard tasks."""
        self._books.crashed |= {line.worker, line.worker_id}
        if line.worker in self._failing:
            self._books.failed.add(line.worker)
        for key in [key for key in self._books.open if key[0] == line.worker]:
            task = self._books.open.pop(key)
            task.closed_at, task.has_crashed = now, True

    def exited(self, line: Exited) -> None:
        """Note the end of a worker."""
        if line.error is not None:
            self._books.failed.add(line.worker)

    def conclude(self) -> None:
        """Check that every task has ended."""
        for worker, shard_id in self._books.open:
            self._books.report(f"{worker} has ended, but its shard task of {shard_id} has not")


def _covers(shard: ShardLedger, index: int) -> bool:
    return shard.checkpoint == Checkpoint.SHARD_END or shard.index_after(shard.checkpoint) >= index
