"""Computes the checkpoint to save from acks of batches and single records, in any order (rule R3)."""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from efo.model import Batch, Checkpoint, Record, checkpoint_of
from efo.protocol.lazy_batch import records_of


class _End(NamedTuple):
    """Up to where a batch reaches. Ends compare as checkpoints do, and cost less to make: few checkpoints are saved."""

    number: int
    sub_sequence_number: int
    sequence_number: str

    @property
    def checkpoint(self) -> Checkpoint:
        return Checkpoint(self.sequence_number, self.sub_sequence_number)


def _end_of(records: Sequence[Record], continuation: str | None) -> _End | None:
    """Return what may be saved when a batch and everything before it is done; None if there is nothing.

    It is the continuation if that is ahead of the last record: so idle shards progress. Otherwise it is the last
    record, with its sub-sequence number, which the continuation does not have. It is None for a shard end without
    records. It is also None for the continuation zero without records: zero is not the number of a record.
    """
    if not records:
        number = int(continuation or 0)
        return _End(number, 0, str(continuation)) if number else None
    last = records[-1]
    number = int(last.sequence_number)
    if continuation is not None and (ahead := int(continuation)) > number:
        return _End(ahead, 0, continuation)
    return _End(number, last.sub_sequence_number, last.sequence_number)


class _InFlight:
    """A batch that is not done, or waits for an earlier one. It keeps none of its records but `last_done`.

    Its reader may have dropped them long before the ack: their memory is used again at once.
    """

    __slots__ = ("ahead", "done", "end", "last", "last_done", "last_sub", "size")

    def __init__(self, batch: Batch) -> None:
        records = records_of(batch)
        self.size = len(records) or 1  # the ack of an empty batch counts as one record
        self.last = records[-1].sequence_number if records else batch.continuation
        self.last_sub = records[-1].sub_sequence_number if records else 0
        self.end = _end_of(records, batch.continuation)
        self.done = 0  # all records before this index are done
        self.last_done: Record | None = None  # the record before it, unless all are done
        self.ahead: set[int] = set()  # the indexes of later records that are done

    @property
    def left(self) -> int:
        """How many of its records are not done."""
        return self.size - self.done - sum(index >= self.done for index in self.ahead)

    def is_of(self, batch: Batch) -> bool:
        """Whether this is the batch, and not one with its number from an earlier reading of the shard."""
        records = records_of(batch)
        last = records[-1].sequence_number if records else batch.continuation
        return self.last == last and self.size == (len(records) or 1)

    def advance(self, done: int, batch: Batch | None = None) -> bool:
        """Record that all records before the index `done` are done. Return whether this completes the batch.

        `batch`: the batch itself; not needed if all of its records are done.
        """
        if self.done >= self.size:
            return False
        if done > self.done:  # noqa: PLR1730 - a call costs more than comparing
            self.done = done
        while self.done in self.ahead:
            self.done += 1
        if self.done < self.size:
            if self.done and batch is not None:
                self.last_done = batch.records[self.done - 1]
            return False
        self.last_done, self.ahead = None, set()
        return True


