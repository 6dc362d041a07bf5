"""Judges a story while it is told: what was promised about loss, order, checkpoints, ends and duplicates.

Pure: lines and their times go in, `problems` come out. Each problem is a sentence.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatchmethod

from efo.consumer.shard_task import LAST_SAVE_TIMEOUT
from efo.model import SHARD_END, TRIM_HORIZON
from proofs.simulation.book import Book, Reading
from proofs.simulation.story import (
    Acked,
    Broken,
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
    Put,
    Resharded,
    Saved,
    SetAside,
    Sought,
    StoreFailed,
)

MOST_PROBLEMS = 20
"""So many problems are kept: what follows the first few is their consequence."""


@dataclass(frozen=True, slots=True)
class Promises:
    """What holds in this world. Times are in seconds.

    `at_latest`: what was put before a shard's first lease is not to be read.
    `owns_position`: the sink keeps position and data in one step, so nothing may take effect twice. `stale_after`: an
    ack is saved after so long, if the store lets it. `zombie_for`: so long may a worker read on that has lost its lease
    and cannot know it. `may_set_aside`: the policy skips or dead-letters, and only these (key, number).
    """

    at_latest: bool = False
    owns_position: bool = False
    stale_after: float = 5.0
    zombie_for: float = 10.0
    may_set_aside: Callable[[str, int], bool] = lambda _key, _number: False


class Checks:
    """Takes every line of a story. `problems` has what broke a promise; `on_complete` is called when all is done."""

    def __init__(self, promises: Promises, on_complete: Callable[[], None] = lambda: None) -> None:
        self.problems: list[str] = []
        self.books: dict[str, Book] = {}
        self.records = 0
        self.duplicates = 0
        self.unexplained = 0
        self._promises = promises
        self._on_complete = on_complete
        self._open: dict[tuple[str, str], Reading] = {}
        self._frontier: dict[str, int] = {}
        self._undone = 0
        self._again: list[tuple[float, Reading, Reading, int]] = []
        self._failed: set[str] = set()
        self._dead: set[str] = set()
        self._troubled: set[str] = set()

    @property
    def is_complete(self) -> bool:
        """Whether every record is done, every closed shard finished, and every open one read."""
        return not self._undone and not any(
            book.is_waited_for or self._is_neglected(book) for book in self.books.values()
        )

    def _is_neglected(self, book: Book) -> bool:
        """Whether a shard should have a lease and has none."""
        return not book.exists and not (book.is_closed and self._promises.at_latest)

    @property
    def is_settled(self) -> bool:
        """Whether what is done is acked as well, so that a graceful stop leaves nothing behind."""
        acked = {
            (reading.worker_id, shard): reading.acked_to == len(self.books[shard].marks)
            for (_, shard), reading in self._open.items()
        }
        return self.is_complete and all(
            book.is_closed
            or acked.get((book.holder or "", shard))
            or book.index_after(book.checkpoint) == len(book.marks)
            for shard, book in self.books.items()
        )

    def hear(self, now: float, line: Line) -> None:
        """Judge a line of the story."""
        self._hear(line, now)

    def missing(self) -> str:
        """Return what is not done yet, as text."""
        shards = {
            shard: f"{len(book.marks) - len(book.done)} of {len(book.marks)} records, checkpoint {book.checkpoint}"
            for shard, book in self.books.items()
            if len(book.done) < len(book.marks) or book.is_waited_for or self._is_neglected(book)
        }
        return "; ".join(f"{shard}: {what}" for shard, what in shards.items())

    @property
    def generations(self) -> int:
        """How many generations of shards there were."""
        return max(map(self._generation, self.books), default=0)

    def _generation(self, shard: str) -> int:
        return 1 + max(map(self._generation, self.books[shard].parents), default=0)

    def uncleared(self) -> list[str]:
        """Return the finished shards whose leases are there although all that comes after them has begun."""
        return [shard for shard, book in self.books.items() if self._is_uncleared(book)]

    def _is_uncleared(self, book: Book) -> bool:
        return (
            book.checkpoint == SHARD_END
            and not book.is_deleted
            and all(map(self._has_begun, book.children))
            and not any(self.books[parent].exists and not self.books[parent].is_deleted for parent in book.parents)
        )

    def _has_begun(self, shard: str) -> bool:
        book = self.books[shard]
        return book.exists and (book.checkpoint == SHARD_END or not book.checkpoint.is_sentinel)

    def conclude(self) -> None:
        """Judge the whole, once every worker has stopped gracefully."""
        for shard, book in self.books.items():
            if self._is_neglected(book):
                self._problem(f"{shard} was never read: it has no lease")
            elif lost := [book.whose[i] for i in self._owed(book) if i not in book.done]:
                self._problem(f"lost: {len(lost)} records of {shard}, the first {lost[0]}")
            if book.is_waited_for:
                self._problem(f"{shard} is closed and was read to its end, but its checkpoint is {book.checkpoint}")
            is_unknown = book.held_by in self._troubled and not book.is_begun  # the take's answer was lost
            is_left = book.held_by in self._dead or is_unknown or book.is_abandoned or book.checkpoint == SHARD_END
            if book.holder is not None and not is_left:
                self._problem(f"{shard}: {book.holder} still holds its lease after all workers have left")
        for worker, shard in self._open:
            self._problem(f"{worker} has left, but its reading of {shard} was never over")
        for at, *both, index in self._again:
            older, newer = sorted(both, key=lambda reading: reading.granted_at)
            if (why := self._unexplained(older, newer, index)) is not None:
                self.unexplained += 1
                key = self.books[newer.shard].whose[index]
                self._problem(f"duplicate at {at:.3f}: {key} of {newer.shard} by {newer.worker}, {why}")

    def _unexplained(self, older: Reading, newer: Reading, index: int) -> str | None:
        """Return why nothing explains that two readings have the same record; None if something does."""
        end, promises = older.closed_at, self._promises
        is_acked = index < older.acked_to
        if end is None:
            return f"while {older.worker}, who read it before, reads on to the end"
        if older.save_failed:
            return None  # its last progress could not be saved, or nobody knows whether it was
        if older.has_crashed or older.lost is not None:
            since = older.acked_at[index - older.start] if is_acked and index >= older.start else end
            end = min(end, newer.granted_at)
            if since + promises.stale_after >= end:
                return None
            return f"though {older.worker} had it acked at {since:.3f}, long before {end:.3f}, when its reading ended"
        if not is_acked and (older.by_key or older.error is not None or older.worker in self._failed):
            return None  # done ahead of one that was not, or cut short after its effect
        return f"though {older.worker} ended in order at {end:.3f}, and had it {'' if is_acked else 'un'}acked"

    def _problem(self, what: str) -> None:
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(what)

    # --- line by line --------------------------------------------------------------------------------------

    @singledispatchmethod
    def _hear(self, _line: object, _now: float) -> None:
        """Judge a line; those of no kind below need no judging."""

    @_hear.register
    def _(self, line: Put, _now: float) -> None:
        book = self.books.setdefault(line.shard, Book())
        book.add(line.mark, line.key, line.number, line.millis)
        self._undone += book.exists
        self.records += 1

    @_hear.register
    def _(self, line: Resharded, _now: float) -> None:
        for parent in line.parents:
            book = self.books.setdefault(parent, Book())
            book.is_closed, book.children = True, line.children
        for child in line.children:
            self.books.setdefault(child, Book()).parents = line.parents

    @_hear.register
    def _(self, line: Opened, now: float) -> None:
        book = self.books.setdefault(line.shard, Book())
        if (line.worker, line.shard) in self._open:
            self._problem(f"{line.worker} reads {line.shard} twice at once")
        granted_at, checkpoint = book.granted.get(line.worker_id, (now, None))
        if line.checkpoint != checkpoint:
            self._problem(f"{line.worker} begins {line.shard} at {line.checkpoint}, its lease said {checkpoint}")
        self._check_parents(line.shard, book)
        book.is_begun = True
        start = book.index_after(line.checkpoint)
        reading = Reading(
            line.worker, line.worker_id, line.shard, granted_at, start, line.by_key, next=start, acked_to=start
        )
        self._open[line.worker, line.shard] = reading

    @_hear.register
    def _(self, line: Sought, _now: float) -> None:
        self._open[line.worker, line.shard].seek(self.books[line.shard].index_after(line.to))

    @_hear.register
    def _(self, line: Handled, now: float) -> None:
        for mark in line.marks:
            self._done(line.worker, line.shard, mark, now)
        self._check_lease(line.worker, line.shard, now)

    @_hear.register
    def _(self, line: SetAside, now: float) -> None:
        book = self.books[line.shard]
        if line.mark in book.place and not self._promises.may_set_aside(*book.whose[book.place[line.mark]]):
            self._problem(f"{line.worker} set {book.whose[book.place[line.mark]]} of {line.shard} aside without need")
        self._done(line.worker, line.shard, line.mark, now)
        self._hear(Acked(line.worker, line.shard, (line.mark,)), now)

    @_hear.register
    def _(self, line: Acked, now: float) -> None:
        reading, book = self._open.get((line.worker, line.shard)), self.books[line.shard]
        if reading is not None:
            for mark in line.marks:
                reading.ack(book.place[mark], now)

    @_hear.register
    def _(self, line: Created, _now: float) -> None:
        book = self.books.setdefault(line.shard, Book())
        if book.is_deleted:
            self._problem(f"{line.shard} has a lease again after its lease was deleted")
        book.exists, book.checkpoint = True, line.checkpoint
        if line.since_millis is not None:
            self._pass_over(book, line.since_millis)
        if line.checkpoint != TRIM_HORIZON and any(self.books[parent].exists for parent in book.parents):
            self._problem(f"the child {line.shard} begins at {line.checkpoint}, not at its beginning")
        self._undone += len(self._owed(book))

    @_hear.register
    def _(self, line: Deleted, _now: float) -> None:
        book = self.books[line.shard]
        book.is_deleted = True
        if book.checkpoint != SHARD_END:
            self._problem(f"{line.worker} deletes the lease of {line.shard}, which is at {book.checkpoint}")
        for child in book.children:
            if not self._has_begun(child):
                self._problem(f"{line.worker} deletes the lease of {line.shard} before its child {child} has begun")

    @_hear.register
    def _(self, line: ChildrenSaved, _now: float) -> None:
        self.books[line.shard].saved_children = line.children

    @_hear.register
    def _(self, line: StoreFailed, now: float) -> None:
        self._troubled.add(line.worker)
        for reading in self._open.values():
            if reading.worker == line.worker:
                reading.save_failed, reading.troubled_at = True, now

    @_hear.register
    def _(self, line: Saved, _now: float) -> None:
        book, reading = self.books[line.shard], self._open.get((line.worker, line.shard))
        if reading is None:
            self._problem(f"{line.worker} saves {line.checkpoint} of {line.shard}, which it does not read")
        elif line.checkpoint == SHARD_END:
            self._check_end(line, book, reading)
        else:
            reading.save_failed = False
            covered = book.index_after(line.checkpoint)
            if covered > reading.acked_to:
                self._problem(
                    f"{line.worker} saves {line.checkpoint} of {line.shard} ahead of an ack: "
                    f"{book.whose[reading.acked_to]} is not acked"
                )
            if line.checkpoint < book.checkpoint and not self._promises.owns_position:
                self._problem(f"{line.worker} moves {line.shard} back from {book.checkpoint} to {line.checkpoint}")
        book.checkpoint = line.checkpoint
        self._look_whether_complete()

    @_hear.register
    def _(self, line: Held, now: float) -> None:
        book = self.books[line.shard]
        book.holder, book.held_since, book.is_abandoned, book.is_begun = line.holder, now, False, False
        if line.holder is not None:
            book.granted[line.holder] = (now, book.checkpoint)
        book.held_by = line.worker if line.worker_id == line.holder else line.holder

    @_hear.register
    def _(self, line: Lost, _now: float) -> None:
        if reading := self._open.get((line.worker, line.shard)):
            reading.lost = line.reason
        if self.books[line.shard].held_by == line.worker:
            self.books[line.shard].is_abandoned = True

    @_hear.register
    def _(self, line: Closed, now: float) -> None:
        reading = self._open.pop((line.worker, line.shard), None)
        if reading is None:
            return
        reading.closed_at, reading.error = now, line.error
        book = self.books[line.shard]
        # The last save of a reading that is cut short has little time (rule R14): a slow store may use it up.
        reading.save_failed |= line.error is not None and now - reading.troubled_at <= LAST_SAVE_TIMEOUT
        if line.is_finished and book.checkpoint != SHARD_END:
            self._problem(f"{line.worker} says that {line.shard} is finished, and its lease does not")
        if reading.lost is None and not reading.save_failed and not self._covers(book, reading.acked_to):
            whose = book.whose[reading.acked_to - 1]
            self._problem(f"{line.worker} stops reading {line.shard} with {whose} acked, and saves {book.checkpoint}")

    @_hear.register
    def _(self, line: Crashed, now: float) -> None:
        self._dead |= {line.worker, line.worker_id}
        for worker, shard in [key for key in self._open if key[0] == line.worker]:
            reading = self._open.pop((worker, shard))
            reading.closed_at, reading.has_crashed = now, True

    @_hear.register
    def _(self, line: Exited, _now: float) -> None:
        if line.error is not None:
            self._failed.add(line.worker)

    @_hear.register
    def _(self, line: Broken, _now: float) -> None:
        self._problem(line.what)

    # --- what several lines have in common -----------------------------------------------------------------

    def _owed(self, book: Book) -> range:
        """Return the indexes of the records that are to be read."""
        return range(book.first, len(book.marks)) if book.exists else range(0)

    def _pass_over(self, book: Book, since_millis: int) -> None:
        """Take note that a shard is read from this time on: what is before it is not missed, nor in its ancestors."""
        book.first = bisect_left(book.millis, since_millis)
        for key, number in book.whose[: book.first]:
            self._frontier[key] = max(self._frontier.get(key, 0), number + 1)
        for parent in book.parents:
            if not self.books[parent].exists:
                self._pass_over_all(self.books[parent])

    def _pass_over_all(self, book: Book) -> None:
        for key, number in book.whose:
            self._frontier[key] = max(self._frontier.get(key, 0), number + 1)
        for parent in book.parents:
            self._pass_over_all(self.books[parent])

    def _check_parents(self, shard: str, book: Book) -> None:
        for parent in book.parents:
            is_read = self.books[parent].exists or not self._promises.at_latest
            if is_read and self.books[parent].checkpoint != SHARD_END:
                self._problem(f"the child {shard} is begun before its parent {parent} is finished")

    def _check_end(self, line: Saved, book: Book, reading: Reading) -> None:
        """Judge the end of a shard by rule R2: everything acked, children created, their ids saved, then SHARD_END."""
        if not book.is_closed:
            self._problem(f"{line.worker} finishes {line.shard}, which is open")
        if reading.acked_to < len(book.marks):
            whose = book.whose[reading.acked_to]
            self._problem(f"{line.worker} finishes {line.shard} ahead of an ack: {whose} is not acked")
        if missing := [child for child in book.children if not self.books[child].exists]:
            self._problem(f"{line.worker} finishes {line.shard} before its children {missing} have leases")
        if sorted(book.saved_children) != sorted(book.children):
            self._problem(f"{line.worker} finishes {line.shard} with the children {book.saved_children}")

    def _covers(self, book: Book, index: int) -> bool:
        return book.checkpoint == SHARD_END or book.index_after(book.checkpoint) >= index

    def _check_lease(self, worker: str, shard: str, now: float) -> None:
        """Judge a worker that handles records of a shard whose lease it holds no more."""
        book, reading = self.books[shard], self._open.get((worker, shard))
        if reading is not None and book.holder != reading.worker_id:
            since = now - book.held_since
            if since > self._promises.zombie_for:
                self._problem(
                    f"{worker} handles records of {shard} {since:.3f} s after its lease went to {book.holder}"
                )

    def _done(self, worker: str, shard: str, mark: Mark, now: float) -> None:
        book = self.books.setdefault(shard, Book())
        index = book.place.get(mark)
        if index is None:
            self._problem(f"{worker} handles a record of {shard} that was not put there: {mark}")
            return
        reading = self._open.get((worker, shard))
        if reading is None:
            self._problem(f"{worker} handles a record of {shard}, which it does not read")
            return
        self._check_parents(shard, book)
        self._check_order(reading, book, index)
        before = book.done.get(index)
        book.done[index] = reading
        if before is None:
            self._undone -= 1
            self._advance(shard, *book.whose[index])
            self._look_whether_complete()
            return
        self.duplicates += 1
        if before is reading:
            self.unexplained += 1
            self._problem(f"{worker} handles {book.whose[index]} of {shard} twice in one reading")
        elif self._promises.owns_position:
            self.unexplained += 1
            self._problem(f"the sink has {book.whose[index]} of {shard} twice, by {before.worker} and by {worker}")
        else:
            self._again.append((now, before, reading, index))

    def _check_order(self, reading: Reading, book: Book, index: int) -> None:
        """Judge whether this is the record that comes next in the reading, of its key and, one by one, of all."""
        key, number = book.whose[index]
        expected = reading.expected(book, key) if reading.by_key else reading.next
        if index != expected:
            wanted = "nothing" if expected is None or expected >= len(book.whose) else book.whose[expected]
            self._problem(f"{reading.worker} handles {(key, number)} of {reading.shard} where {wanted} comes next")
        if reading.by_key:
            reading.next_of_key[key] = bisect_right(book.by_key[key], index)
        reading.next = index + 1

    def _advance(self, shard: str, key: str, number: int) -> None:
        """Judge the first effect of a record: each key's records take effect in order, across all shards."""
        expected = self._frontier.get(key, 0)
        if number != expected:
            self._problem(f"{key}: its record {number} (of {shard}) takes effect before its record {expected}")
        self._frontier[key] = max(expected, number + 1)

    def _look_whether_complete(self) -> None:
        if self.is_complete:
            self._on_complete()
