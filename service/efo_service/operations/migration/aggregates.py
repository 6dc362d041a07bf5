"""Where a checkpoint goes in a format that marks whole records: never beyond an aggregate that is not read to its end.

A mark says that all of a record was read, and a reader continues AFTER it. efo's checkpoint may be inside a KPL
aggregate, and of the first user record of an aggregate it says the same as of a plain record. So the record is read
here. If some of its user records are left, the mark is the record before the aggregate, found by its arrival time.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

import trio

from efo.errors import EfoError
from efo.exception_groups import collapse_groups
from efo.kinesis.client import ControlPlane
from efo.model import Checkpoint, Lease, Position, Record, Shard
from efo.protocol.aggregation import AggregateMode, HashRangeFilter, is_aggregate
from efo.protocol.backoff import Backoff
from efo.protocol.deaggregation import expand
from efo.protocol.lineage import ancestor_ranges
from efo.retrying import retry
from efo.third_party_errors import reason_of
from efo_service.operations.migration.layout import Mark

_T = TypeVar("_T")
PAUSE: Final = 0.25
"""Seconds between two calls of GetRecords for a shard (AWS: five per second, of all callers together)."""
TRIES: Final = 6
"""How often a call is made that fails with an error that may pass."""
_CONCURRENT: Final = 10
_PAGE: Final = 1000
_LOOK_BACK: Final = tuple(10.0**power for power in range(8))
"""Seconds before an aggregate in which the record before it is looked for: from a second to more than the year that a
stream retains records at most. Each search reads the records of its time only, and the one before it found none."""


async def find_marks(
    control_plane: ControlPlane, leases: Sequence[Lease], shards: Sequence[Shard], mode: AggregateMode
) -> Mapping[str, Mark]:
    """Return the mark of each lease that has a sequence number, by shard id. `mode`: of efo. It reads the stream.

    A shard whose records cannot be read has a mark that says why.
    """
    listed, of_all = {shard.shard_id: shard for shard in shards}, {lease.key: lease for lease in leases}
    marks: dict[str, Mark] = {}
    limiter = trio.CapacityLimiter(_CONCURRENT)

    async def find(lease: Lease) -> None:
        async with limiter:
            shard = listed[lease.key]
            shard_filter = HashRangeFilter(shard.hash_key_range, mode, ancestor_ranges(lease.key, of_all, listed))
            marks[lease.key] = await _find_mark(control_plane, shard, lease.checkpoint, shard_filter)

    with collapse_groups():
        async with trio.open_nursery() as nursery:
            for lease in leases:
                if lease.checkpoint.is_sentinel:
                    continue
                if lease.key in listed:
                    nursery.start_soon(find, lease)
                else:  # past its retention: nothing of an aggregate can be read
                    marks[lease.key] = Mark(lease.checkpoint.sequence_number)
    return marks


async def _find_mark(
    control_plane: ControlPlane, shard: Shard, checkpoint: Checkpoint, shard_filter: HashRangeFilter
) -> Mark:
    number, reader = checkpoint.sequence_number, _Reader(control_plane, shard.shard_id)
    try:
        record = await reader.first(Position.at(number))
        if record is None or record.sequence_number != number or not _is_unfinished(record, checkpoint, shard_filter):
            return Mark(number)
        before = await _record_before(reader, shard, record)
        following = await reader.first(Position.after(before))
    except EfoError as error:
        return Mark(
            None, f"the record at {number} cannot be read, and may be a part of an aggregate: {reason_of(error)}"
        )
    if following is None or following.sequence_number != number:
        return Mark(
            None,
            f"the aggregate {number} is not read to its end, and the shard has no position before it: let efo run until"
            " it has acked what follows the aggregate",
        )
    again = checkpoint.sub_sequence_number + 1
    return Mark(
        before, f"before the aggregate {number}, which is not read to its end: its first {again} are read again"
    )


def _is_unfinished(record: Record, checkpoint: Checkpoint, shard_filter: HashRangeFilter) -> bool:
    """Return whether efo would deliver more of this record."""
    if not is_aggregate(record):
        return False
    parts = expand(record, shard_filter)
    last = max((user.sub_sequence_number for part in parts if part is not None for user in part.records), default=-1)
    return last > checkpoint.sub_sequence_number


async def _record_before(reader: _Reader, shard: Shard, aggregate: Record) -> str:
    """Return the sequence number of the record before an aggregate; of the shard's start if there is none any more."""
    at, number = aggregate.approximate_arrival_timestamp, int(aggregate.sequence_number)
    starts = [Position.at_timestamp(at - seconds) for seconds in _LOOK_BACK if seconds < at]
    for start in (*starts, Position.trim_horizon()):
        if (before := await reader.last_before(start, number)) is not None:
            return before
    return shard.starting_sequence_number


class _Reader:
    """Reads Kinesis records of one shard, within the limits of GetRecords."""

    def __init__(self, control_plane: ControlPlane, shard_id: str) -> None:
        self._control_plane = control_plane
        self._shard_id = shard_id
        self._iterator: str | None = None
        self._backoff = Backoff(random.random, initial=1.0, limit=10.0)

    async def first(self, position: Position) -> Record | None:
        """Return the first record at a position; None if there is none now. Raises EfoError."""
        await self._seek(position)
        while (page := await self._page(1)) is not None:
            if page:
                return page[0]
        return None

    async def last_before(self, position: Position, number: int) -> str | None:
        """Return the last sequence number from a position that is less than this one. Raises EfoError."""
        before = None
        await self._seek(position)
        while (page := await self._page(_PAGE)) is not None:
            for record in page:
                if int(record.sequence_number) >= number:
                    return before
                before = record.sequence_number
        return before

    async def _seek(self, position: Position) -> None:
        get = partial(self._control_plane.get_shard_iterator, self._shard_id, position)
        self._iterator = await self._repeated(get)

    async def _page(self, limit: int) -> tuple[Record, ...] | None:
        """Return the next records, maybe none; None at the tip or the end of the shard."""
        if self._iterator is None:
            return None
        await trio.sleep(PAUSE)
        read = await self._repeated(partial(self._control_plane.get_records, self._iterator, limit))
        self._iterator = read.iterator if read.records or read.millis_behind_latest else None
        return read.records

    async def _repeated(self, call: Callable[[], Awaitable[_T]]) -> _T:
        """Make a call, and again if it fails with an error that may pass. Raises EfoError."""
        return await retry(call, self._backoff.next, attempts=TRIES)
