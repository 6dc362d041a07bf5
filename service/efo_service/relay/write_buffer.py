"""The write buffer of a shard: what its next commit makes durable, in the form that the sink writes. Pure.

It checks that records arrive in order, splits large batches, and sorts out those that the sink refuses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple, Protocol

import msgspec

from efo.model import Batch, Checkpoint, Record, checkpoint_of
from efo_service.relay.errors import RecordRefusedError, SinkOrderError
from efo_service.relay.sink import Part, ShardSink

REASON_TAG: Final = "efo.refusal"
"""The tag with the reason of a dead letter. The mapping writes it as the header kinesis.tag.efo.refusal."""


class Mark(NamedTuple):
    """How far a shard is in the buffer: a batch up to and including the record of the index `end`; None: all of it."""

    batch: Batch
    end: int | None


class Entry(NamedTuple):
    """A part, and the positions of its first and last record."""

    part: Part
    first: Checkpoint
    last: Checkpoint


class Refused(NamedTuple):
    """A record that the sink refuses, and why."""

    record: Checkpoint
    reason: str


@dataclass(slots=True)
class Group:
    """The records of one commit: entries for the sink, and entries for the sink of dead letters.

    `since`: when its first record was written, by trio's clock. `oldest`: the arrival time of that record, in seconds
    since the epoch. `mark`: up to where the shard is acked when it is committed. `refused`: the dead letters in it.
    """

    since: float
    oldest: float
    mark: Mark
    due: float | None = None
    latest: float = inf
    entries: list[Entry] = field(default_factory=list)
    dead_letters: list[Entry] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    records: int = 0
    size: int = 0


class HasSink(Protocol):
    """What has a sink of the shard. After a failure it is another one."""

    @property
    def sink(self) -> ShardSink:
        """The sink as it was last opened."""
        ...


class WriteBuffer:
    """The records of one shard that were written, and not yet taken by a commit: `group`; None if there are none.

    `writer`: has the sink. `dead_letters`: has the sink of what that refuses; None: a refused record ends the writing.
    `limit`: the most bytes of a part, unless one record has more.
    """

    def __init__(self, shard_id: str, writer: HasSink, dead_letters: HasSink | None, limit: int) -> None:
        self.group: Group | None = None
        self._shard_id = shard_id
        self._writer = writer
        self._dead_letters = dead_letters
        self._limit = limit
        self._written = writer.sink.position

    def write(self, batch: Batch, now: float) -> Iterator[tuple[Group, Sequence[Record]]]:
        """Write a batch with records; yield the group after each part, with its records: it may be taken then.

        Nothing is yielded if all records are dead letters that are durable. Raises SinkOrderError if the batch does not
        start after the last record written, and RecordRefusedError for a record that no sink takes, after all records
        before it.
        """
        self._check_order(batch)
        taken: Sequence[Record] = batch.records
        error: RecordRefusedError | None = None
        sink = self._writer.sink
        if sink.refusal is not None:
            reasons = [*map(sink.refusal, batch.records)]
            if any(reasons):
                taken, error = self._sort_out(batch, reasons, now)
        for records, part in _prepared(sink, taken, self._limit):
            # The last part stands for the whole batch: what follows it was refused, and is written.
            is_whole = records[-1] is taken[-1] and error is None
            yield self._add(Mark(batch, None if is_whole else _index(batch, records[-1])), records, part, now), records
        if not taken and self.group is not None and self.group.mark.batch is batch:
            yield self.group, batch.records
        if error is not None:
            raise error

    def take(self) -> Group | None:
        """Return what is in the buffer, and empty it."""
        group, self.group = self.group, None
        return group

    def _check_order(self, batch: Batch) -> None:
        first = checkpoint_of(batch.records[0])
        if self._written is not None and first <= self._written:
            raise SinkOrderError(
                f"{self._shard_id}: a batch starts at {first}, but {self._written} is already written:"
                " records would be duplicated or out of order"
            )
        self._written = checkpoint_of(batch.records[-1])

    def _sort_out(
        self, batch: Batch, reasons: Sequence[str | None], now: float
    ) -> tuple[Sequence[Record], RecordRefusedError | None]:
        """Write the refused records as dead letters; return the others, and the error of the first that nobody takes.

        Dead letters are committed before the other records. After a crash in between, the same records are refused
        again, and those that the sink of dead letters has by its position are left out.
        """
        taken: list[Record] = []
        for index, (record, reason) in enumerate(zip(batch.records, reasons, strict=True)):
            if reason is None:
                taken.append(record)
                continue
            letter = msgspec.structs.replace(record, tags=(*record.tags, (REASON_TAG, reason)))
            if (error := self._refusal(letter, reason)) is not None:
                return taken, error
            self._add_dead_letter(Mark(batch, index), letter, reason, now)
        return taken, None

    def _refusal(self, letter: Record, reason: str) -> RecordRefusedError | None:
        """Return the error of a record that cannot be a dead letter either."""
        if self._dead_letters is not None:
            refusal = self._dead_letters.sink.refusal
            refused = None if refusal is None else refusal(letter)
            if refused is None:
                return None
            reason = f"{reason}; as a dead letter: {refused}"
        return RecordRefusedError(
            f"{self._shard_id}: record {checkpoint_of(letter)} cannot be written to this sink: {reason}; set"
            " [relay] dead_letters for such records, or fix their producer"
        )

    def _add_dead_letter(self, mark: Mark, letter: Record, reason: str, now: float) -> None:
        assert self._dead_letters is not None  # noqa: S101 - `_refusal` was asked before
        at, committed = checkpoint_of(letter), self._dead_letters.sink.position
        if committed is not None and at <= committed:
            return
        part = self._dead_letters.sink.prepare((letter,))
        group = self._opened(mark, letter, now)
        group.dead_letters.append(Entry(part, at, at))
        group.refused.append(Refused(at, reason))
        group.records += 1
        group.size += part.size

    def _add(self, mark: Mark, records: Sequence[Record], part: Part, now: float) -> Group:
        group = self._opened(mark, records[0], now)
        group.entries.append(Entry(part, checkpoint_of(records[0]), checkpoint_of(records[-1])))
        group.records += len(records)
        group.size += part.size
        return group

    def _opened(self, mark: Mark, first: Record, now: float) -> Group:
        if self.group is None:
            self.group = Group(now, first.approximate_arrival_timestamp, mark)
        self.group.mark = mark
        return self.group


def _prepared(sink: ShardSink, records: Sequence[Record], limit: int) -> Iterator[tuple[Sequence[Record], Part]]:
    """Yield records in parts of at most `limit` bytes, or of one record: nearly always one part.

    A few bytes of an aggregate may stand for a kilobyte: 130,000 user records may share one partition key.
    """
    if not records:
        return
    part: Part | None = sink.prepare(records)
    assert part is not None  # noqa: S101 - for the type checker
    if part.size <= limit or len(records) == 1:
        yield records, part
        return
    part = None  # it may have hundreds of megabytes
    middle = len(records) // 2
    yield from _prepared(sink, records[:middle], limit)
    yield from _prepared(sink, records[middle:], limit)


def _index(batch: Batch, record: Record) -> int:
    return next(index for index, each in enumerate(batch.records) if each is record)
