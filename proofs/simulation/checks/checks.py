"""Checks a story while it grows: what efo guarantees about loss, order, checkpoints, shard ends and duplicates.

Pure: lines and their times go in, `problems` come out. Each problem is a sentence.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatchmethod

from proofs.simulation.checks.books import Books
from proofs.simulation.checks.effects import Effects
from proofs.simulation.checks.guarantees import Guarantees
from proofs.simulation.checks.leases import Leases
from proofs.simulation.checks.order import KeyOrder
from proofs.simulation.checks.tasks import Tasks
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
    Opened,
    Positioned,
    Put,
    Refused,
    Reported,
    Repositioned,
    Resharded,
    Saved,
    SkippedByPolicy,
    StoreFailed,
    Violation,
)


class Checks:
    """Checks every line of a story. `problems`: broken guarantees. `on_complete`: called when everything is done.

    `books`: what the story has shown so far. `records`: how many were put.
    """

    def __init__(self, guarantees: Guarantees, on_complete: Callable[[], None] = lambda: None) -> None:
        self.books = Books(guarantees)
        self.records = 0
        self._on_complete = on_complete
        order = KeyOrder()
        self._effects = Effects(self.books, order, self._notify_if_complete)
        self._leases = Leases(self.books, order)
        self._tasks = Tasks(self.books)

    @property
    def problems(self) -> list[str]:
        """The broken guarantees, each a sentence."""
        return self.books.problems

    @property
    def duplicates(self) -> int:
        """How many records took effect again."""
        return self._effects.duplicates

    @property
    def unexplained(self) -> int:
        """How many duplicates are defects; all of them are known after `conclude`."""
        return self._effects.unexplained

    def check(self, now: float, line: Line) -> None:
        """Check a line of the story."""
        self._check_line(line, now)

    def conclude(self) -> None:
        """Check the end state, after every worker has stopped gracefully."""
        books = self.books
        for shard_id, shard in books.shards.items():
            if books.lacks_lease(shard):
                books.report(f"{shard_id} was never read: it has no lease")
            elif lost := [shard.identities[i] for i in books.required(shard) if i not in shard.processed]:
                books.report(f"lost: {len(lost)} records of {shard_id}, the first {lost[0]}")
            if shard.is_unfinished:
                books.report(f"{shard_id} is closed, but its checkpoint is {shard.checkpoint}")
            self._leases.conclude(shard_id)
        self._tasks.conclude()
        self._effects.conclude()

    def _notify_if_complete(self) -> None:
        if self.books.is_complete:
            self._on_complete()

    # --- line by line --------------------------------------------------------------------------------------

    @singledispatchmethod
    def _check_line(self, _line: object, _now: float) -> None:
        """Check a line. Kinds of lines that are not registered below need no check."""

    @_check_line.register
    def _(self, line: Put, _now: float) -> None:
        shard = self.books.shard(line.shard)
        shard.add(line.mark, line.key, line.number, line.millis)
        self.books.unprocessed += shard.has_lease
        self.records += 1

    @_check_line.register
    def _(self, line: Positioned, _now: float) -> None:
        self.books.at_millis = line.millis

    @_check_line.register
    def _(self, line: Resharded, _now: float) -> None:
        for parent in line.parents:
            shard = self.books.shard(parent)
            shard.is_closed, shard.children = True, line.children
        for child in line.children:
            self.books.shard(child).parents = line.parents

    @_check_line.register
    def _(self, line: Handled, now: float) -> None:
        self._effects.handled(line, now)
        self._leases.check_holder(line.worker, line.shard, now)

    @_check_line.register
    def _(self, line: SkippedByPolicy, now: float) -> None:
        self._effects.skipped(line, now)

    @_check_line.register
    def _(self, line: Refused, _now: float) -> None:
        self._effects.refused(line)

    @_check_line.register
    def _(self, line: Acked, now: float) -> None:
        self._effects.acked(line, now)

    @_check_line.register
    def _(self, line: Created, _now: float) -> None:
        self._leases.created(line)
        self._notify_if_complete()  # at LATEST, nothing may be left to read

    @_check_line.register
    def _(self, line: Deleted, _now: float) -> None:
        self._leases.deleted(line)

    @_check_line.register
    def _(self, line: ChildrenSaved, _now: float) -> None:
        self.books.shards[line.shard].saved_children = line.children

    @_check_line.register
    def _(self, line: StoreFailed, now: float) -> None:
        self._leases.store_failed(line, now)

    @_check_line.register
    def _(self, line: Saved, _now: float) -> None:
        self._leases.saved(line)
        self._notify_if_complete()

    @_check_line.register
    def _(self, line: Held, now: float) -> None:
        self._leases.held(line, now)

    @_check_line.register
    def _(self, line: Lost, _now: float) -> None:
        self._leases.lost(line)

    @_check_line.register
    def _(self, line: Opened, now: float) -> None:
        self._tasks.opened(line, now)

    @_check_line.register
    def _(self, line: Repositioned, _now: float) -> None:
        self._tasks.repositioned(line)

    @_check_line.register
    def _(self, line: Reported, _now: float) -> None:
        self._tasks.reported(line)

    @_check_line.register
    def _(self, line: Closed, now: float) -> None:
        self._tasks.closed(line, now)

    @_check_line.register
    def _(self, line: Crashed, now: float) -> None:
        self._tasks.crashed(line, now)

    @_check_line.register
    def _(self, line: Exited, _now: float) -> None:
        self._tasks.exited(line)

    @_check_line.register
    def _(self, line: Violation, _now: float) -> None:
        self.books.report(line.what)
