"""The batches of one shard that are delivered and not acked: how many, since when, and what may ack them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import Final, Protocol

import msgspec
import trio

from efo.checks import check_type
from efo.errors import ConfigurationError
from efo.events import AcksOverdue, Observer, RecordsProcessed
from efo.model import Batch, Record
from efo.protocol.lazy_batch import records_of
from efo.protocol.progress import index_of

OVERDUE_BATCHES: Final = 100
OVERDUE_AFTER: Final = 10.0
"""Report that acks are overdue at this many batches in flight, when the oldest was delivered this many seconds ago; and
again whenever the number has doubled. A reader that acks each batch has one in flight; key concurrency and HOLD have
more, in a burst many more."""
SLOW_AFTER: Final = 60.0
"""Report a batch that is in flight for so many seconds, however few there are; and again when the time has doubled."""


class Delivered(msgspec.Struct, frozen=True, gc=False):
    """What is reported about a batch after it is acked. `at`: trio's clock. Arrival times: seconds since the epoch.

    `last`: the sequence number of its last record. `behind`: seconds behind the tip of the shard.
    """

    records: int
    last: str
    at: float
    behind: float
    oldest: float
    newest: float
    data_bytes: int


class InFlight:
    """What one shard has delivered that is not acked. `overdue_after`: seconds until acks are reported as overdue.

    `clock`: the wall clock, seconds since the epoch.
    """

    def __init__(self, shard_id: str, clock: Callable[[], float], observer: Observer) -> None:
        self.overdue_after: float = OVERDUE_AFTER
        self._shard_id = shard_id
        self._clock = clock
        self._observer = observer
        self._now = trio.lowlevel.current_clock().current_time  # a third of the calls of trio.current_time
        self._batches: dict[int, Delivered] = {}
        self._overdue_at = OVERDUE_BATCHES
        self._slow_at = SLOW_AFTER

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def records(self) -> int:
        """How many records they have."""
        return sum(delivered.records for delivered in self._batches.values())

    @property
    def oldest(self) -> Delivered | None:
        """The first of them, in any thread; None if there are none."""
        return next(iter(self._batches.copy().values()), None)

    @property
    def oldest_arrival(self) -> float | None:
        """When the first record of the first of them arrived, in seconds since the epoch; None if that is unknown."""
        return next(iter(self._batches.values())).oldest or None

    def has_besides(self, batch: Batch) -> bool:
        """Return whether there are others than this batch."""
        return any(number != batch.number for number in self._batches)

    def has(self, batch: Batch) -> bool:
        """Return whether this batch is one of them. False for one of an earlier reading with the same number."""
        delivered = self._batches.get(batch.number)
        return delivered is not None and delivered.last == records_of(batch)[-1].sequence_number

    def forget(self) -> None:
        """Forget all of them, after a seek."""
        self._batches.clear()

    def delivered(self, batch: Batch, now: float, data_bytes: int, behind: float) -> None:
        """Take a batch that has records. `data_bytes`: of the event's Kinesis records, until they are counted.

        `behind`: seconds behind the tip of the shard.
        """
        records = records_of(batch)
        oldest, newest = records[0], records[-1]
        self._batches[batch.number] = Delivered(
            len(records),
            newest.sequence_number,
            now,
            behind,
            oldest.approximate_arrival_timestamp,
            newest.approximate_arrival_timestamp,
            data_bytes,
        )
        if len(self._batches) >= self._overdue_at and (age := self._age()) >= self.overdue_after:
            self._overdue_at = 2 * len(self._batches)
            self._report(age)

    def acked(self, numbers: Iterable[int]) -> None:
        """Report batches that were acked."""
        for number in numbers:
            if delivered := self._batches.pop(number, None):
                now, wall = self._now(), self._clock()
                oldest, newest = delivered.oldest, delivered.newest  # 0: the service did not send it
                self._observer(
                    RecordsProcessed(
                        self._shard_id,
                        delivered.records,
                        now - delivered.at,
                        (wall - oldest if wall > oldest else 0.0) if oldest else None,
                        (wall - newest if wall > newest else 0.0) if newest else None,
                        delivered.data_bytes,
                    )
                )
        if len(self._batches) < OVERDUE_BATCHES:
            self._overdue_at = OVERDUE_BATCHES

    @property
    def slow_for(self) -> float | None:
        """For how many seconds the first of them has been in flight, if that is very long; None if it is not."""
        age = self._age()
        return age if age >= max(SLOW_AFTER, self.overdue_after) else None

    def watch(self) -> None:
        """Report a batch that has been in flight for very long. Called every few seconds."""
        if len(self._batches) >= OVERDUE_BATCHES:  # reported by their number
            return
        if (age := self.slow_for) is None:
            self._slow_at = SLOW_AFTER
        elif age >= self._slow_at:
            self._slow_at = 2 * age
            self._report(age)

    def _age(self) -> float:
        oldest = self.oldest
        return -inf if oldest is None else self._now() - oldest.at

    def _report(self, age: float) -> None:
        self._observer(AcksOverdue(self._shard_id, len(self._batches), self.records, age))


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
    if type(index) is not int or not 0 <= index < len(records_of(batch)):
        raise ConfigurationError(
            f"{batch.shard_id}: ack of a record of a batch by its index: expected 0 to {len(batch) - 1}"
        )
