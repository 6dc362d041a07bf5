"""What the checks know of one shard and of one reading of it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from math import inf

from efo.model import SHARD_END, TRIM_HORIZON, Checkpoint
from proofs.simulation.story import Mark


@dataclass(slots=True)
class Book:
    """A shard: its user records in order, and its row in the lease store.

    `done`: records that took effect or were set aside, by index. `by_key`: the indexes of each key's records.
    `holder`: the id in the row; `held_by`: the life of that worker, as far as it is known. `granted`: when each worker
    last took the lease, and what the checkpoint was then. `is_abandoned`: its holder could not renew it in time, and
    leaves it to expire. `is_begun`: its holder has begun to read. `is_deleted`: there was a row, and it is gone.
    `first`: the index of the first record that is to be read at all.
    """

    parents: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    is_closed: bool = False
    marks: list[Mark] = field(default_factory=list)
    whose: list[tuple[str, int]] = field(default_factory=list)
    by_key: dict[str, list[int]] = field(default_factory=dict)
    place: dict[Mark, int] = field(default_factory=dict)
    millis: list[int] = field(default_factory=list)
    done: dict[int, Reading] = field(default_factory=dict)
    # the row
    exists: bool = False
    first: int = 0
    checkpoint: Checkpoint = TRIM_HORIZON
    saved_children: tuple[str, ...] = ()
    holder: str | None = None
    held_since: float = 0.0
    held_by: str | None = None
    is_abandoned: bool = False
    is_begun: bool = False
    is_deleted: bool = False
    granted: dict[str, tuple[float, Checkpoint]] = field(default_factory=dict)

    @property
    def is_waited_for(self) -> bool:
        """Whether this is a shard that was closed, and is read, and not finished."""
        return self.is_closed and self.exists and self.checkpoint != SHARD_END

    def add(self, mark: Mark, key: str, number: int, millis: int) -> None:
        """Add a user record that was put."""
        index = len(self.marks)
        self.place[mark] = index
        self.marks.append(mark)
        self.whose.append((key, number))
        self.millis.append(millis)
        self.by_key.setdefault(key, []).append(index)

    def index_after(self, checkpoint: Checkpoint) -> int:
        """Return the index of the first record that this checkpoint does not cover."""
        if checkpoint.is_sentinel:
            return self.first
        return bisect_right(self.marks, (int(checkpoint.sequence_number), checkpoint.sub_sequence_number))


@dataclass(slots=True)
class Reading:
    """One reading of a shard, from record `start` on.

    `granted_at`: when its lease was taken. `next`: the index that comes next, for a reader that takes one after the
    other. `acked_to`: all records before this index are acked; `acked_at`: when that came to be, for each index from
    `start` on.
    """

    worker: str
    worker_id: str
    shard: str
    granted_at: float
    start: int
    by_key: bool
    next: int
    acked_to: int
    next_of_key: dict[str, int] = field(default_factory=dict)
    acked: set[int] = field(default_factory=set)
    acked_at: list[float] = field(default_factory=list)
    closed_at: float | None = None
    lost: str | None = None
    has_crashed: bool = False
    error: str | None = None
    save_failed: bool = False
    troubled_at: float = -inf

    def expected(self, book: Book, key: str) -> int | None:
        """Return the index of the key's next record in this reading, None if there is none."""
        indexes = book.by_key[key]
        if key not in self.next_of_key:
            self.next_of_key[key] = bisect_left(indexes, self.start)
        at = self.next_of_key[key]
        return indexes[at] if at < len(indexes) else None

    def ack(self, index: int, now: float) -> None:
        """Take note that a record is acked."""
        self.acked.add(index)
        while self.acked_to in self.acked:
            self.acked.discard(self.acked_to)
            self.acked_at.append(now)
            self.acked_to += 1

    def seek(self, index: int) -> None:
        """Begin anew at this index."""
        self.start = self.next = self.acked_to = index
        self.next_of_key.clear()
        self.acked.clear()
        self.acked_at.clear()
