"""Checks of what an application acks: a record of a batch, or its index."""

from __future__ import annotations

from typing import Protocol

from efo.checks import check_type
from efo.errors import ConfigurationError
from efo.model import Batch, Record
from efo.protocol.progress import index_of


class Delivering(Protocol):
    """A shard that knows which batches it delivered."""

    shard_id: str

    def has_delivered(self, batch: Batch) -> bool:
        """Return whether this is a batch of this shard's iteration."""
        ...


def check_delivered(shard: Delivering, batch: Batch) -> None:
    """Check that the shard delivered the batch. Raises ConfigurationError."""
    if type(batch) is not Batch:  # a call costs more than comparing
        check_type("batch", batch, Batch, "the Batch that the shard delivered")
    if not shard.has_delivered(batch):
        raise ConfigurationError(
            f"{shard.shard_id}: ack of batch {batch.number} of {batch.shard_id}, which it did not deliver"
        )


def record_index(batch: Batch, record: Record) -> int:
    """Return the index of a record in its batch. Raises ConfigurationError."""
    check_type("batch", batch, Batch, "the Batch that was delivered")
    check_type("record", record, Record, "a Record of the batch")
    index = index_of(batch.records, record)
    if index is None or batch.records[index] != record:
        raise ConfigurationError(f"{batch.shard_id}: ack of a record that is not one of its batch")
    return index


def check_index(batch: Batch, index: int) -> None:
    """Check that a batch has a record of this index. Raises ConfigurationError."""
    if type(batch) is not Batch:  # a call costs more than comparing
        check_type("batch", batch, Batch, "the Batch that was delivered")
    if type(index) is not int or not 0 <= index < len(batch.records):
        raise ConfigurationError(
            f"{batch.shard_id}: ack of a record of a batch by its index: expected 0 to {len(batch.records) - 1}"
        )
