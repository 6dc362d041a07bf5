"""Sequence numbers in the layout that KCL validates: 186 bits, 56 decimal digits.

    version 2 | milliseconds, 48 bits | counter, 100 bits | shard number, 32 bits | 2, 4 bits
    bit 184   | bit 136               | bit 36            | bit 4                 | bit 0

All sequence numbers have 56 digits, so their order as strings equals their order as numbers. The time is above the
counter, so sequence numbers increase with the clock. KCL's SequenceNumberValidator (version 2) defines the version,
the total length and the position of the shard number. It does not define the bits between them.
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
    """Generates the sequence numbers of one shard. They always increase, even if the clock goes back."""

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
        """The time in the newest sequence number, milliseconds since the epoch. It never decreases."""
        return self._millis

    @property
    def counter(self) -> int:
        """The counter, which distinguishes the sequence numbers of one millisecond. It always increases."""
        return self._counter

    def next(self, now_millis: int) -> str:
        """Return the next sequence number."""
        self._counter += 1
        if now_millis > self._millis:
            self._set_millis(now_millis)
        return str(self._base | self._counter << _COUNTER_SHIFT)


def shard_number_of(sequence_number: str) -> int | None:
    """Return the number of the shard in this sequence number; None if the layout is different."""
    if len(sequence_number) != DIGITS or not (sequence_number.isascii() and sequence_number.isdigit()):
        return None
    value = int(sequence_number)
    if value >> _VERSION_SHIFT != _VERSION:
        return None
    return value >> _SHARD_SHIFT & _SHARD_MASK
