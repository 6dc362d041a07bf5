"""From acks, in any order, of batches and of single records, to the checkpoint that may be saved (rule R3)."""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable

from efo.model import Batch, Checkpoint, Record, checkpoint_of


def checkpoint_after(batch: Batch) -> Checkpoint | None:
    """Return the checkpoint that says: this batch and everything before it is done.

    The continuation, where it is ahead of the last record: so idle shards progress. The last record, where the
    continuation is no further: with its index in its aggregate, which the continuation does not know. None for
    the end of a shard without records, and for the continuation zero, which is no record's number: they say nothing
    new.
    """
    last = checkpoint_of(batch.records[-1]) if batch.records else None
    if batch.continuation is None or not int(batch.continuation):
        return last
    continuation = Checkpoint(batch.continuation)
    return last if last is not None and last >= continuation else continuation


class _InFlight:
    """A batch that is not done, or not all before it are. It lets go of its records when it is done."""

    __slots__ = ("ahead", "checkpoint", "done", "records", "size")

    def __init__(self, batch: Batch) -> None:
        self.records = batch.records
        self.size = max(1, len(batch.records))  # without records the batch itself is what is acked
        self.checkpoint = checkpoint_after(batch)
        self.done = 0  # all before this index are done
        self.ahead: set[int] = set()  # done beyond it

    @property
    def is_done(self) -> bool:
        return self.done >= self.size

    def advance(self, done: int) -> bool:
        """Take note that all before the index `done` are; return whether that completes the batch."""
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
    """Tracks the batches of one shard that were delivered and are not done yet.

    `checkpoint` is the highest one below which everything is done; until the first ack it is where the shard was
    taken up, `start`. It never goes back: an event after an aggregate may repeat the aggregate's sequence number,
    which alone says less than "up to this record of it". Only `restart` moves it back, for a seek.

    Acks of what is done, or was never delivered, or was delivered before the restart, change nothing. They return the
    numbers of the batches that they completed.
    """

    __slots__ = ("_checkpoint", "_in_flight")

    def __init__(self, start: Checkpoint | None = None) -> None:
        self._in_flight: OrderedDict[int, _InFlight] = OrderedDict()
        self._checkpoint = start

    @property
    def checkpoint(self) -> Checkpoint | None:
        """What may be saved now: in the middle of a batch too, where its first records are done."""
        if self._in_flight:
            first = next(iter(self._in_flight.values()))
            if first.done:
                return self._better(checkpoint_of(first.records[first.done - 1]))
        return self._checkpoint

    @property
    def is_idle(self) -> bool:
        """Whether everything that was delivered is done."""
        return not self._in_flight

    def restart(self, start: Checkpoint | None = None) -> None:
        """Forget what is in flight and begin anew at `start`: what is delivered from now on counts."""
        self._in_flight.clear()
        self._checkpoint = start

    def delivered(self, batch: Batch) -> None:
        """Take note of a batch that goes to the handler. Batches come in the order of their numbers."""
        self._in_flight[batch.number] = _InFlight(batch)

    def ack(self, number: int) -> list[int]:
        """Take note that this batch is done, whatever is before it."""
        batch = self._in_flight.get(number)
        return self._advance([number] if batch and batch.advance(batch.size) else [])

    def ack_through(self, number: int, index: int | None = None) -> list[int]:
        """Take note that all batches before this one are done, and of this one the records up to `index`, or all."""
        completed = []
        for earlier, batch in self._in_flight.items():
            if earlier > number:
                break
            if batch.advance(batch.size if earlier < number or index is None else index + 1):
                completed.append(earlier)
        return self._advance(completed)

    def ack_records(self, number: int, indexes: Iterable[int]) -> list[int]:
        """Take note that these records of this batch are done, whatever is before them."""
        batch = self._in_flight.get(number)
        if batch is None or batch.is_done:
            return []
        batch.ahead.update(index for index in indexes if batch.done <= index < len(batch.records))
        return self._advance([number] if batch.advance(batch.done) else [])

    def ack_record(self, number: int, record: Record) -> list[int]:
        """Take note that this record of this batch is done, whatever is before it."""
        batch = self._in_flight.get(number)
        if batch is None or batch.is_done:
            return []
        index = bisect_left(batch.records, _order(record), key=_order)
        known = index < len(batch.records) and _order(batch.records[index]) == _order(record)
        return self.ack_records(number, [index]) if known else []

    def _advance(self, completed: list[int]) -> list[int]:
        """Let go of the batches at the front that are done; return `completed`."""
        while completed and self._in_flight:
            number, batch = next(iter(self._in_flight.items()))
            if not batch.is_done:
                break
            del self._in_flight[number]
            if batch.checkpoint is not None:
                self._checkpoint = self._better(batch.checkpoint)
        return completed

    def _better(self, checkpoint: Checkpoint) -> Checkpoint:
        return checkpoint if self._checkpoint is None or checkpoint > self._checkpoint else self._checkpoint


def _order(record: Record) -> tuple[int, int]:
    return int(record.sequence_number), record.sub_sequence_number
