"""Reads a stream by GetRecords from any position, without leases, for people who look at it.

It changes nothing: it registers no fan-out consumer, and writes no checkpoint. It shares the limits of GetRecords, five
calls per second and shard and 2 MiB/s, with all others that use it; fan-out consumers do not.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

import trio

from efo.consumer.deaggregator import Deaggregator
from efo.consumer.shard_sync import MARGIN
from efo.deserializers.base import Deserializer, with_data
from efo.errors import (
    DeserializationError,
    EfoError,
    ExpiredIteratorError,
    ResourceNotFoundError,
    ServiceError,
    ThrottledError,
    TransportError,
)
from efo.events import AggregateDamaged, Event, RecordsFiltered
from efo.exception_groups import collapse_groups
from efo.kinesis.client import KinesisClient
from efo.model import Checkpoint, Position, PositionType, Record, Shard, ShardRead
from efo.protocol.aggregation import AggregateMode
from efo.protocol.backoff import Backoff
from efo.protocol.lineage import ancestor_ranges, without_ancestors
from efo.retrying import retry
from efo_service.errors import UsageError
from efo_service.operations.tail_plan import TailedShard, TailPlan

MAX_CONCURRENT: Final = 10
"""How many calls run at the same time. With more shards, a turn may come later than its interval."""
MAX_RECORDS: Final = 10_000
"""The most records of a call (AWS: GetRecords)."""
_FIRST_BACKOFF: Final = 1.0
_MAX_BACKOFF: Final = 10.0
_MAX_NAMED: Final = 5

Show = Callable[[str, Sequence[Record]], None]
"""Takes a shard's id and the user records of one read, in order. There may be none."""
Note = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """What to read.

    `start`: TRIM_HORIZON, LATEST or AT_TIMESTAMP. `until`: the end, in seconds since the epoch. `limit`: how many
    records to show. `keeps`: whether to show a record; None: all. `shards`: read only these and their descendants;
    empty: all. `unwrap`: takes layers off the data of a record, and returns its values, before `keeps`; None: the data
    is shown as it is. `interval`: seconds between two calls for a shard. `aggregates`: user records of other shards in
    KPL aggregates.
    """

    start: Position
    until: float | None = None
    limit: int | None = None
    keeps: Callable[[Record], bool] | None = None
    shards: tuple[str, ...] = ()
    unwrap: Deserializer[Sequence[bytes]] | None = None
    interval: float = 1.0
    aggregates: AggregateMode = AggregateMode.DEDUPLICATE