class Progress:
    """Tracks the delivered batches of one shard that are not done.

    `checkpoint` is the highest checkpoint up to which everything is done. Until the first ack it is `start`, the
    checkpoint from which the shard is read. It never moves back: an event after an aggregate may repeat the aggregate's
    sequence number, which means less than a sub-sequence number in the aggregate. Only `restart` moves it back, for a
    seek.

    The ack methods return the numbers of the batches that they complete. Acks have no effect if the batch or record is
    already done, was never delivered, or was delivered before the restart or in an earlier reading of the shard.
    """

    __slots__ = ("_end", "_in_flight", "_start", "_within")

    def __init__(self, start: Checkpoint | None = None) -> None:
        self._in_flight: OrderedDict[int, _InFlight] = OrderedDict()
        self._start = start
        self._within: Checkpoint | None = None  # what `ack_to` named last
        self._end: _End | None = None  # of the batches since the start that are done

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The checkpoint that may be saved now. It is within a batch if only its first records are done."""
        reached = [one for one in (self._start, self._within) if one is not None]
        if self._end is not None:
            reached.append(self._end.checkpoint)
        if self._in_flight and (last_done := next(iter(self._in_flight.values())).last_done) is not None:
            reached.append(checkpoint_of(last_done))
        return max(reached, default=None)

    @property
    def is_idle(self) -> bool:
        """Whether all delivered batches are done."""
        return not self._in_flight

    @property
    def unacked(self) -> int:
        """How many delivered records are not done."""
        return sum(batch.left for batch in self._in_flight.values())

    def restart(self, start: Checkpoint | None = None) -> None:
        """Forget all batches in flight and restart at `start`."""
        self._in_flight.clear()
        self._start, self._end, self._within = start, None, None

    def delivered(self, batch: Batch) -> None:
        """Add a batch that is delivered to the handler. Batches are delivered in the order of their numbers."""
        self._in_flight[batch.number] = _InFlight(batch)

    def ack(self, batch: Batch) -> list[int]:
        """Ack this batch only, not the batches before it."""
        found = self._find(batch)
        return self._advance([batch.number] if found and found.advance(found.size) else [])

    def ack_through(self, batch: Batch, index: int | None = None) -> list[int]:
        """Ack all batches before this one, and its records up to and including `index` (None: all its records)."""
        known = self._in_flight.get(batch.number)
        if known is not None and not known.is_of(batch):
            return []
        completed = []
        for number, found in self._in_flight.items():
            if number > batch.number:
                break
            if found.advance(found.size if number < batch.number or index is None else index + 1, batch):
                completed.append(number)
        return self._advance(completed)

    def ack_to(self, checkpoint: Checkpoint, *, inclusive: bool = True) -> list[int]:
        """Ack all that was delivered up to and including this checkpoint, which need not be that of a record.

        It needs no batch, so that nothing of the batches has to be kept for it. If it is ahead of what was delivered,
        all that was delivered is acked, and no more. Not `inclusive`: only the batches that end before it.
        """
        key, completed = (int(checkpoint.sequence_number), checkpoint.sub_sequence_number), []
        for number, found in self._in_flight.items():
            last = (int(found.last or 0), found.last_sub)
            if last >= key and not inclusive:
                break
            if last > key:
                if self._within is None or checkpoint > self._within:
                    self._within = checkpoint
                break
            if found.advance(found.size):
                completed.append(number)
        return self._advance(completed)

    def ack_records(self, batch: Batch, indexes: Iterable[int]) -> list[int]:
        """Ack only these records of this batch."""
        found = self._find(batch)
        if found is None:
            return []
        found.ahead.update(index for index in indexes if found.done <= index < found.size)
        return self._advance([batch.number] if found.advance(found.done, batch) else [])

    def _find(self, batch: Batch) -> _InFlight | None:
        found = self._in_flight.get(batch.number)
        return found if found is not None and found.is_of(batch) else None

    def _advance(self, completed: list[int]) -> list[int]:
        """Remove the first batches that are done, and return `completed`."""
        while completed and self._in_flight:
            number, batch = next(iter(self._in_flight.items()))
            if batch.done < batch.size:
                break
            del self._in_flight[number]
            if batch.end is not None and (self._end is None or batch.end > self._end):
                self._end = batch.end
        return completed


def index_of(records: Sequence[Record], record: Record) -> int | None:
    """Return the index of the record with the sequence and sub-sequence number of this one, None if there is none."""
    index = bisect_left(records, _sort_key(record), key=_sort_key)
    known = index < len(records) and _sort_key(records[index]) == _sort_key(record)
    return index if known else None


def _sort_key(record: Record) -> tuple[int, int]:
    return int(record.sequence_number), record.sub_sequence_number
