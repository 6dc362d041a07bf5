"""The write buffer of a shard sink: records that were written, and not yet taken by a commit."""

from __future__ import annotations

from efo.model import Batch, Checkpoint, Record, checkpoint_of
from efo_service.relay.errors import RecordRefusedError, SinkClosedError, SinkOrderError
from efo_service.relay.record_size import Size
from efo_service.relay.sink import ShardSink


def check_refusals(sink: ShardSink, batch: Batch) -> None:
    """Raise RecordRefusedError for the first record of a batch that the sink refuses."""
    for record in batch.records:
        if (reason := sink.refusal(record)) is not None:
            raise RecordRefusedError(
                f"{batch.shard_id}: record {checkpoint_of(record)} cannot be written to this sink: {reason}; set"
                " [relay] dead_letters for such records, or fix their producer"
            )


class BatchOrder:
    """Checks that the batches of a shard are written in order, after `position`, and while the sink is open."""

    def __init__(self, position: Checkpoint | None = None) -> None:
        self._written = position
        self.is_closed = False

    def add(self, batch: Batch) -> None:
        """Note that a batch with records is written.

        Raises SinkOrderError if it does not start after the last record, and SinkClosedError.
        """
        self.check_open()
        first = checkpoint_of(batch.records[0])
        if self._written is not None and first <= self._written:
            raise SinkOrderError(
                f"{batch.shard_id}: a batch starts at {first}, but {self._written} is already written:"
                " records would be duplicated or out of order"
            )
        self._written = checkpoint_of(batch.records[-1])

    def check_open(self) -> None:
        """Raise SinkClosedError if the sink is closed."""
        if self.is_closed:
            raise SinkClosedError("this shard sink is closed: open the sink for the shard again")


class WriteBuffer:
    """The records of a shard in order, starting after `position`. Once closed, it takes no more records.

    `size`: the bytes that the sink writes for them. `size_of`: returns it for some records (record_size.py).
    """

    def __init__(self, size_of: Size, position: Checkpoint | None = None) -> None:
        self._size_of = size_of
        self._order = BatchOrder(position)
        self.records: list[Record] = []
        self.size = 0

    def add(self, batch: Batch) -> None:
        """Add a batch. Raises SinkOrderError if it does not start after the last record, and SinkClosedError."""
        self.check_open()
        if batch.records:
            self._order.add(batch)
            self.records += batch.records
            self.size += self._size_of(batch.records)

    def take(self) -> list[Record]:
        """Return the records and empty the buffer. Raises SinkClosedError."""
        self.check_open()
        records, self.records, self.size = self.records, [], 0
        return records

    def close(self) -> None:
        """Close it and drop its records. They were not acked either."""
        self._order.is_closed = True
        self.records, self.size = [], 0

    @property
    def is_closed(self) -> bool:
        """Whether it is closed."""
        return self._order.is_closed

    def check_open(self) -> None:
        """Raise SinkClosedError if it is closed."""
        self._order.check_open()
