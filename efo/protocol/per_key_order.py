"""Per-key ordering: which records may be handled now, with several partition keys at the same time.

Each partition key has at most one batch slice in flight; the other slices of the key wait behind it. So the order of a
key holds across batches, and a slow key delays only itself. A record without a partition key has no order to keep: it
is a slice of its own, and waits for no other.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Self

import msgspec

from efo.model import Batch, Record


class PerKeyOrder:
    """Splits batches into slices of one key each, or of one record without a key.

    `add` a batch, `take` a slice that may start, and report it as `done`.
    """

    def __init__(self) -> None:
        self.records = 0
        """The number of records that were added and are not done."""
        self.size = 0
        """The bytes of the batches that are not completely done: a waiting record keeps its batch in memory."""
        self._undone: dict[int, tuple[int, int]] = {}  # by batch number: the records that are not done, and the bytes
        self._waiting: dict[
            str, deque[BatchSlice]
        ] = {}  # by key; every key here has a slice that is ready or in flight
        self._ready: deque[BatchSlice] = deque()

    def add(self, batch: Batch) -> None:
        """Add a batch. Its keys become ready in the order of their first records, then its records without a key."""
        by_key: defaultdict[str | None, list[int]] = defaultdict(list)
        size = 0
        for index, record in enumerate(batch.records):
            by_key[record.partition_key].append(index)
            size += len(record.data)
        self.records += len(batch.records)
        self.size += size
        if batch.records:
            self._undone[batch.number] = len(batch.records), size
        for key, indexes in by_key.items():
            if key is None:
                continue
            batch_slice = BatchSlice(batch, indexes)
            if key in self._waiting:
                self._waiting[key].append(batch_slice)
            else:
                self._waiting[key] = deque()
                self._ready.append(batch_slice)
        self._ready.extend(BatchSlice(batch, (index,)) for index in by_key.get(None, ()))

    def take(self) -> BatchSlice | None:
        """Return the oldest slice that may be handled now, None if there is none."""
        return self._ready.popleft() if self._ready else None

    def done(self, batch_slice: BatchSlice) -> None:
        """Record that a slice is done, so that the next one of its key may start."""
        self.records -= len(batch_slice)
        left, size = self._undone.pop(batch_slice.batch.number)
        if left > len(batch_slice):
            self._undone[batch_slice.batch.number] = left - len(batch_slice), size
        else:
            self.size -= size
        key = batch_slice.first.partition_key
        if key is None:
            return
        if self._waiting[key]:
            self._ready.append(self._waiting[key].popleft())
        else:
            del self._waiting[key]


class BatchSlice(msgspec.Struct, frozen=True):
    """At least one record of a batch. `indexes`: the positions of the records in the batch, ascending."""

    batch: Batch
    indexes: Sequence[int]

    @classmethod
    def whole(cls, batch: Batch) -> Self:
        """Return a slice of all records of the batch."""
        return cls(batch, range(len(batch)))

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.indexes)

    @property
    def first(self) -> Record:
        """The first record."""
        return self.batch.records[self.indexes[0]]

    def as_batch(self) -> Batch:
        """Return the slice as a batch, with the number and the continuation of the original batch."""
        if len(self.indexes) == len(self.batch):
            return self.batch
        records = tuple(self.batch.records[index] for index in self.indexes)
        return replace(self.batch, records=records)

    def split(self, records: int) -> tuple[BatchSlice, BatchSlice]:
        """Return the first so many records, and the others. Neither may be none."""
        return BatchSlice(self.batch, self.indexes[:records]), BatchSlice(self.batch, self.indexes[records:])

    def halves(self) -> tuple[BatchSlice, BatchSlice]:
        """Return the first half and the second half."""
        return self.split(len(self.indexes) // 2)
