"""A batch whose records are packed columns until somebody looks at them: then it is a Batch like any other."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, Self

from efo.model import Batch, Record
from efo.protocol.packed import PackedRecords

_HELD: Final[Any] = vars(Batch)["records"]
"""Where a batch holds its records: the class of lazy batches has a property of that name."""


class LazyBatch(Batch):
    """A batch of PackedRecords.

    The first look at `records` makes them, and from then on it is an instance of Batch. So a batch that was looked at
    costs nothing more, and what compares, copies or pickles batches knows one class.
    """

    __slots__ = ()

    def __new__(cls, *fields: Any, **named: Any) -> Self:
        """Return a Batch: `replace` names the class of what it copies, with records of its own."""
        return Batch(*fields, **named)  # type: ignore[return-value]

    @property
    def records(self) -> tuple[Record, ...]:
        """The user records."""
        held = _HELD.__get__(self)
        records: tuple[Record, ...] = held.made() if isinstance(held, PackedRecords) else held
        _HELD.__set__(self, records)  # first: another thread may look, too
        object.__setattr__(self, "__class__", Batch)
        return records

    def __len__(self) -> int:
        return len(_HELD.__get__(self))

    def __eq__(self, other: object) -> bool:
        return _looked_at(self) == other

    def __hash__(self) -> int:
        return hash(_looked_at(self))

    def __repr__(self) -> str:
        return repr(_looked_at(self))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _looked_at(self).__reduce_ex__(protocol)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(_looked_at(self), name, value)  # refused

    def _columns(self, pa: Any) -> dict[str, Any]:
        held = _HELD.__get__(self)
        if isinstance(held, PackedRecords):
            with suppress(pa.ArrowInvalid):  # the error is that of any batch
                return held.arrow(pa)
        return Batch._columns(self, pa)  # noqa: SLF001 - of its own base: after a look, `super` refuses it


LazyBatch.__name__ = Batch.__name__  # as messages of Python should name it


def _looked_at(batch: Batch) -> Batch:
    """Look at the records of a batch, which makes it a Batch."""
    _ = batch.records
    return batch


def batch_of(batch: Batch) -> Batch:
    """Return a batch that was made with the records of an event: a lazy one, if these are packed."""
    if type(_HELD.__get__(batch)) is PackedRecords:
        object.__setattr__(batch, "__class__", LazyBatch)
    return batch


def records_of(batch: Batch) -> Sequence[Record]:
    """Return the records of a batch without a look at them: their number, the first and the last one cost nothing."""
    records: Sequence[Record] = _HELD.__get__(batch)
    return records
