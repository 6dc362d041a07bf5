"""The write buffer of a shard, and the bound of what the buffers of all shards of a process hold together.

It checks that records arrive in order, applies the transform, splits large batches, and sorts out the records that the
sink refuses.

Each shard may hold two buffers, one that fills and one that is committed. While a sink is down, a thousand shards that
lag would fill all of them. So a shard that holds something waits before it reads more, once all together hold too much.
One that holds nothing goes on: no shard waits for the sink of another stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple, Protocol

import msgspec
import trio

from efo.model import Batch, Checkpoint, Record, checkpoint_of
from efo.protocol.lazy_batch import records_of
from efo_service.relay.errors import RecordRefusedError, SinkOrderError
from efo_service.relay.sink import Part, ShardSink
from efo_service.relay.transform import AppliesTo, Failed, Transformed

REASON_TAG: Final = "efo.refusal"
"""The tag with the reason of a dead letter. The mapping writes it as the header kinesis.tag.efo.refusal."""


class RefusedRecord(NamedTuple):
    """A record that the sink refuses, and why."""

    record: Checkpoint
    reason: str


class Sorted(NamedTuple):
    """The records of a batch before the index `end`: what the sink takes, and the others.

    `dead_letters`: those that are not durable, as the sink of dead letters writes them. `error`: why the record at
    `end` can be written nowhere; None: the batch ends there.
    """

    taken: Sequence[Record]
    dead_letters: Sequence[tuple[Part, RefusedRecord]]
    end: int
    error: RecordRefusedError | None


@dataclass(slots=True)
class Group:
    """The records of one commit: parts for the sink, and dead letters, which are made durable first.

    `batch`, `end`: up to where the shard is acked when it is committed: a batch up to and including the record of this
    index; None: all of it. `last`: the position after the last of the parts. `records`, `size`: of the parts and the
    dead letters. `since`, `due`, `latest`: when it was begun, and when it is committed, without more that has arrived,
    and with more; by the clock of the relay, which sets them.
    """

    batch: Batch
    end: int | None = None
    since: float = inf
    due: float = inf
    latest: float = inf
    parts: list[Part] = field(default_factory=list)
    last: Checkpoint | None = None
    dead_letters: list[Part] = field(default_factory=list)
    refused: list[RefusedRecord] = field(default_factory=list)
    records: int = 0
    size: int = 0

    def add(self, part: Part, records: int, last: Checkpoint) -> None:
        """Add a part with so many records. `last`: the position of the last one."""
        self.parts.append(part)
        self.last = last
        self.records += records
        self.size += part.size

    def add_dead_letter(self, part: Part, refused: RefusedRecord) -> None:
        """Add a dead letter."""
        self.dead_letters.append(part)
        self.refused.append(refused)
        self.records += 1
        self.size += part.size


class HasSink(Protocol):
    """What has a sink of the shard. After a failure it is another one."""

    @property
    def sink(self) -> ShardSink:
        """The sink as it was last opened."""
        ...


class WriteBuffer:
    """The records of one shard that were written, and not yet taken by a commit: `group`; None if there are none.

    `writer`: has the sink. `dead_letters`: has the sink of what that refuses; None: a refused record ends the writing.
    `limit`: the most bytes of a part, unless one record has more. `transform`: changes and drops records first.
    """

    def __init__(
        self,
        shard_id: str,
        writer: HasSink,
        dead_letters: HasSink | None,
        limit: int,
        transform: AppliesTo | None = None,
    ) -> None:
        self.group: Group | None = None
        self._shard_id = shard_id
        self._writer = writer
        self._dead_letters = dead_letters
        self._limit = limit
        self._transform = transform
        self._written = writer.sink.position

    def write(self, batch: Batch) -> Iterator[tuple[Group, Sequence[Record]]]:
        """Write a batch with records; yield the group after each part, with its records: it may be taken then.

        Nothing is yielded if all records are dropped, or dead letters that are durable. Raises SinkOrderError if the
        batch does not start after the last record written, and RecordRefusedError for a record that no sink takes,
        after all records before it.
        """
        records, sink, begin = records_of(batch), self._writer.sink, 0
        last = self._check_order(records)
        results: Sequence[Transformed] = records if self._transform is None else self._transform(batch.records)
        if sink.refusal is None and self._transform is None:
            taken, dead_letters, stop, error = _all(records)
        else:
            taken, dead_letters, stop, error = self._sort(batch, results, sink.refusal or _takes_all)
        for written, part in _prepared(sink, taken, self._limit) if taken else ():
            # What follows the last part was refused.
            end = stop if written[-1] is taken[-1] else _index(results, written[-1]) + 1
            group = self._opened(batch, end, dead_letters)
            group.add(part, len(written), last if written[-1] is records[-1] else checkpoint_of(written[-1]))
            yield group, records[begin:end]
            begin, dead_letters = end, ()
        if dead_letters:
            yield self._opened(batch, stop, dead_letters), records[begin:stop]
        if error is not None:
            raise error

    def take(self) -> Group | None:
        """Return what is in the buffer, and empty it."""
        group, self.group = self.group, None
        return group

    def _check_order(self, records: Sequence[Record]) -> Checkpoint:
        """Return the position of the last record of a batch. Raises SinkOrderError."""
        first, last = checkpoint_of(records[0]), checkpoint_of(records[-1])
        if self._written is not None and first <= self._written:
            raise SinkOrderError(
                f"{self._shard_id}: a batch starts at {first}, but {self._written} is already written:"
                " records would be duplicated or out of order"
            )
        self._written = last
        return last

    def _opened(self, batch: Batch, end: int, dead_letters: Sequence[tuple[Part, RefusedRecord]]) -> Group:
        """Return the group, with the records of a batch before `end`, and with dead letters."""
        group = self.group
        if group is None:
            group = self.group = Group(batch)
        group.batch, group.end = batch, None if end == len(batch) else end - 1
        for part, refused in dead_letters:
            group.add_dead_letter(part, refused)
        return group

    def _sort(self, batch: Batch, results: Sequence[Transformed], refusal: Callable[[Record], str | None]) -> Sorted:
        """Sort out what the transform drops, what it fails on, and what the sink refuses.

        After a crash between the commit of the dead letters and that of the other records, the same records are refused
        again. Those that the sink of dead letters has by its position are left out. A dead letter is what the transform
        made of a record, if it did not fail: what it masks stays masked.
        """
        reasons = [_reason(result, refusal) for result in results]
        if self._transform is None and reasons.count(None) == len(reasons):
            return _all(records_of(batch))
        taken, dead_letters = list[Record](), list[tuple[Part, RefusedRecord]]()
        for end, (result, reason) in enumerate(zip(results, reasons, strict=True)):
            if result is None:
                continue
            record = result.record if isinstance(result, Failed) else result
            if reason is None:
                taken.append(record)
                continue
            dead_letter = msgspec.structs.replace(record, tags=(*record.tags, (REASON_TAG, reason)))
            sink = None if self._dead_letters is None else self._dead_letters.sink
            refused_too = None if sink is None or sink.refusal is None else sink.refusal(dead_letter)
            if sink is None or refused_too is not None:
                return Sorted(taken, dead_letters, end, self._error(record, reason, refused_too))
            at = checkpoint_of(record)
            if sink.position is None or at > sink.position:
                dead_letters.append((sink.prepare((dead_letter,)), RefusedRecord(at, reason)))
        return Sorted(taken, dead_letters, len(batch), None)

    def _error(self, record: Record, reason: str, refused_too: str | None) -> RecordRefusedError:
        reasons = reason if refused_too is None else f"{reason}; as a dead letter: {refused_too}"
        return RecordRefusedError(
            f"{self._shard_id}: record {checkpoint_of(record)} cannot be written to this sink: {reasons}; set"
            " [relay] dead_letters for such records, or fix their producer",
            str(checkpoint_of(record)),
        )


def _all(records: Sequence[Record]) -> Sorted:
    return Sorted(records, (), len(records), None)


def _prepared(sink: ShardSink, records: Sequence[Record], limit: int) -> Iterable[tuple[Sequence[Record], Part]]:
    """Return records in parts of at most `limit` bytes, or of one record: nearly always one part.

    A few bytes of an aggregate may stand for a kilobyte: 130,000 user records may share one partition key.
    """
    part = sink.prepare(records)
    return ((records, part),) if part.size <= limit or len(records) == 1 else _halves(sink, records, limit)


def _halves(sink: ShardSink, records: Sequence[Record], limit: int) -> Iterator[tuple[Sequence[Record], Part]]:
    middle = len(records) // 2
    yield from _prepared(sink, records[:middle], limit)
    yield from _prepared(sink, records[middle:], limit)


def _index(results: Sequence[Transformed], record: Record) -> int:
    return next(index for index, each in enumerate(results) if each is record)


def _takes_all(_record: Record) -> None:
    return None


def _reason(result: Transformed, refusal: Callable[[Record], str | None]) -> str | None:
    """Return why a record cannot be written; None if it can, or is dropped."""
    if isinstance(result, Failed):
        return result.reason
    return None if result is None else refusal(result)


LIMIT: Final = 512 * 1024 * 1024
"""Bytes, as the sinks write them. At their limits, a shard brings 1 MiB a second, and a process some 300."""


class Room:
    """The room for write buffers. `limit`: bytes; each shard may exceed it by what it reads at once."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._held: dict[object, int] = {}
        self._total = 0
        self._freed = trio.lowlevel.ParkingLot()

    def hold(self, shard: object, size: int) -> None:
        """Note how many bytes a shard holds now; 0 when it ends."""
        before = self._held.pop(shard, 0)
        if size:
            self._held[shard] = size
        self._total += size - before
        if size < before:
            self._freed.unpark_all()

    @property
    def is_full(self) -> bool:
        """Whether all together hold as much as they may."""
        return self._total >= self._limit

    async def wait(self, shard: object) -> None:
        """Wait until there is room, or the shard holds nothing."""
        while self.is_full and shard in self._held:
            await self._freed.park()
