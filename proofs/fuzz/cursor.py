"""Takes an input apart: the fuzzer mutates bytes, a target wants choices, numbers and pieces of bytes."""

from __future__ import annotations

from typing import Final

_PIECES: Final = (0, 1, 2, 9, 64, 1000, 4096, 16_384)
_MOST_PIECES: Final = 200


class Cursor:
    """Reads an input from the front; past its end there are zeros and empty pieces, so every input is a whole one."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        """How many bytes were not taken."""
        return max(0, len(self._data) - self._at)

    def byte(self) -> int:
        """Take one byte as a number."""
        taken = self.take(1)
        return taken[0] if taken else 0

    def number(self) -> int:
        """Take two bytes as a number."""
        return self.byte() << 8 | self.byte()

    def take(self, size: int) -> bytes:
        """Take so many bytes, or those that are left."""
        self._at += size
        return self._data[self._at - size : self._at]

    def rest(self) -> bytes:
        """Take all that is left."""
        return self.take(self.left)


def cut(data: bytes, seed: int) -> list[bytes]:
    """Cut bytes into pieces, as a network would: whole for 0, equal for the next seeds, else of sizes that it chooses.

    There are at most 200: what is left then is the last one.
    """
    pieces: list[bytes] = []
    at = 0
    while at < len(data):
        if seed < len(_PIECES):
            size = _PIECES[seed]
        else:
            seed = (seed * 5 + 3) & 0xFF | 0x100
            size = _PIECES[seed >> 3 & 7] or 1
        pieces.append(data[at : at + size] if size and len(pieces) < _MOST_PIECES else data[at:])
        at += len(pieces[-1])
    return pieces
