"""Whether the leases cover all hash keys: a hole in them is a shard that nobody would ever read.

A shard's children have leases before its own counts as finished, so that what is not finished covers every hash key,
some of them twice. A hole means that a lease was deleted, that a shard was gone before it could tell its children,
or that we have read a table while it was written, which passes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from efo.model import MAX_HASH_KEY, HashKeyRange

CONFIDENCE: Final = 3
"""A hole counts when it was seen so often in a row, as in KCL."""


@dataclass(frozen=True, slots=True)
class Hole:
    """Hash keys that no lease covers, both ends included."""

    start: int
    end: int


def first_hole(ranges: Iterable[HashKeyRange]) -> Hole | None:
    """Return the lowest hash keys that none of these ranges has. Ranges may overlap."""
    covered = -1
    for start, end in sorted((int(keys.starting_hash_key), int(keys.ending_hash_key)) for keys in ranges):
        if start > covered + 1:
            return Hole(covered + 1, start - 1)
        covered = max(covered, end)
    return Hole(covered + 1, MAX_HASH_KEY) if covered < MAX_HASH_KEY else None


class Audit:
    """Sees the ranges of what is not finished, again and again, and tells of a hole that stays."""

    def __init__(self) -> None:
        self._hole: Hole | None = None
        self._times = 0

    def observe(self, ranges: Iterable[HashKeyRange]) -> Hole | None:
        """Return the hole that was just seen for the third time in a row: one that stays is told once."""
        hole = first_hole(ranges)
        self._times = self._times + 1 if hole == self._hole else 1
        self._hole = hole
        return hole if self._times == CONFIDENCE else None
