"""What the checks know about one shard and about one shard task."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from math import inf

from efo.model import Checkpoint
from proofs.simulation.story import Mark


@dataclass(slots=True)
class ShardLedger:
    """A shard: its user records in order, and its lease row. Records are named by their index in the shard.

    `marks`, `identities`, `put_millis`: one item per record; an identity is (key, number of the record in its key).
    `indexes_of_key`: the records of each key. `index_of`: the record at each position.
    `processed`: the task that handled, skipped or dead-lettered the record last.

    `refused`: the records that the sink refused, with what happened to them. They count as processed when their shard
    task passes them.

    `has_lease`: the lease row exists. `was_deleted`: the lease row existed and was deleted.
    `first_index`: the first record that must be read.
    `holder`: the worker id in the row. `holding_process`: the process of that worker, or its id if the process is
    unknown.
    `is_abandoned`: the holder could not renew the lease in time and leaves it to expire. `is_started`: the holder
    started to read. `taken_by`: when each worker last took the lease, and the checkpoint at that time.
    """

    parents: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    is_closed: bool = False
    marks: list[Mark] = field(default_factory=list)
    identities: list[tuple[str, int]] = field(default_factory=list)
    indexes_of_key: dict[str, list[int]] = field(default_factory=dict)
    index_of: dict[Mark, int] = field(default_factory=dict)
    put_millis: list[int] = field(default_factory=list)
    processed: dict[int, TaskLedger] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    # The lease row.
    has_lease: bool = False
    first_index: int = 0
    checkpoint: Checkpoint = Checkpoint.TRIM_HORIZON
    saved_children: tuple[str, ...] = ()
    holder: str | None = None
    held_since: float = 0.0
    holding_process: str | None = None
    is_abandoned: bool = False
    is_started: bool = False
    was_deleted: bool = False
    taken_by: dict[str, tuple[float, Checkpoint]] = field(default_factory=dict)

    @property
    def is_unfinished(self) -> bool:
        """Whether the shard is closed and has a lease, but its checkpoint is not SHARD_END."""
        return self.is_closed and self.has_lease and self.checkpoint != Checkpoint.SHARD_END

    def add(self, mark: Mark, key: str, number: int, millis: int) -> None:
        """Add a user record that was put."""
        index = len(self.marks)
        self.index_of[mark] = index
        self.marks.append(mark)
        self.identities.append((key, number))
        self.put_millis.append(millis)
        self.indexes_of_key.setdefault(key, []).append(index)

    def index_after(self, checkpoint: Checkpoint) -> int:
        """Return the index of the first record that the checkpoint does not cover."""
        if checkpoint.is_sentinel:
            return self.first_index
        return bisect_right(self.marks, (int(checkpoint.sequence_number), checkpoint.sub_sequence_number))


@dataclass(slots=True)
class TaskLedger:
    """One shard task, which reads from record `start` on.

    `worker`: the process of the worker. `lease_taken_at`: when the worker took the lease.
    `next_index`: the next record, for a task that handles records one after the other. `next_of_key`: the same for each
    key, as an index into the records of that key.
    `acked_to`: all records before this index are acked. `acked_at`: for each of them from `start` on, the time at
    which it and all records before it were acked. `acked`: the acked records after that.
    `store_failed_at`: when a call to the lease store failed last.
    """

    worker: str
    worker_id: str
    shard: str
    lease_taken_at: float
    start: int
    by_key: bool
    next_index: int
    acked_to: int
    next_of_key: dict[str, int] = field(default_factory=dict)
    acked: set[int] = field(default_factory=set)
    acked_at: list[float] = field(default_factory=list)
    closed_at: float | None = None
    lost_reason: str | None = None
    has_crashed: bool = False
    error: str | None = None
    save_failed: bool = False
    store_failed_at: float = -inf

    def expected_index(self, shard: ShardLedger, key: str) -> int | None:
        """Return the index of the next record of a key in this task, or None."""
        indexes = shard.indexes_of_key[key]
        if key not in self.next_of_key:
            self.next_of_key[key] = bisect_left(indexes, self.start)
        at = self.next_of_key[key]
        return indexes[at] if at < len(indexes) else None

    def ack(self, index: int, now: float) -> None:
        """Record the ack of a record."""
        self.acked.add(index)
        while self.acked_to in self.acked:
            self.acked.discard(self.acked_to)
            self.acked_at.append(now)
            self.acked_to += 1

    def seek(self, index: int) -> None:
        """Restart at this index."""
        self.start = self.next_index = self.acked_to = index
        self.next_of_key.clear()
        self.acked.clear()
        self.acked_at.clear()
