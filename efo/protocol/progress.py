"""Computes the checkpoint to save from acks of batches and single records, in any order (rule R3)."""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from efo.model import Batch, Checkpoint, Record, checkpoint_of


def checkpoint_after(batch: Batch) -> Checkpoint | None:
    """Return the checkpoint that this batch and everything before it is done, None if there is nothing to save.

    It is the continuation if that is ahead of the last record: so idle shards progress. Otherwise it is the last
    record, with its sub-sequence number, which the continuation does not have. It is None for a shard end without
    records. It is also None for the continuation zero without records: zero is not the number of a record.
    """
    last = batch.records[-1] if batch.records else None
    continuation = int(batch.continuation or 0)
    if continuation and (last is None or continuation > int(last.sequence_number)):
        return Checkpoint(str(batch.continuation))
    return None if last is None else checkpoint_of(last)


class _InFlight:
    """A batch that is not done, or waits for an earlier one. It drops its records when it is done."""

    __slots__ = ("ahead", "checkpoint", "done", "records", "size")

    def __init__(self, batch: Batch) -> None:
        self.records = batch.records
        self.size = max(1, len(batch.records))  # the ack of an empty batch counts as one record
        self.checkpoint = checkpoint_after(batch)
        self.done = 0  # all records before this index are done
        self.ahead: set[int] = set()  # the indexes of later records that are done

    @property
    def is_done(self) -> bool:
        return self.done >= self.size

    def advance(self, done: int) -> bool:
        """Record that all records before the index `done` are done. Return whether this completes the batch."""
        if self.done >= self.size:
            return False
        self.done = max(self.done, done)
        while self.done in self.ahead:
            self.done += 1
        if self.done < self.size:
            return False
        self.records, self.ahead = (), set()
        return True


class Progress:
    """Tracks the delivered batches of one shard that are not done.

    `checkpoint` is the highest checkpoint up to which everything is done. Until the first ack it is `start`, the
    checkpoint from which the shard is read. It never moves back: an event after an aggregate may repeat the aggregate's
    sequence number, which means less than a sub-sequence number in the aggregate. Only `restart` moves it back, for a
    seek.

    The ack methods return the numbers of the batches that they complete. Acks have no effect if the batch or record is
    already done, was never delivered, or was delivered before the restart.
    """

    __slots__ = ("_checkpoint", "_in_flight")

    def __init__(self, start: Checkpoint | None = None) -> None:
        self._in_flight: OrderedDict[int, _InFlight] = OrderedDict()
        self._checkpoint = start

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The checkpoint that may be saved now. It is within a batch if only its first records are done."""
        if self._in_flight:
            first = next(iter(self._in_flight.values()))
            if first.done:
                return self._later(checkpoint_of(first.records[first.done - 1]))
        return self._checkpoint

    @property
    def is_idle(self) -> bool:
        """Whether all delivered batches are done."""
        return not self._in_flight

    def restart(self, start: Checkpoint | None = None) -> None:
        """Forget all batches in flight and restart at `start`."""
        self._in_flight.clear()
        self._checkpoint = start

    def delivered(self, batch: Batch) -> None:
        """Add a batch that is delivered to the handler. Batches are delivered in the order of their numbers."""
        self._in_flight[batch.number] = _InFlight(batch)

    def ack(self, number: int) -> list[int]:
        """Ack this batch only, not the batches before it."""
        batch = self._in_flight.get(number)
        return self._advance([number] if batch and batch.advance(batch.size) else [])

    def ack_through(self, number: int, index: int | None = None) -> list[int]:
        """Ack all batches before this one, and its records up to and including `index` (None: all its records)."""
        completed = []
        for earlier, batch in self._in_flight.items():
            if earlier > number:
                break
            if batch.advance(batch.size if earlier < number or index is None else index + 1):
                completed.append(earlier)
        return self._advance(completed)

    def ack_records(self, number: int, indexes: Iterable[int]) -> list[int]:
        """Ack only these records of this batch."""
        batch = self._in_flight.get(number)
        if batch is None or batch.is_done:
            return []
        batch.ahead.update(index for index in indexes if batch.done <= index < len(batch.records))
        return self._advance([number] if batch.advance(batch.done) else [])

    def ack_record(self, number: int, record: Record) -> list[int]:
        """Ack only this record of this batch."""
        batch = self._in_flight.get(number)
        if batch is None or batch.is_done:
            return []
        index = index_of(batch.records, record)
        return [] if index is None else self.ack_records(number, [index])

    def _advance(self, completed: list[int]) -> list[int]:
        """Remove the first batches that are done, and return `completed`."""
        while completed and self._in_flight:
            number, batch = next(iter(self._in_flight.items()))
            if not batch.is_done:
                break
            del self._in_flight[number]
            if batch.checkpoint is not None:
                self._checkpoint = self._later(batch.checkpoint)
        return completed

    def _later(self, checkpoint: Checkpoint) -> Checkpoint:
        return checkpoint if self._checkpoint is None or checkpoint > self._checkpoint else self._checkpoint


def index_of(records: Sequence[Record], record: Record) -> int | None:
    """Return the index of the record with the sequence and sub-sequence number of this one, None if there is none."""
    index = bisect_left(records, _sort_key(record), key=_sort_key)
    known = index < len(records) and _sort_key(records[index]) == _sort_key(record)
    return index if known else None


def _sort_key(record: Record) -> tuple[int, int]:
    return int(record.sequence_number), record.sub_sequence_number
