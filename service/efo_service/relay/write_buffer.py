"""The open group of a shard's way into a sink: what was written, and not taken by a commit yet."""

from __future__ import annotations

from efo.model import Batch, Checkpoint, Record, checkpoint_of
from efo_service.relay.errors import RecordRefusedError, SinkClosedError, SinkOrderError
from efo_service.relay.sink import ShardSink


def check_refusals(sink: ShardSink, batch: Batch) -> None:
    """Raise RecordRefusedError for the first record of a batch that a sink has a refusal for."""
    for record in batch.records:
        if (reason := sink.refusal(record)) is not None:
            raise RecordRefusedError(
                f"{batch.shard_id}: the record {checkpoint_of(record)} cannot go into this sink: {reason}. Nothing of"
                " its batch was written. Set [relay] dead_letters to put such records aside, or correct their producer"
            )


class WriteBuffer:
    """Records in the order of their shard, from after `position` on; closed for good by `close`.

    `size`: bytes of keys (in characters) and values.
    """

    def __init__(self, position: Checkpoint | None = None) -> None:
        self.records: list[Record] = []
        self.size = 0
        self._written = position
        self._closed = False

    def add(self, batch: Batch) -> None:
        """Take a batch. Raises SinkOrderError if it does not start after the last record, SinkClosedError."""
        self.check_open()
        if not batch.records:
            return
        first = checkpoint_of(batch.records[0])
        if self._written is not None and first <= self._written:
            raise SinkOrderError(
                f"{batch.shard_id}: a batch starts at {first}, and {self._written} is written already:"
                " it would be duplicated or out of order"
            )
        self._written = checkpoint_of(batch.records[-1])
        self.records += batch.records
        self.size += sum(len(record.data) + len(record.partition_key) for record in batch.records)

    def take(self) -> list[Record]:
        """Return the records and start the next group. Raises SinkClosedError."""
        self.check_open()
        records, self.records, self.size = self.records, [], 0
        return records

    def close(self) -> None:
        """Drop what was not committed: it was not acked either."""
        self._closed = True
        self.records, self.size = [], 0

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def check_open(self) -> None:
        """Raise SinkClosedError once it is closed."""
        if self._closed:
            raise SinkClosedError("this way into the sink is closed: open the shard's sink again")
