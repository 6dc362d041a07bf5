"""What is handled at once: a batch, a part of one, or a single record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from efo.model import Batch, Record


@dataclass(frozen=True, slots=True)
class BatchSlice:
    """Some records of a batch, at least one. `indexes`: where they are in it, ascending."""

    batch: Batch
    indexes: Sequence[int]

    @classmethod
    def whole(cls, batch: Batch) -> Self:
        """Return the batch in one batch_slice."""
        return cls(batch, range(len(batch.records)))

    def __len__(self) -> int:
        """Return how many records it has."""
        return len(self.indexes)

    @property
    def first(self) -> Record:
        """Its first record."""
        return self.batch.records[self.indexes[0]]

    @property
    def is_whole(self) -> bool:
        """Whether these are all records of the batch."""
        return len(self.indexes) == len(self.batch.records)

    def as_batch(self) -> Batch:
        """Return it as a batch; a part has the number and the continuation of the batch that it is of."""
        if self.is_whole:
            return self.batch
        return replace(self.batch, records=tuple(self.batch.records[index] for index in self.indexes))

    def halves(self) -> tuple[BatchSlice, BatchSlice]:
        """Return its first and its second half."""
        middle = len(self.indexes) // 2
        return BatchSlice(self.batch, self.indexes[:middle]), BatchSlice(self.batch, self.indexes[middle:])
