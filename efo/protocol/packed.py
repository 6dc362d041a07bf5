"""The records of an event as packed columns, as the native step returns them: each is made when it is looked at."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple, overload

from efo.model import Record

if TYPE_CHECKING:
    from efo.protocol.native import Packed


class PackedColumns(NamedTuple):
    """The values of each field one after the other. Widths are in bytes, as native integers of 32 bits.

    `arrivals`: arrival times in seconds since the epoch, as native doubles. `has_key`: a byte for each record, 1 if it
    has a partition key, else 0; empty if all have one. `encryption_type`: that of all records.
    """

    numbers: bytes
    number_widths: bytes
    arrivals: bytes
    data: bytes
    data_widths: bytes
    keys: bytes
    key_widths: bytes
    has_key: bytes
    encryption_type: str | None


def packed(records: Sequence[Record]) -> PackedRecords | None:
    """Return records as packed columns, if they are."""
    return records if isinstance(records, PackedRecords) else None


class PackedRecords(Sequence[Record]):
    """Kinesis records, at least one, none of which is an aggregate. A sequence like the tuple of the Python step.

    The first and the last one are made by themselves, for the bookkeeping; for any other, all are made, once.
    """

    __slots__ = ("_first", "_last", "_made", "_rows", "columns")

    def __init__(self, packed: Packed) -> None:
        self.columns = PackedColumns(*packed[:-1])
        self._rows = len(self.columns.number_widths) // 4
        self._first: Record | None = None
        self._last: Record | None = None
        self._made: tuple[Record, ...] | None = None

    @property
    def numbers(self) -> list[str]:
        """The sequence numbers."""
        widths, digits = _integers(self.columns.number_widths), self.columns.numbers.decode("ascii")
        if len(set(widths)) == 1:  # as on AWS
            width = widths[0]
            return [digits[at : at + width] for at in range(0, len(digits), width)]
        return [digits[start:end] for start, end in pairwise(accumulate(widths, initial=0))]

    def made(self) -> tuple[Record, ...]:
        """Return all records, which are made if they are not yet."""
        if self._made is None:
            columns = self.columns
            keys: list[str | None] = [key.decode() for key in _cut(columns.keys, columns.key_widths)]
            if columns.has_key:
                keys = [key if has_key else None for key, has_key in zip(keys, columns.has_key, strict=True)]
            arrivals = struct.unpack(f"={self._rows}d", columns.arrivals)
            kinds = [columns.encryption_type] * self._rows
            made = [*map(Record, self.numbers, arrivals, _cut(columns.data, columns.data_widths), keys, kinds)]
            made[0], made[-1] = self._first or made[0], self._last or made[-1]  # who has them compares by identity
            self._made = (*made,)
        return self._made

    def __len__(self) -> int:
        return self._rows

    def __iter__(self) -> Iterator[Record]:
        return iter(self.made())

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | Sequence[Record]:
        if isinstance(index, slice):
            is_whole = index.indices(self._rows) == (0, self._rows, 1)
            return self if is_whole else self.made()[index]
        if self._made is None and self._rows > 1:
            if index == 0:
                self._first = self._first or self._end(is_last=False)
                return self._first
            if index in {-1, self._rows - 1}:
                self._last = self._last or self._end(is_last=True)
                return self._last
        return self.made()[index]

    def __repr__(self) -> str:
        return repr(self.made())

    def _end(self, *, is_last: bool) -> Record:
        columns = self.columns

        def value(content: bytes, widths: bytes) -> bytes:
            (width,) = struct.unpack_from("=i", widths, len(widths) - 4 if is_last else 0)
            return content[len(content) - width :] if is_last else content[:width]

        (arrival,) = struct.unpack_from("=d", columns.arrivals, len(columns.arrivals) - 8 if is_last else 0)
        key: str | None = value(columns.keys, columns.key_widths).decode()
        if columns.has_key and not columns.has_key[-1 if is_last else 0]:
            key = None
        number = value(columns.numbers, columns.number_widths).decode()
        return Record(number, arrival, value(columns.data, columns.data_widths), key, columns.encryption_type)


def _integers(widths: bytes) -> tuple[int, ...]:
    return struct.unpack(f"={len(widths) // 4}i", widths)


def _cut(content: bytes, widths: bytes) -> list[bytes]:
    return [content[start:end] for start, end in pairwise(accumulate(_integers(widths), initial=0))]
