"""From the records of events to user records: deaggregation, without the records that are done already."""

from __future__ import annotations

from efo.events import AggregateDamaged, Observer, RecordsFiltered
from efo.model import Checkpoint, HashKeyRange, Record, checkpoint_of
from efo.protocol.aggregation import AggregateMode, ShardFilter, is_aggregate


class Deaggregator:
    """Deaggregates the records of one shard, and reports the records that it drops."""

    def __init__(
        self, shard_id: str, hash_key_range: HashKeyRange | None, aggregates: AggregateMode, observer: Observer
    ) -> None:
        self._shard_id = shard_id
        self._filter = ShardFilter(hash_key_range, aggregates)
        self._observer = observer

    def deaggregate(self, records: tuple[Record, ...], after: Checkpoint) -> tuple[Record, ...]:
        """Return the user records after this checkpoint (rule R5); all of them if it is a sentinel."""
        if any(map(is_aggregate, records)):
            records = tuple(user for record in records for user in self._deaggregate(record))
        if records and not after.is_sentinel and checkpoint_of(records[0]) <= after:
            records = tuple(record for record in records if checkpoint_of(record) > after)
        return records

    def _deaggregate(self, record: Record) -> tuple[Record, ...]:
        from efo.protocol.deaggregation import expand  # noqa: PLC0415 - loads protobuf, so with the first aggregate

        users: list[Record] = []
        for step in expand(record, self._filter):
            if step is not None:
                self._report(record, step.filtered, step.problem)
                users += step.records
        return tuple(users)

    def _report(self, record: Record, filtered: int, problem: str | None) -> None:
        if problem is not None:
            self._observer(AggregateDamaged(self._shard_id, record.sequence_number, problem))
        if filtered:
            self._observer(RecordsFiltered(self._shard_id, record.sequence_number, filtered))
