"""Several keys at once, each in order: which records may be handled now.

Each partition key is a lane. A lane has at most one batch_slice under way; the others of its key wait behind it. So the
order of a key holds across batches, and a slow key holds up nobody but itself.
"""

from __future__ import annotations

from collections import defaultdict, deque

from efo.model import Batch
from efo.protocol.batch_slice import BatchSlice


class PerKeyOrder:
    """Takes batches apart into pieces of one key each. `add` a batch, `take` what may start, say when it is `done`."""

    def __init__(self) -> None:
        self.records = 0
        """Records that were added and are not done."""
        self.size = 0
        """Bytes of the batches that are not done as a whole: a record that waits keeps its batch in memory."""
        self._undone: dict[int, tuple[int, int]] = {}  # by the batch's number: its records to come, and its bytes
        self._waiting: dict[str, deque[BatchSlice]] = {}  # by key; a key that is here has a batch_slice under way
        self._ready: deque[BatchSlice] = deque()

    def add(self, batch: Batch) -> None:
        """Take in a batch. Its keys come up in the order in which they first appear."""
        by_key: defaultdict[str, list[int]] = defaultdict(list)
        size = 0
        for index, record in enumerate(batch.records):
            by_key[record.partition_key].append(index)
            size += len(record.data)
        self.records += len(batch.records)
        self.size += size
        if batch.records:
            self._undone[batch.number] = len(batch.records), size
        for key, indexes in by_key.items():
            batch_slice = BatchSlice(batch, indexes)
            if key in self._waiting:
                self._waiting[key].append(batch_slice)
            else:
                self._waiting[key] = deque()
                self._ready.append(batch_slice)

    def take(self) -> BatchSlice | None:
        """Return the slice that has waited longest of those that may be handled now; None if there is none."""
        return self._ready.popleft() if self._ready else None

    def done(self, batch_slice: BatchSlice) -> None:
        """Take note that a batch_slice is over, so that the next one of its key may start."""
        self.records -= len(batch_slice)
        left, size = self._undone.pop(batch_slice.batch.number)
        if left > len(batch_slice):
            self._undone[batch_slice.batch.number] = left - len(batch_slice), size
        else:
            self.size -= size
        key = batch_slice.first.partition_key
        if self._waiting[key]:
            self._ready.append(self._waiting[key].popleft())
        else:
            del self._waiting[key]