class Tailer:
    """Reads a stream for one Tail. `show` and `note` are called in order, and must not block for long.

    `random`: for the backoff. `shown`, `skipped`: how many records were shown, and how many `keeps` has refused.
    `filtered`: how many user records of aggregates were not shown, since an application does not get them either.
    """

    def __init__(
        self,
        kinesis: KinesisClient,
        tail: Tail,
        show: Show,
        note: Note,
        *,
        random: Callable[[], float] = random.random,
    ) -> None:
        self._kinesis = kinesis
        self._tail = tail
        self._show = show
        self._note = note
        self._random = random
        self._noted: set[str] = set()
        self._backoffs: dict[str, Backoff] = {}
        self._plan = TailPlan(Checkpoint.TRIM_HORIZON, None, interval=tail.interval)
        self._listed: dict[str, Shard] = {}
        self._calls = 0
        self._wake = trio.Event()
        self.shown = 0
        self.skipped = 0
        self.filtered = 0

    async def run(self) -> None:
        """Read until the limit or the end is reached; without both, for ever. Raises EfoError, and what `show` raises.

        UsageError: a shard does not exist, or the start is in the future.
        """
        with collapse_groups():
            await self._begin()
            async with trio.open_nursery() as nursery:
                while not self._is_full and (self._calls or self._plan.readings):
                    now = trio.current_time()
                    may_call = self._calls < MAX_CONCURRENT
                    if may_call and (reading := self._plan.take(now)) is not None:
                        self._calls += 1
                        nursery.start_soon(self._turn, reading)
                        continue
                    self._wake = trio.Event()
                    with trio.move_on_at(self._plan.next_turn if may_call else inf):
                        await self._wake.wait()
                nursery.cancel_scope.cancel()

    def state(self) -> str:
        """Return what is being read, for people."""
        lags = [reading.behind for reading in self._plan.readings.values() if reading.behind is not None]
        lag = f"up to {max(lags) / 1000:,.1f} s behind the tip" if lags else "no response yet"
        skipped = f"; {self.skipped:,} records do not match" if self.skipped else ""
        filtered = f"; {self.filtered:,} of aggregates are filtered out" if self.filtered else ""
        return f"{len(self._plan.readings)} shards, {lag}{skipped}{filtered}"

    @property
    def _is_full(self) -> bool:
        return self._tail.limit is not None and self.shown >= self._tail.limit

    def _now(self) -> float:
        return (self._kinesis.service_time or self._kinesis.clock)()

    async def _begin(self) -> None:
        """List the shards, and make the plan."""
        tail, control_plane = self._tail, self._kinesis.control_plane
        shards = self._known(await control_plane.list_shards())
        _check_shards(tail.shards, shards)
        now = self._now()  # known since the first response
        since = now if tail.start.type is PositionType.LATEST else tail.start.timestamp
        initial = Checkpoint(tail.start.type.value)
        if initial == Checkpoint.AT_TIMESTAMP and since is not None:
            if since > now:
                raise UsageError("--from: the time is in the future, where Kinesis refuses to start reading")
            # Otherwise shards that had ended by then would be read, and their children from their beginning.
            shards = without_ancestors(shards, await control_plane.shards_open_at(since - MARGIN))
        self._plan = TailPlan(initial, since, interval=tail.interval, until=tail.until, only=tail.shards)
        self._plan.sync(shards, trio.current_time())

    async def _turn(self, reading: TailedShard) -> None:
        """Read a shard once. At its end, start its children."""
        try:
            try:
                read = await self._attempt(reading)
            except ResourceNotFoundError:
                shards = await self._list_shards()
                if any(shard.shard_id == reading.shard_id for shard in shards):
                    raise  # the stream is being deleted
                self._note(f"{reading.shard_id} is gone: its retention period has passed")
                self._plan.ended(reading, (), shards, trio.current_time())
            else:
                if read is not None and reading.is_at_end:
                    self._plan.ended(reading, read.children, await self._list_shards(), trio.current_time())
        finally:
            self._calls -= 1
            self._wake.set()

    async def _attempt(self, reading: TailedShard) -> ShardRead | None:
        """Read a shard once; None if that failed and is to be repeated."""
        backoff = self._backoffs.get(reading.shard_id) or self._new_backoff(reading.shard_id)
        try:
            read = await self._read(reading)
        except (ServiceError, TransportError) as error:
            if isinstance(error, ExpiredIteratorError):
                reading.iterator = None  # the next one continues after the last record
            elif error.retryable:
                self._note_once(error)
            else:
                raise
            self._plan.end_turn(reading, retry_at=trio.current_time() + backoff.next())
            return None
        backoff.reset()
        return read

    async def _read(self, reading: TailedShard) -> ShardRead:
        control_plane, tail = self._kinesis.control_plane, self._tail
        if reading.iterator is None:
            reading.iterator = await control_plane.get_shard_iterator(reading.shard_id, reading.position)
        count = MAX_RECORDS
        if tail.limit is not None and tail.keeps is None:  # ten records must not use up the shard's 2 MiB/s
            count = min(count, max(1, tail.limit - self.shown))
        asked_at = self._now()
        read = await control_plane.get_records(reading.iterator, count)
        await self._deliver(reading, self._plan.accept(reading, read, asked_at))
        self._plan.end_turn(reading)
        return read

    async def _deliver(self, reading: TailedShard, records: tuple[Record, ...]) -> None:
        """Show the user records that match, until the limit is reached."""
        ancestors = ancestor_ranges(reading.shard_id, {}, self._listed)
        deaggregator = Deaggregator(
            reading.shard_id, reading.hash_key_range, self._tail.aggregates, self._observe, ancestors
        )
        for part in deaggregator.deaggregate(records, Checkpoint.TRIM_HORIZON):
            if self._is_full:
                return
            keeps = self._tail.keeps
            found = part.records if self._tail.unwrap is None else [*self._unwrapped(reading.shard_id, part.records)]
            users = found if keeps is None else [record for record in found if keeps(record)]
            self.skipped += len(found) - len(users)
            if self._tail.limit is not None:
                users = users[: self._tail.limit - self.shown]
            self.shown += len(users)
            self._show(reading.shard_id, users)
            await trio.lowlevel.checkpoint()

    def _unwrapped(self, shard_id: str, records: Iterable[Record]) -> Iterator[Record]:
        """Yield a record for each value of these. One whose layers cannot be taken off is shown as it is."""
        assert self._tail.unwrap is not None  # noqa: S101 - its caller has looked
        for record in records:
            try:
                values = self._tail.unwrap(record)
            except DeserializationError as error:
                if self._is_new(f"layers {error.reason}"):
                    self._note(f"{shard_id} {record.sequence_number} is shown as it is: {error.reason}")
                values = (record.data,)
            yield from (with_data(record, value) for value in values)

    async def _list_shards(self) -> Sequence[Shard]:
        """List the shards. Raises ServiceError if repeating cannot help."""
        backoff = self._new_backoff("")
        listing = self._kinesis.control_plane.list_shards
        return self._known(await retry(listing, backoff.next, on_failure=lambda error, _: self._note_once(error)))

    def _known(self, shards: Sequence[Shard]) -> Sequence[Shard]:
        self._listed = {shard.shard_id: shard for shard in shards}
        return shards

    def _new_backoff(self, key: str) -> Backoff:
        self._backoffs[key] = Backoff(self._random, initial=_FIRST_BACKOFF, limit=_MAX_BACKOFF)
        return self._backoffs[key]

    def _note_once(self, error: EfoError) -> None:
        if self._is_new(error.error_type):
            advice = ""
            if isinstance(error, ThrottledError):
                advice = ": all callers of GetRecords share 5 calls per second and 2 MiB/s of each shard"
            self._note(f"{error}{advice}; trying again")

    def _is_new(self, what: str) -> bool:
        """Return whether this was not noted before."""
        is_new = what not in self._noted
        self._noted.add(what)
        return is_new

    def _observe(self, event: Event) -> None:
        if isinstance(event, RecordsFiltered):
            self.filtered += event.records
            if self._is_new(f"filtered {event.shard_id}"):
                self._note(
                    f"{event.shard_id} {event.sequence_number}: {event.records} user records of an aggregate are"
                    f" outside the shard's hash-key range and not shown ([consumer] aggregates is {event.mode})"
                )
        if isinstance(event, AggregateDamaged):
            self._note(
                f"{event.shard_id} {event.sequence_number} is a damaged aggregate, shown as it is: {event.problem}"
            )


def _check_shards(wanted: Sequence[str], shards: Sequence[Shard]) -> None:
    known = {shard.shard_id for shard in shards}
    if unknown := [key for key in wanted if key not in known]:
        some = ", ".join(sorted(known)[:_MAX_NAMED]) + (", ..." if len(known) > _MAX_NAMED else "")
        raise UsageError(f"--shard {', '.join(unknown)}: the stream has no such shard; it has {len(known)}: {some}")
