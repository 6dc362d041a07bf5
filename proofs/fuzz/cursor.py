"""Splits an input into choices, numbers and byte strings: the fuzzer mutates bytes only."""

from __future__ import annotations

from typing import Final

_PIECE_SIZES: Final = (0, 1, 2, 9, 64, 1000, 4096, 16_384)
_MAX_PIECES: Final = 200


class Cursor:
    """Reads an input from its start. Past the end it returns zeros and empty bytes, so that every input is valid."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        """How many bytes are left."""
        return max(0, len(self._data) - self._at)

    def byte(self) -> int:
        """Take one byte as a number."""
        taken = self.take(1)
        return taken[0] if taken else 0

    def number(self) -> int:
        """Take two bytes as a number."""
        return self.byte() << 8 | self.byte()

    def take(self, size: int) -> bytes:
        """Take `size` bytes, or all bytes that are left if there are fewer."""
        self._at += size
        return self._data[self._at - size : self._at]

    def rest(self) -> bytes:
        """Take all bytes that are left."""
        return self.take(self.left)


def cut(data: bytes, seed: int) -> list[bytes]:
    """Cut bytes into pieces, as a network does.

    `seed`: 0 cuts nothing, 1 to 7 cut pieces of one size, larger ones cut pieces of different sizes. After 200
    pieces, the rest is one piece.
    """
    pieces: list[bytes] = []
    at = 0
    while at < len(data):
        if seed < len(_PIECE_SIZES):
            size = _PIECE_SIZES[seed]
        else:
            seed = (seed * 5 + 3) & 0xFF | 0x100
            size = _PIECE_SIZES[seed >> 3 & 7] or 1
        pieces.append(data[at : at + size] if size and len(pieces) < _MAX_PIECES else data[at:])
        at += len(pieces[-1])
    return pieces
