"""Compares what was put into a stream with what efo read. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

_FILLER = b"."


class Item(NamedTuple):
    """A user record, where it was put or where it was read.

    `sequence`: its sequence number as the server writes it. `sub`: its index in its KPL aggregate.
    """

    shard: str
    sequence: str
    sub: int
    key: str
    data: bytes

    @property
    def place(self) -> tuple[int, int]:
        """Where it stands in its shard."""
        return int(self.sequence), self.sub

    @property
    def number(self) -> int:
        """How many were put before it; 0 for data that is none of ours."""
        digits = self.data.partition(_FILLER)[0]
        return int(digits) if digits.isdigit() else 0


def data_of(number: int, size: int) -> bytes:
    """Return the data of a record: its number, and filler up to so many bytes."""
    return b"%d" % number + _FILLER * max(1, size - len(str(number)))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was read, in numbers; `records` counts all that came."""

    records: int
    lost: int
    duplicated: int
    order_violations: int

    @property
    def is_right(self) -> bool:
        """Whether each record came once, and in order."""
        return not (self.lost or self.duplicated or self.order_violations)


def judge(expected: Iterable[Item], read: Sequence[Item]) -> Verdict:
    """Compare. A record that came with another key, other data or from elsewhere than it was put is lost.

    Whatever came beside the expected ones, or again, is duplicated: each was put once.
    """
    missing = set(expected)
    total = len(missing)
    missing.difference_update(read)
    return Verdict(len(read), len(missing), len(read) - (total - len(missing)), _order_violations(read))


def _order_violations(read: Sequence[Item]) -> int:
    """Count those that are behind one that came earlier: of their shard by place, of their key by number."""
    violations = 0
    places: dict[str, tuple[int, int]] = {}
    numbers: dict[str, int] = {}
    for item in read:
        last = places.get(item.shard, item.place)
        violations += item.place < last or item.number < numbers.get(item.key, 0)
        places[item.shard] = max(item.place, last)
        numbers[item.key] = max(item.number, numbers.get(item.key, 0))
    return violations
