"""Compares the records that were put into a stream with those that efo read. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

_FILLER = b"."


class Item(NamedTuple):
    """A user record, with the place where it was put or read.

    `sequence`: its sequence number, as the server writes it. `sub`: its index in its KPL aggregate.
    """

    shard: str
    sequence: str
    sub: int
    key: str | None
    data: bytes

    @property
    def place(self) -> tuple[int, int]:
        """Its position in its shard."""
        return int(self.sequence), self.sub

    @property
    def number(self) -> int:
        """The number in its data: how many records were put before it. 0 for data that `data_of` did not make."""
        digits = self.data.partition(_FILLER)[0]
        return int(digits) if digits.isdigit() else 0


def data_of(number: int, size: int) -> bytes:
    """Return the data of a record: its number, then filler up to `size` bytes."""
    return b"%d" % number + _FILLER * max(1, size - len(str(number)))


@dataclass(frozen=True, slots=True)
class Comparison:
    """The figures of what was read. `records`: how many arrived, including duplicates."""

    records: int
    lost: int
    duplicated: int
    order_violations: int

    @property
    def passed(self) -> bool:
        """Whether each record arrived once and in order."""
        return not (self.lost or self.duplicated or self.order_violations)


def compare(expected: Iterable[Item], read: Sequence[Item]) -> Comparison:
    """Compare the records that were put, each once, with those that were read.

    A record that arrived with another key, other data or from another shard counts as lost. Every other record that
    arrived, unexpected or repeated, counts as duplicated.
    """
    missing = set(expected)
    total = len(missing)
    missing.difference_update(read)
    return Comparison(len(read), len(missing), len(read) - (total - len(missing)), _order_violations(read))


def _order_violations(read: Sequence[Item]) -> int:
    """Count the records out of order: a shard's place, or a key's number, lower than an earlier one."""
    violations = 0
    places: dict[str, tuple[int, int]] = {}
    numbers: dict[str | None, int] = {}
    for item in read:
        last = places.get(item.shard, item.place)
        violations += item.place < last or item.number < numbers.get(item.key, 0)
        places[item.shard] = max(item.place, last)
        numbers[item.key] = max(item.number, numbers.get(item.key, 0))
    return violations
