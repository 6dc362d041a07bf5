"""Checks that the leases cover all hash keys: a hole is a shard that no worker would ever read.

A shard's children get leases before its own lease is finished. So the unfinished leases cover every hash key, some
of them twice. A hole has one of three causes: a lease was deleted, a shard disappeared before its last event named
its children, or the table was read while it was written. The last one is temporary.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from efo.model import MAX_HASH_KEY, HashKeyRange

CONSECUTIVE_HOLES: Final = 3
"""A hole is reported after this many consecutive observations, as in KCL."""


@dataclass(frozen=True, slots=True)
class Hole:
    """Hash keys that no lease covers, both ends included."""

    start: int
    end: int


def first_hole(ranges: Iterable[HashKeyRange]) -> Hole | None:
    """Return the lowest hash keys that none of these ranges covers, None if there are none. Ranges may overlap."""
    covered = -1
    for start, end in sorted((int(keys.starting_hash_key), int(keys.ending_hash_key)) for keys in ranges):
        if start > covered + 1:
            return Hole(covered + 1, start - 1)
        covered = max(covered, end)
    return Hole(covered + 1, MAX_HASH_KEY) if covered < MAX_HASH_KEY else None


class HashRangeAudit:
    """Observes the ranges of the unfinished leases and reports a hole that persists."""

    def __init__(self) -> None:
        self._hole: Hole | None = None
        self._observations = 0

    def observe(self, ranges: Iterable[HashKeyRange]) -> Hole | None:
        """Return the hole if this is its third consecutive observation. A hole that persists is reported once."""
        hole = first_hole(ranges)
        self._observations = self._observations + 1 if hole == self._hole else 1
        self._hole = hole
        return hole if self._observations == CONSECUTIVE_HOLES else None
