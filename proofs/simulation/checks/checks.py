"""Checks a story while it grows: what efo guarantees about loss, order, checkpoints, shard ends and duplicates.

Pure: lines and their times go in, `problems` come out. Each problem is a sentence.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from functools import singledispatchmethod

from efo.consumer.shard_task import LAST_SAVE_TIMEOUT
from efo.model import Checkpoint
from proofs.simulation.checks.duplicates import unexplained
from proofs.simulation.checks.guarantees import Guarantees
from proofs.simulation.checks.ledger import ShardLedger, TaskLedger
from proofs.simulation.checks.lineage import ancestry, generation, has_progress, must_be_deleted
from proofs.simulation.checks.order import KeyOrder
from proofs.simulation.story import (
    Acked,
    ChildrenSaved,
    Closed,
    Crashed,
    Created,
    Deleted,
    Exited,
    Handled,
    Held,
    Line,
    Lost,
    Mark,
    Opened,
    Positioned,
    Put,
    Refused,
    Repositioned,
    Resharded,
    Saved,
    SkippedByPolicy,
    StoreFailed,
    Violation,
)

TAKEN_ALONG = 5.0
"""AT_TIMESTAMP takes shards along that ended at most this many seconds before it. Their children are read whole."""
MAX_PROBLEMS = 20
"""How many problems are kept. Later ones are usually consequences of the first."""


class Checks:
    """Checks every line of a story. `problems`: broken guarantees. `on_complete`: called when everything is done."""

    def __init__(self, guarantees: Guarantees, on_complete: Callable[[], None] = lambda: None) -> None:
        self.problems: list[str] = []
        self.shards: dict[str, ShardLedger] = {}
        self.records = 0
        self.duplicates = 0
        self.unexplained = 0
        self._guarantees = guarantees
        self._on_complete = on_complete
        self._at_millis: int | None = None
        self._open: dict[tuple[str, str], TaskLedger] = {}
        self._closed: dict[tuple[str, str], TaskLedger] = {}
        self._order = KeyOrder()
        self._unprocessed = 0
        self._repeated: list[tuple[float, TaskLedger, TaskLedger, int]] = []
        self._failed: set[str] = set()
        self._crashed: set[str] = set()
        self._store_failed: set[str] = set()

    @property
    def is_complete(self) -> bool:
        """Whether every record is processed, every closed shard is finished, and every open shard has a lease."""
        return not self._unprocessed and not any(
            shard.is_unfinished or self._lacks_lease(shard) for shard in self.shards.values()
        )

    def _lacks_lease(self, shard: ShardLedger) -> bool:
        """Return whether a shard has no lease but needs one."""
        return not shard.has_lease and not (shard.is_closed and self._may_be_left_out(shard))

    def _may_be_left_out(self, shard: ShardLedger) -> bool:
        """Return whether a closed shard may have no lease: nothing in it is new enough for the initial position."""
        if self._at_millis is not None:
            return not shard.put_millis or shard.put_millis[-1] < self._at_millis
        return self._guarantees.at_latest

    @property
    def is_settled(self) -> bool:
        """Whether every processed record is also acked, so that a graceful stop repeats nothing."""
        acked = {
            (task.worker_id, shard_id): task.acked_to == len(self.shards[shard_id].marks)
            for (_, shard_id), task in self._open.items()
        }
        return self.is_complete and all(
            shard.is_closed
            or acked.get((shard.holder or "", shard_id))
            or shard.index_after(shard.checkpoint) == len(shard.marks)
            for shard_id, shard in self.shards.items()
        )

    def check(self, now: float, line: Line) -> None:
        """Check a line of the story."""
        self._check_line(line, now)

    def missing(self) -> str:
        """Return a text about what is not done yet."""
        missing = {
            shard_id: f"{len(shard.marks) - len(shard.processed)} of {len(shard.marks)} records, "
            f"checkpoint {shard.checkpoint}"
            for shard_id, shard in self.shards.items()
            if len(shard.processed) < len(shard.marks) or shard.is_unfinished or self._lacks_lease(shard)
        }
        return "; ".join(f"{shard_id}: {what}" for shard_id, what in missing.items())

    @property
    def generations(self) -> int:
        """How many generations of shards there are."""
        return max((generation(self.shards, shard_id) for shard_id in self.shards), default=0)

    def undeleted_leases(self) -> list[str]:
        """Return the finished shards whose leases exist although nothing depends on them any more."""
        return [shard_id for shard_id, shard in self.shards.items() if must_be_deleted(self.shards, shard)]

    def conclude(self) -> None:
        """Check the end state, after every worker has stopped gracefully."""
        for shard_id, shard in self.shards.items():
            if self._lacks_lease(shard):
                self._report(f"{shard_id} was never read: it has no lease")
            elif lost := [shard.identities[i] for i in self._required(shard) if i not in shard.processed]:
                self._report(f"lost: {len(lost)} records of {shard_id}, the first {lost[0]}")
            if shard.is_unfinished:
                self._report(f"{shard_id} is closed, but its checkpoint is {shard.checkpoint}")
            # The worker may not know that it took the lease: the response was lost.
            is_unknown = shard.holding_process in self._store_failed and not shard.is_started
            may_be_held = (
                shard.holding_process in self._crashed
                or is_unknown
                or shard.is_abandoned
                or shard.checkpoint == Checkpoint.SHARD_END
            )
            if shard.holder is not None and not may_be_held:
                self._report(f"{shard_id}: {shard.holder} still holds its lease after all workers have stopped")
        for worker, shard_id in self._open:
            self._report(f"{worker} has ended, but its shard task of {shard_id} has not")
        for at, *both, index in self._repeated:
            older, newer = sorted(both, key=lambda task: task.lease_taken_at)
            why = unexplained(
                older,
                newer,
                index,
                max_save_delay=self._guarantees.max_save_delay,
                has_failed=older.worker in self._failed,
            )
            if why is not None:
                self.unexplained += 1
                identity = self.shards[newer.shard].identities[index]
                self._report(f"duplicate at {at:.3f}: {identity} of {newer.shard} by {newer.worker}, {why}")

    def _report(self, problem: str) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem)

    # --- line by line --------------------------------------------------------------------------------------

    @singledispatchmethod
    def _check_line(self, _line: object, _now: float) -> None:
        """Check a line. Kinds of lines that are not registered below need no check."""

    @_check_line.register
    def _(self, line: Put, _now: float) -> None:
        shard = self.shards.setdefault(line.shard, ShardLedger())
        shard.add(line.mark, line.key, line.number, line.millis)
        self._unprocessed += shard.has_lease
        self.records += 1

    @_check_line.register
    def _(self, line: Positioned, _now: float) -> None:
        self._at_millis = line.millis

    @_check_line.register
    def _(self, line: Resharded, _now: float) -> None:
        for parent in line.parents:
            shard = self.shards.setdefault(parent, ShardLedger())
            shard.is_closed, shard.children = True, line.children
        for child in line.children:
            self.shards.setdefault(child, ShardLedger()).parents = line.parents

    @_check_line.register
    def _(self, line: Opened, now: float) -> None:
        shard = self.shards.setdefault(line.shard, ShardLedger())
        if (line.worker, line.shard) in self._open:
            self._report(f"{line.worker} reads {line.shard} twice at once")
        lease_taken_at, checkpoint = shard.taken_by.get(line.worker_id, (now, None))
        if line.checkpoint != checkpoint:
            self._report(f"{line.worker} starts {line.shard} at {line.checkpoint}, but its lease has {checkpoint}")
        self._check_parents(line.shard, shard)
        shard.is_started = True
        start = shard.index_after(line.checkpoint)
        task = TaskLedger(
            line.worker,
            line.worker_id,
            line.shard,
            lease_taken_at,
            start,
            line.by_key,
            next_index=start,
            acked_to=start,
        )
        self._open[line.worker, line.shard] = task

    @_check_line.register
    def _(self, line: Repositioned, _now: float) -> None:
        self._open[line.worker, line.shard].seek(self.shards[line.shard].index_after(line.to))

    @_check_line.register
    def _(self, line: Handled, now: float) -> None:
        for mark in line.marks:
            self._process(line.worker, line.shard, mark, now)
        self._check_lease(line.worker, line.shard, now)

    @_check_line.register
    def _(self, line: SkippedByPolicy, now: float) -> None:
        shard = self.shards[line.shard]
        if line.mark in shard.index_of and not self._guarantees.may_skip(*shard.identities[shard.index_of[line.mark]]):
            self._report(
                f"{line.worker} skipped or dead-lettered {shard.identities[shard.index_of[line.mark]]} of "
                f"{line.shard}, which does not fail"
            )
        self._process(line.worker, line.shard, line.mark, now)
        self._check_line(Acked(line.worker, line.shard, (line.mark,)), now)

    @_check_line.register
    def _(self, line: Refused, _now: float) -> None:
        shard = self.shards[line.shard]
        for index in (shard.index_of[mark] for mark in line.marks):
            identity = shard.identities[index]
            if not self._guarantees.may_refuse(*identity):
                self._report(f"{line.worker}: {identity} of {line.shard} is {line.outcome}, but no sink refuses it")
            if shard.refused.get(index) == line.outcome == "dead_lettered":
                self._report(f"{line.worker}: {identity} of {line.shard} is twice in the dead letters")
            shard.refused[index] = line.outcome

    @_check_line.register
    def _(self, line: Acked, now: float) -> None:
        task, shard = self._open.get((line.worker, line.shard)), self.shards[line.shard]
        if task is not None:
            for mark in line.marks:
                self._pass_refused(task, shard, shard.index_of[mark] + 1)
                task.ack(shard.index_of[mark], now)

    @_check_line.register
    def _(self, line: Created, _now: float) -> None:
        shard = self.shards.setdefault(line.shard, ShardLedger())
        if shard.was_deleted:
            self._report(f"{line.shard} has a lease again after its lease was deleted")
        shard.has_lease, shard.checkpoint = True, line.checkpoint
        since_millis = self._at_millis if line.checkpoint == Checkpoint.AT_TIMESTAMP else line.since_millis
        if since_millis is not None:
            self._skip_before(shard, since_millis)
        if any(self.shards[parent].has_lease for parent in shard.parents):
            if line.checkpoint != Checkpoint.TRIM_HORIZON:
                self._report(f"the child {line.shard} starts at {line.checkpoint}, not at TRIM_HORIZON")
        elif line.checkpoint != self._initial:
            self._report(f"{line.shard} starts at {line.checkpoint}, not at {self._initial}")
        self._unprocessed += len(self._required(shard))

    @_check_line.register
    def _(self, line: Deleted, _now: float) -> None:
        shard = self.shards[line.shard]
        shard.was_deleted = True
        if shard.checkpoint != Checkpoint.SHARD_END:
            self._report(f"{line.worker} deletes the lease of {line.shard}, which is at {shard.checkpoint}")
        for child in shard.children:
            if not has_progress(self.shards[child]):
                self._report(
                    f"{line.worker} deletes the lease of {line.shard} before its child {child} has a checkpoint"
                )

    @_check_line.register
    def _(self, line: ChildrenSaved, _now: float) -> None:
        self.shards[line.shard].saved_children = line.children

    @_check_line.register
    def _(self, line: StoreFailed, now: float) -> None:
        self._store_failed.add(line.worker)
        for task in self._open.values():
            if task.worker == line.worker:
                task.save_failed, task.store_failed_at = True, now

    @_check_line.register
    def _(self, line: Saved, _now: float) -> None:
        shard, task = self.shards[line.shard], self._open.get((line.worker, line.shard))
        if task is None and self._guarantees.saves_late:
            task = self._closed.get((line.worker, line.shard))
        if task is None:
            self._report(f"{line.worker} saves {line.checkpoint} of {line.shard}, which it does not read")
        elif line.checkpoint == Checkpoint.SHARD_END:
            self._check_end(line, shard, task)
        else:
            task.save_failed = False
            covered = shard.index_after(line.checkpoint)
            if covered > task.acked_to:
                self._report(
                    f"{line.worker} saves {line.checkpoint} of {line.shard} ahead of an ack: "
                    f"{shard.identities[task.acked_to]} is not acked"
                )
            if line.checkpoint < shard.checkpoint and not self._guarantees.owns_position:
                self._report(f"{line.worker} moves {line.shard} back from {shard.checkpoint} to {line.checkpoint}")
        shard.checkpoint = line.checkpoint
        self._notify_if_complete()

    @_check_line.register
    def _(self, line: Held, now: float) -> None:
        shard = self.shards[line.shard]
        shard.holder, shard.held_since, shard.is_abandoned, shard.is_started = line.holder, now, False, False
        if line.holder is not None:
            shard.taken_by[line.holder] = (now, shard.checkpoint)
        shard.holding_process = line.worker if line.worker_id == line.holder else line.holder

    @_check_line.register
    def _(self, line: Lost, _now: float) -> None:
        if task := self._open.get((line.worker, line.shard)):
            task.lost_reason = line.reason
        if self.shards[line.shard].holding_process == line.worker:
            self.shards[line.shard].is_abandoned = True

    @_check_line.register
    def _(self, line: Closed, now: float) -> None:
        task = self._open.pop((line.worker, line.shard), None)
        if task is None:
            return
        task.closed_at, task.error = now, line.error
        self._closed[line.worker, line.shard] = task
        shard = self.shards[line.shard]
        # The last save of an interrupted task has little time (rule R14): a slow store may use it up.
        task.save_failed |= line.error is not None and now - task.store_failed_at <= LAST_SAVE_TIMEOUT
        if line.is_finished and shard.checkpoint != Checkpoint.SHARD_END:
            self._report(f"{line.worker} reports {line.shard} as finished, but its checkpoint is {shard.checkpoint}")
        if task.lost_reason is None and not task.save_failed and not self._covers(shard, task.acked_to):
            identity = shard.identities[task.acked_to - 1]
            self._report(
                f"{line.worker} stops reading {line.shard} with {identity} acked, "
                f"but the checkpoint is {shard.checkpoint}"
            )

    @_check_line.register
    def _(self, line: Crashed, now: float) -> None:
        self._crashed |= {line.worker, line.worker_id}
        for worker, shard_id in [key for key in self._open if key[0] == line.worker]:
            task = self._open.pop((worker, shard_id))
            task.closed_at, task.has_crashed = now, True

    @_check_line.register
    def _(self, line: Exited, _now: float) -> None:
        if line.error is not None:
            self._failed.add(line.worker)

    @_check_line.register
    def _(self, line: Violation, _now: float) -> None:
        self._report(line.what)

    # --- what several lines have in common -----------------------------------------------------------------

    def _required(self, shard: ShardLedger) -> range:
        """Return the indexes of the records that must be read."""
        return range(shard.first_index, len(shard.marks)) if shard.has_lease else range(0)

    @property
    def _initial(self) -> Checkpoint:
        """Where a shard starts that was never read, and whose parents were not."""
        if self._at_millis is not None:
            return Checkpoint.AT_TIMESTAMP
        return Checkpoint.LATEST if self._guarantees.at_latest else Checkpoint.TRIM_HORIZON

    def _skip_before(self, shard: ShardLedger, since_millis: int) -> None:
        """Require no records of a shard that were put before this time, and none of its ancestors."""
        shard.first_index = bisect_left(shard.put_millis, since_millis)
        self._order.skip(shard.identities[: shard.first_index])
        for parent in shard.parents:
            if not self.shards[parent].has_lease:
                for ancestor in ancestry(self.shards, parent):
                    self._order.skip(self.shards[ancestor].identities)

    def _check_parents(self, shard_id: str, shard: ShardLedger) -> None:
        for parent in shard.parents:
            is_read = self.shards[parent].has_lease or not self._may_be_left_out(self.shards[parent])
            if is_read and self.shards[parent].checkpoint != Checkpoint.SHARD_END:
                self._report(f"the child {shard_id} starts before its parent {parent} is finished")

    def _check_end(self, line: Saved, shard: ShardLedger, task: TaskLedger) -> None:
        """Check the end of a shard by rule R2: everything acked, children created, their ids saved, then SHARD_END."""
        if not shard.is_closed:
            self._report(f"{line.worker} finishes {line.shard}, which is open")
        if task.acked_to < len(shard.marks):
            identity = shard.identities[task.acked_to]
            self._report(f"{line.worker} finishes {line.shard} ahead of an ack: {identity} is not acked")
        if missing := [child for child in shard.children if not self.shards[child].has_lease]:
            self._report(f"{line.worker} finishes {line.shard} before its children {missing} have leases")
        if sorted(shard.saved_children) != sorted(shard.children):
            self._report(f"{line.worker} finishes {line.shard} with the saved children {shard.saved_children}")

    def _covers(self, shard: ShardLedger, index: int) -> bool:
        return shard.checkpoint == Checkpoint.SHARD_END or shard.index_after(shard.checkpoint) >= index

    def _check_lease(self, worker: str, shard_id: str, now: float) -> None:
        """Check that a worker does not handle records too long after it lost the lease."""
        shard, task = self.shards[shard_id], self._open.get((worker, shard_id))
        if task is not None and shard.holder != task.worker_id:
            since = now - shard.held_since
            if since > self._guarantees.max_zombie_time:
                self._report(
                    f"{worker} handles records of {shard_id} {since:.3f} s after its lease went to {shard.holder}"
                )

    def _process(self, worker: str, shard_id: str, mark: Mark, now: float) -> None:
        """Check a record that took effect, was skipped or was dead-lettered."""
        shard = self.shards.setdefault(shard_id, ShardLedger())
        index = shard.index_of.get(mark)
        if index is None:
            self._report(f"{worker} handles a record of {shard_id} that was not put there: {mark}")
            return
        task = self._open.get((worker, shard_id))
        if task is None:
            self._report(f"{worker} handles a record of {shard_id}, which it does not read")
            return
        self._check_parents(shard_id, shard)
        self._check_time(shard_id, shard, index)
        self._pass_refused(task, shard, index)
        self._check_task_order(task, shard, index)
        earlier = shard.processed.get(index)
        shard.processed[index] = task
        if earlier is None:
            self._unprocessed -= 1
            self._check_key_order(shard_id, shard.identities[index])
            self._notify_if_complete()
            return
        self.duplicates += 1
        if earlier is task:
            self.unexplained += 1
            self._report(f"{worker} handles {shard.identities[index]} of {shard_id} twice in one shard task")
        elif self._guarantees.owns_position:
            self.unexplained += 1
            self._report(
                f"the sink has {shard.identities[index]} of {shard_id} twice, from {earlier.worker} and from {worker}"
            )
        else:
            self._repeated.append((now, earlier, task, index))

    def _check_time(self, shard_id: str, shard: ShardLedger, index: int) -> None:
        """Check that AT_TIMESTAMP reads no older record than those of a shard that ended just before the time."""
        early = int(1000 * (TAKEN_ALONG + self._guarantees.max_listing_lag))
        if self._at_millis is not None and shard.put_millis[index] < self._at_millis - early:
            before = (self._at_millis - shard.put_millis[index]) / 1000
            identity = shard.identities[index]
            self._report(f"{identity} of {shard_id} takes effect, but was put {before:.3f} s before the start")

    def _pass_refused(self, task: TaskLedger, shard: ShardLedger, until: int) -> None:
        """Let a task pass the refused records that come next, before the record `until`: each takes effect now."""
        while task.next_index < until and task.next_index in shard.refused:
            index, task.next_index = task.next_index, task.next_index + 1
            if index not in shard.processed:
                shard.processed[index] = task
                self._unprocessed -= 1
                self._check_key_order(task.shard, shard.identities[index])
                self._notify_if_complete()

    def _check_task_order(self, task: TaskLedger, shard: ShardLedger, index: int) -> None:
        """Check that a record is the next one of its shard task or, with several keys at once, of its key."""
        key, number = shard.identities[index]
        expected = task.expected_index(shard, key) if task.by_key else task.next_index
        if index != expected:
            wanted = "nothing" if expected is None or expected >= len(shard.identities) else shard.identities[expected]
            self._report(f"{task.worker} handles {(key, number)} of {task.shard}, but the next one is {wanted}")
        if task.by_key:
            task.next_of_key[key] = bisect_right(shard.indexes_of_key[key], index)
        task.next_index = index + 1

    def _check_key_order(self, shard_id: str, identity: tuple[str, int]) -> None:
        if (problem := self._order.problem(shard_id, *identity)) is not None:
            self._report(problem)

    def _notify_if_complete(self) -> None:
        if self.is_complete:
            self._on_complete()
