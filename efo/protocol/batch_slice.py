"""The records of one handler call: a whole batch, a part of it, or a single record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Self

import msgspec

from efo.model import Batch, Record


class BatchSlice(msgspec.Struct, frozen=True):
    """At least one record of a batch. `indexes`: the positions of the records in the batch, ascending."""

    batch: Batch
    indexes: Sequence[int]

    @classmethod
    def whole(cls, batch: Batch) -> Self:
        """Return a slice of all records of the batch."""
        return cls(batch, range(len(batch.records)))

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.indexes)

    @property
    def first(self) -> Record:
        """The first record."""
        return self.batch.records[self.indexes[0]]

    def as_batch(self) -> Batch:
        """Return the slice as a batch, with the number and the continuation of the original batch."""
        if len(self.indexes) == len(self.batch.records):
            return self.batch
        records = tuple(self.batch.records[index] for index in self.indexes)
        return replace(self.batch, records=records)

    def split(self, records: int) -> tuple[BatchSlice, BatchSlice]:
        """Return the first so many records, and the others. Neither may be none."""
        return BatchSlice(self.batch, self.indexes[:records]), BatchSlice(self.batch, self.indexes[records:])

    def halves(self) -> tuple[BatchSlice, BatchSlice]:
        """Return the first half and the second half."""
        return self.split(len(self.indexes) // 2)
