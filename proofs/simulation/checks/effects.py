"""Checks each record that takes effect: that it was put, its place in its shard and key, and duplicates. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from proofs.simulation.checks.books import Books
from proofs.simulation.checks.duplicates import unexplained
from proofs.simulation.checks.ledger import ShardLedger, TaskLedger
from proofs.simulation.checks.order import KeyOrder
from proofs.simulation.story import Acked, Handled, Mark, Refused, SkippedByPolicy

TAKEN_ALONG = 5.0
"""AT_TIMESTAMP takes shards along that ended at most this many seconds before it. Their children are read whole."""


class Effects:
    """The records that were handled, skipped, dead-lettered or refused. `duplicates`: how many of them repeat one.

    `unexplained`: the duplicates that are defects, counted by `conclude` at the latest. `order`: of the records of each
    key. `notify`: called after each record that took effect for the first time.
    """

    def __init__(self, books: Books, order: KeyOrder, notify: Callable[[], None]) -> None:
        self.duplicates = 0
        self.unexplained = 0
        self._books = books
        self._order = order
        self._notify = notify
        self._repeated: list[tuple[float, TaskLedger, TaskLedger, int]] = []

    def handled(self, line: Handled, now: float) -> None:
        """Check records that took effect."""
        for mark in line.marks:
            self._process(line.worker, line.shard, mark, now)

    def skipped(self, line: SkippedByPolicy, now: float) -> None:
        """Check a record that the policy skipped or dead-lettered."""
        shard = self._books.shards[line.shard]
        if line.mark in shard.index_of:
            identity = shard.identities[shard.index_of[line.mark]]
            if not self._books.guarantees.may_skip(*identity):
                self._books.report(
                    f"{line.worker} skipped or dead-lettered {identity} of {line.shard}, which does not fail"
                )
        self._process(line.worker, line.shard, line.mark, now)
        self.acked(Acked(line.worker, line.shard, (line.mark,)), now)

    def refused(self, line: Refused) -> None:
        """Check records that the sink refuses. They take effect when their shard task passes them."""
        shard = self._books.shards[line.shard]
        for index in (shard.index_of[mark] for mark in line.marks):
            identity = shard.identities[index]
            if not self._books.guarantees.may_refuse(*identity):
                self._books.report(
                    f"{line.worker}: {identity} of {line.shard} is {line.outcome}, but no sink refuses it"
                )
            if shard.refused.get(index) == line.outcome == "dead_lettered":
                self._books.report(f"{line.worker}: {identity} of {line.shard} is twice in the dead letters")
            shard.refused[index] = line.outcome

    def acked(self, line: Acked, now: float) -> None:
        """Note acks."""
        task, shard = self._books.open.get((line.worker, line.shard)), self._books.shards[line.shard]
        if task is not None:
            for mark in line.marks:
                self._pass_refused(task, shard, shard.index_of[mark] + 1)
                task.ack(shard.index_of[mark], now)

    def conclude(self) -> None:
        """Check that each duplicate has an explanation."""
        for at, *both, index in self._repeated:
            older, newer = sorted(both, key=lambda task: task.lease_taken_at)
            why = unexplained(
                older,
                newer,
                index,
                max_save_delay=self._books.guarantees.max_save_delay,
                has_failed=older.worker in self._books.failed,
            )
            if why is not None:
                self.unexplained += 1
                identity = self._books.shards[newer.shard].identities[index]
                self._books.report(f"duplicate at {at:.3f}: {identity} of {newer.shard} by {newer.worker}, {why}")

    # --- one record ----------------------------------------------------------------------------------------

    def _process(self, worker: str, shard_id: str, mark: Mark, now: float) -> None:
        """Check a record that took effect, was skipped or was dead-lettered."""
        books = self._books
        shard = books.shard(shard_id)
        index = shard.index_of.get(mark)
        if index is None:
            books.report(f"{worker} handles a record of {shard_id} that was not put there: {mark}")
            return
        task = books.open.get((worker, shard_id))
        if task is None:
            books.report(f"{worker} handles a record of {shard_id}, which it does not read")
            return
        books.check_parents(shard_id)
        self._check_time(shard_id, shard, index)
        self._pass_refused(task, shard, index)
        self._check_task_order(task, shard, index)
        earlier = shard.processed.get(index)
        if earlier is None:
            self._take_effect(task, shard, index)
        else:
            shard.processed[index] = task
            self._repeat(earlier, task, shard, index, now)

    def _take_effect(self, task: TaskLedger, shard: ShardLedger, index: int) -> None:
        """Note that a record takes effect for the first time."""
        shard.processed[index] = task
        self._books.unprocessed -= 1
        if (problem := self._order.problem(task.shard, *shard.identities[index])) is not None:
            self._books.report(problem)
        self._notify()

    def _repeat(self, earlier: TaskLedger, task: TaskLedger, shard: ShardLedger, index: int, now: float) -> None:
        """Note a duplicate. Most are explained by what comes later in the story: `conclude`."""
        self.duplicates += 1
        record = f"{shard.identities[index]} of {task.shard}"
        if earlier is task:
            self.unexplained += 1
            self._books.report(f"{task.worker} handles {record} twice in one shard task")
        elif self._books.guarantees.owns_position:
            self.unexplained += 1
            self._books.report(f"the sink has {record} twice, from {earlier.worker} and from {task.worker}")
        else:
            self._repeated.append((now, earlier, task, index))

    def _check_time(self, shard_id: str, shard: ShardLedger, index: int) -> None:
        """Check that AT_TIMESTAMP reads no older record than those of a shard that ended just before the time."""
        at_millis = self._books.at_millis
        early = int(1000 * (TAKEN_ALONG + self._books.guarantees.max_listing_lag))
        if at_millis is not None and shard.put_millis[index] < at_millis - early:
            before = (at_millis - shard.put_millis[index]) / 1000
            identity = shard.identities[index]
            self._books.report(f"{identity} of {shard_id} takes effect, but was put {before:.3f} s before the start")

    def _pass_refused(self, task: TaskLedger, shard: ShardLedger, until: int) -> None:
        """Let a task pass the refused records that come next, before the record `until`: each takes effect now."""
        while task.next_index < until and task.next_index in shard.refused:
            index, task.next_index = task.next_index, task.next_index + 1
            if index not in shard.processed:
                self._take_effect(task, shard, index)

    def _check_task_order(self, task: TaskLedger, shard: ShardLedger, index: int) -> None:
        """Check that a record is the next one of its shard task or, with several keys at once, of its key."""
        key, number = shard.identities[index]
        expected = task.expected_index(shard, key) if task.by_key else task.next_index
        if index != expected:
            wanted = "nothing" if expected is None or expected >= len(shard.identities) else shard.identities[expected]
            self._books.report(f"{task.worker} handles {(key, number)} of {task.shard}, but the next one is {wanted}")
        if task.by_key:
            task.next_of_key[key] = bisect_right(shard.indexes_of_key[key], index)
        task.next_index = index + 1
