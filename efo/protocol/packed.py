"""The records of an event as packed columns, as the native step returns them: they are made when one is looked at."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, overload

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


class Wanted:
    """What is wanted of the events of one subscription. `records`: a tuple of records, and not columns."""

    __slots__ = ("records",)

    def __init__(self, *, records: bool = False) -> None:
        self.records = records


def packed(records: Sequence[Record]) -> PackedRecords | None:
    """Return records as packed columns, if they are."""
    return records if isinstance(records, PackedRecords) else None


class PackedRecords(Sequence[Record]):
    """Kinesis records, at least one, none of which is an aggregate. A sequence like the tuple of the Python step.

    The first and the last one are made by themselves, for the bookkeeping; for any other, all are made, once. `wanted`:
    notes that somebody has looked at them.
    """

    __slots__ = ("_first", "_last", "_made", "_rows", "_wanted", "columns")

    def __init__(self, packed: Packed, wanted: Wanted) -> None:
        self.columns = PackedColumns(*packed[:-1])
        self._wanted = wanted
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
        self._wanted.records = True
        return self._make()

    def kept(self, is_kept: Callable[[Record], bool]) -> tuple[Record, ...]:
        """Return some of the records. That is no look at them: what trims one event says nothing of the next ones."""
        return tuple(record for record in self._make() if is_kept(record))

    def arrow(self, pa: Any) -> dict[str, Any]:
        """Return the columns as `Batch.to_arrow` names them. `pa`: pyarrow, an extra, with `pyarrow.compute`.

        Raises ArrowInvalid for an arrival time that is beyond what Arrow has.
        """
        columns, rows, pc = self.columns, self._rows, pa.compute

        def offsets(widths: bytes) -> Any:
            read = pa.Array.from_buffers(pa.int32(), rows + 1, [None, pa.py_buffer(bytes(4) + widths)])
            return pc.cumulative_sum_checked(read).buffers()[1]

        def values(kind: Any, content: bytes, widths: bytes, validity: Any = None) -> Any:
            return pa.Array.from_buffers(kind, rows, [validity, offsets(widths), pa.py_buffer(content)])

        has_key = None
        if columns.has_key:
            flags = pa.Array.from_buffers(pa.uint8(), rows, [None, pa.py_buffer(columns.has_key)])
            has_key = flags.cast(pa.bool_()).buffers()[1]
        seconds = pa.Array.from_buffers(pa.float64(), rows, [None, pa.py_buffer(columns.arrivals)])
        milliseconds = pc.round(pc.multiply(seconds, 1000.0)).cast(pa.int64())
        unknown = pc.equal(milliseconds, 0)
        if unknown.true_count:
            milliseconds = pc.if_else(unknown, None, milliseconds)
        none = pa.py_buffer(bytes(8 * rows + 8))
        tag = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.string())])
        return {
            "sequence_number": values(pa.string(), columns.numbers, columns.number_widths),
            "sub_sequence_number": pa.Array.from_buffers(pa.int64(), rows, [None, none]),
            "approximate_arrival_timestamp": milliseconds.view(pa.timestamp("ms", "UTC")),
            "partition_key": values(pa.string(), columns.keys, columns.key_widths, has_key),
            "data": values(pa.binary(), columns.data, columns.data_widths),
            "encryption_type": pa.repeat(pa.scalar(columns.encryption_type, pa.string()), rows),
            "explicit_hash_key": pa.nulls(rows, pa.string()),
            "tags": pa.Array.from_buffers(pa.list_(tag), rows, [None, none], children=[pa.array([], tag)]),
        }

    def _make(self) -> tuple[Record, ...]:
        if self._made is None:
            columns = self.columns
            keys: list[str | None] = [key.decode() for key in _cut(columns.keys, columns.key_widths)]
            if columns.has_key:
                keys = [key if has_key else None for key, has_key in zip(keys, columns.has_key, strict=True)]
            arrivals = struct.unpack(f"={self._rows}d", columns.arrivals)
            kinds = [columns.encryption_type] * self._rows
            made = [*map(Record, self.numbers, arrivals, _cut(columns.data, columns.data_widths), keys, kinds)]
            made[-1] = self._last or made[-1]  # who has it compares by identity
            made[0] = self._first or made[0]
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
        if index in {0, -1, self._rows - 1}:  # no look
            if self._made is not None:
                return self._made[index]
            if index == 0 or self._rows == 1:
                self._first = self._first or self._end(is_last=False)
                return self._first
            self._last = self._last or self._end(is_last=True)
            return self._last
        return self.made()[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self.made() == (*other,)

    def __hash__(self) -> int:
        return hash(self.made())

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


def filtered(records: Sequence[Record], is_kept: Callable[[Record], bool]) -> tuple[Record, ...]:
    """Return the records of an event that are kept."""
    if isinstance(records, PackedRecords):
        return records.kept(is_kept)
    return tuple(record for record in records if is_kept(record))


def arrivals_of(records: Sequence[Record]) -> Iterable[float]:
    """Return the arrival times of the records of an event, in seconds since the epoch."""
    if isinstance(records, PackedRecords):
        return struct.unpack(f"={len(records)}d", records.columns.arrivals)
    return (record.approximate_arrival_timestamp for record in records)


def _integers(widths: bytes) -> tuple[int, ...]:
    return struct.unpack(f"={len(widths) // 4}i", widths)


def _cut(content: bytes, widths: bytes) -> list[bytes]:
    return [content[start:end] for start, end in pairwise(accumulate(_integers(widths), initial=0))]
