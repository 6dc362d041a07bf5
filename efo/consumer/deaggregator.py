"""From the records of events to user records: deaggregation, without the records that are done already."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from efo.events import AggregateDamaged, Observer, RecordsFiltered
from efo.model import Checkpoint, HashKeyRange, Position, PositionType, Record, checkpoint_of
from efo.protocol.aggregation import MAGIC, AggregateMode, HashRangeFilter
from efo.protocol.packed import filtered

MAX_RECORDS: Final = 10_000
MAX_BYTES: Final = 8 * 1024 * 1024
"""A part of an event with aggregates has at most this many user records, and the Kinesis records in it this many bytes,
unless a single one is larger. So a few small aggregates with a long key cannot become gigabytes at once."""
_AFTER_MAGIC: Final = MAGIC[:-1] + bytes([MAGIC[-1] + 1])
"""The first bytes after all that start with MAGIC."""


class EventPart(NamedTuple):
    """Some user records of one event, in order; maybe none. `is_last`: the event has no others."""

    records: tuple[Record, ...]
    is_last: bool


class Deaggregator:
    """Deaggregates the records of one shard, and reports the records that it filters out.

    `ancestors`: the hash-key ranges of the shard's ancestors, as far as they are known (rule R17).
    """

    def __init__(
        self,
        shard_id: str,
        hash_key_range: HashKeyRange | None,
        aggregates: AggregateMode,
        observer: Observer,
        ancestors: Iterable[HashKeyRange] = (),
    ) -> None:
        self._shard_id = shard_id
        self._filter = HashRangeFilter(hash_key_range, aggregates, ancestors)
        self._mode = aggregates
        self._observer = observer

    def deaggregate(
        self, records: tuple[Record, ...], after: Checkpoint, data: Sequence[bytes] | None = None
    ) -> Iterator[EventPart]:
        """Return the user records after this checkpoint (rule R5), in parts; all of them if it is a sentinel.

        `data`: that of each record, if the caller has it.

        Most events are one part. Each part of a large one takes some milliseconds: before the next, others should run.
        """
        if data is None:
            data = [record.data for record in records]
        for each in data:  # each record passes here: comparing costs a fifth of a call
            if MAGIC <= each < _AFTER_MAGIC:
                return self._expand(records, after)
        return iter((EventPart(_after(records, after), is_last=True),))

    def _expand(self, records: tuple[Record, ...], after: Checkpoint) -> Iterator[EventPart]:
        from efo.protocol.deaggregation import expand_all  # noqa: PLC0415 - loads protobuf, so with the first aggregate

        users: list[Record] = []
        count = size = 0  # user records so far, with those that were filtered out; bytes of Kinesis records
        last: Record | None = None
        for record, step in expand_all(records, self._filter):
            if last is not None and record is not last:
                size += len(last.data)
            last = record
            more = 0 if step is None else len(step.records) + step.filtered
            if step is None or count + more > MAX_RECORDS or size + len(record.data) > MAX_BYTES:
                yield EventPart(_after(tuple(users), after), is_last=False)
                users, count, size = [], 0, 0
            if step is not None:
                self._report(record, step.filtered, step.problem)
                users += step.records
                count += more
        yield EventPart(_after(tuple(users), after), is_last=True)

    def _report(self, record: Record, filtered: int, problem: str | None) -> None:
        if problem is not None:
            self._observer(AggregateDamaged(self._shard_id, record.sequence_number, problem))
        if filtered:
            self._observer(RecordsFiltered(self._shard_id, record.sequence_number, filtered, self._mode))


def _after(records: tuple[Record, ...], after: Checkpoint) -> tuple[Record, ...]:
    if records and not after.is_sentinel and checkpoint_of(records[0]) <= after:
        return filtered(records, lambda record: checkpoint_of(record) > after)
    return records


def start_position(checkpoint: Checkpoint, initial: Position) -> Position:
    """Return where a subscription starts that continues after this checkpoint (rule R5).

    It starts AT the checkpoint's record and not after it, since the record may be an aggregate that was processed in
    part. The records up to the checkpoint are dropped. Sentinels other than TRIM_HORIZON stand for `initial`.
    """
    match checkpoint.sequence_number:
        case "TRIM_HORIZON":
            return Position.trim_horizon()
        case "LATEST" | "AT_TIMESTAMP":
            return initial
        case number:
            return Position.at(number)


def checkpoint_before(position: Position) -> Checkpoint:
    """Return the checkpoint before this position, as far as a checkpoint can express it."""
    match position.type:
        case PositionType.AFTER_SEQUENCE_NUMBER:
            return Checkpoint(position.sequence_number or "")
        case PositionType.AT_SEQUENCE_NUMBER:
            return Checkpoint.TRIM_HORIZON
        case sentinel:
            return Checkpoint(sentinel.value)
