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
    """A part with so many records, and the positions of the first and the last one."""

    part: Part
    records: int
    first: Checkpoint
    last: Checkpoint


class Refused(NamedTuple):
    """A record that the sink refuses, and why."""

    record: Checkpoint
    reason: str


class DeadLetter(NamedTuple):
    """A refused record, as the sink of dead letters writes it."""

    entry: Entry
    refused: Refused


class Sorted(NamedTuple):
    """The records of a batch before the index `end`: what the sink takes, and the dead letters that are not durable.

    `error`: why the record at `end` can be written nowhere; None: the batch ends there.
    """

    taken: Sequence[Record]
    dead_letters: Sequence[DeadLetter]
    end: int
    error: RecordRefusedError | None = None


@dataclass(slots=True)
class Group:
    """The records of one commit: entries for the sink, and dead letters, which are made durable first.

    `oldest`: the arrival time of its first record, in seconds since the epoch. `mark`: up to where the shard is acked
    when it is committed. `records`, `size`: of all of them. `since`, `due`, `latest`: when it was begun, and when it is
    committed, without more that has arrived, and with more; by the clock of the relay, which sets them.
    """

    oldest: float
    mark: Mark
    since: float = inf
    due: float = inf
    latest: float = inf
    entries: list[Entry] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)
    records: int = 0
    size: int = 0

    def add(self, entries: Sequence[Entry], dead_letters: Sequence[DeadLetter]) -> None:
        """Add some records."""
        self.entries += entries
        self.dead_letters += dead_letters
        for entry in (*entries, *(letter.entry for letter in dead_letters)):
            self.records += entry.records
            self.size += entry.part.size


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

    def write(self, batch: Batch) -> Iterator[tuple[Group, Sequence[Record]]]:
        """Write a batch with records; yield the group after each part, with its records: it may be taken then.

        Nothing is yielded if all records are dead letters that are durable. Raises SinkOrderError if the batch does not
        start after the last record written, and RecordRefusedError for a record that no sink takes, after all records
        before it.
        """
        self._check_order(batch)
        found, begin = self._sort(batch), 0
        dead_letters = found.dead_letters
        for records, part in _prepared(self._writer.sink, found.taken, self._limit):
            # What follows the last part was refused.
            end = found.end if records[-1] is found.taken[-1] else _index(batch, records[-1]) + 1
            entry = Entry(part, len(records), checkpoint_of(records[0]), checkpoint_of(records[-1]))
            yield self._add(batch, begin, end, [entry], dead_letters)
            begin, dead_letters = end, ()
        if dead_letters:
            yield self._add(batch, begin, found.end, (), dead_letters)
        if found.error is not None:
            raise found.error

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

    def _add(
        self, batch: Batch, begin: int, end: int, entries: Sequence[Entry], dead_letters: Sequence[DeadLetter]
    ) -> tuple[Group, Sequence[Record]]:
        """Add the records of a batch from `begin` to before `end`."""
        records = batch.records[begin:end]
        mark = Mark(batch, None if end == len(batch.records) else end - 1)
        group = self.group = self.group or Group(records[0].approximate_arrival_timestamp, mark)
        group.mark = mark
        group.add(entries, dead_letters)
        return group, records

    def _sort(self, batch: Batch) -> Sorted:
        """Sort out the records that the sink refuses.

        After a crash between the commit of the dead letters and that of the other records, the same records are refused
        again. Those that the sink of dead letters has by its position are left out.
        """
        refusal, taken, dead_letters = self._writer.sink.refusal, list[Record](), list[DeadLetter]()
        reasons = [] if refusal is None else [*map(refusal, batch.records)]
        if reasons.count(None) == len(reasons):
            return Sorted(batch.records, dead_letters, len(batch.records))
        for end, (record, reason) in enumerate(zip(batch.records, reasons, strict=True)):
            if reason is None:
                taken.append(record)
                continue
            letter = msgspec.structs.replace(record, tags=(*record.tags, (REASON_TAG, reason)))
            sink = None if self._dead_letters is None else self._dead_letters.sink
            refused_too = None if sink is None or sink.refusal is None else sink.refusal(letter)
            if sink is None or refused_too is not None:
                return Sorted(taken, dead_letters, end, self._error(record, reason, refused_too))
            at = checkpoint_of(record)
            if sink.position is None or at > sink.position:
                dead_letters.append(DeadLetter(Entry(sink.prepare((letter,)), 1, at, at), Refused(at, reason)))
        return Sorted(taken, dead_letters, len(batch.records))

    def _error(self, record: Record, reason: str, refused_too: str | None) -> RecordRefusedError:
        reasons = reason if refused_too is None else f"{reason}; as a dead letter: {refused_too}"
        return RecordRefusedError(
            f"{self._shard_id}: record {checkpoint_of(record)} cannot be written to this sink: {reasons}; set"
            " [relay] dead_letters for such records, or fix their producer"
        )


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
