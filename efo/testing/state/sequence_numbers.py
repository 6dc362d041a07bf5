"""Sequence numbers in the layout that KCL validates: 186 bits, 56 decimal digits.

    version 2 | milliseconds, 48 bits | counter, 100 bits | shard number, 32 bits | 2, 4 bits
    bit 184   | bit 136               | bit 36            | bit 4                 | bit 0

All of them have 56 digits, so that they compare as strings just as they do as numbers. Time stands above the
counter: numbers grow with the clock. (KCL: SequenceNumberValidator, version 2, for the version, the total
length and the place of the shard number; what is between is the service's own business.)
"""

from __future__ import annotations

from typing import Final

DIGITS: Final = 56

_VERSION: Final = 2
_VERSION_SHIFT: Final = 184
_MILLIS_SHIFT: Final = 136
_COUNTER_SHIFT: Final = 36
_SHARD_SHIFT: Final = 4
_SHARD_MASK: Final = 0xFFFF_FFFF
_TAIL: Final = 2


class Sequence:
    """Gives one shard's sequence numbers, each greater than all before it, whatever the clock does."""

    __slots__ = ("_base", "_counter", "_millis", "_tail")

    def __init__(self, shard_number: int, millis: int, counter: int = 0) -> None:
        self._tail = shard_number << _SHARD_SHIFT | _TAIL
        self._set_millis(millis)
        self._counter = counter

    def _set_millis(self, millis: int) -> None:
        self._millis = millis
        self._base = _VERSION << _VERSION_SHIFT | millis << _MILLIS_SHIFT | self._tail

    @property
    def millis(self) -> int:
        """The time of the newest number, milliseconds since the epoch. It never goes back."""
        return self._millis

    @property
    def counter(self) -> int:
        """What tells the numbers of one millisecond apart. It only grows."""
        return self._counter

    def next(self, now_millis: int) -> str:
        """Return the next number."""
        self._counter += 1
        if now_millis > self._millis:
            self._set_millis(now_millis)
        return str(self._base | self._counter << _COUNTER_SHIFT)


def shard_number_of(sequence_number: str) -> int | None:
    """Return the number of the shard that gave this sequence number; None if it is not of our layout."""
    if len(sequence_number) != DIGITS or not (sequence_number.isascii() and sequence_number.isdigit()):
        return None
    value = int(sequence_number)
    if value >> _VERSION_SHIFT != _VERSION:
        return None
    return value >> _SHARD_SHIFT & _SHARD_MASK
