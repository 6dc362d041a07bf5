"""Which shard `efo tail` reads next, from where, and when. Pure.

Its leases exist only here and have no owner. With them, the rules of every consumer decide (`efo.protocol.lineage`): a
parent is read to its end before its children start (rules R1 and R2).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from math import inf

from efo.model import Checkpoint, ChildShard, HashKeyRange, Lease, Position, Record, Shard, ShardRead
from efo.protocol.lineage import child_leases, is_startable, leases_to_create


@dataclass(slots=True, eq=False)
class TailedShard:
    """A shard that is being read.

    `position`: after the last record that was read; before the first one, where the shard starts. `iterator`: of the
    next call; None: get one at the position. `behind`: of the last call, in milliseconds; None before it. `taken_at`:
    when its last turn began, in seconds of a monotonic clock. `is_at_end`: all records of the shard were read.
    """

    shard_id: str
    hash_key_range: HashKeyRange | None
    position: Position
    iterator: str | None = None
    behind: int | None = None
    taken_at: float = -inf
    is_at_end: bool = False


class TailPlan:
    """Decides what to read. Times named `now` are of a monotonic clock, all others seconds since the epoch.

    `initial`: where shards start that were not read: TRIM_HORIZON, LATEST or AT_TIMESTAMP. `since`: the time that the
    latter two stand for; so a shard whose first call fails, or whose iterator expires, misses nothing (rule R4).
    `interval`: seconds between two turns of a shard. `until`: a shard is done when it was read up to this time.
    `only`: read these shards and their descendants; empty: all.
    """

    def __init__(
        self,
        initial: Checkpoint,
        since: float | None,
        *,
        interval: float,
        until: float | None = None,
        only: Collection[str] = (),
    ) -> None:
        self._initial = initial
        self._start = Position.trim_horizon() if since is None else Position.at_timestamp(since)
        self._interval = interval
        self._until = until
        self._only = only
        self._leases: dict[str, Lease] = {}
        self._started: set[str] = set()
        self._turns: list[tuple[float, int, TailedShard]] = []
        self._turn_count = 0
        self.readings: dict[str, TailedShard] = {}
        """The shards that are being read: they wait for their turn, or have it. Empty: everything is done."""

    def sync(self, shards: Sequence[Shard], now: float) -> None:
        """Take a listing of the stream's shards into account. Shards that the rules allow to start get their turn."""
        if self._only:
            shards = self._family(shards)
        for lease in leases_to_create(shards, self._leases, self._initial):
            self._leases.setdefault(lease.key, lease)
        for lease in self._leases.values():
            if lease.key not in self._started and is_startable(lease, self._leases):
                self._started.add(lease.key)
                # Children too: a parent that ended shortly before is read, but what is older is not wanted.
                reading = TailedShard(lease.key, lease.hash_key_range, self._start)
                self.readings[lease.key] = reading
                self._wait_until(now, reading)

    def take(self, now: float) -> TailedShard | None:
        """Return the shard whose turn it is, None if all must wait. `end_turn` or `ended` ends it."""
        if self.next_turn > now:
            return None
        reading = heappop(self._turns)[2]
        reading.taken_at = now
        return reading

    @property
    def next_turn(self) -> float:
        """When the next turn is; infinity if no shard waits for one."""
        return self._turns[0][0] if self._turns else inf

    def accept(self, reading: TailedShard, read: ShardRead, asked_at: float) -> tuple[Record, ...]:
        """Take what a call has read, and return the records to show. Then, call `end_turn`; at the end, `ended`.

        `asked_at`: the service's time at the call, or earlier.
        """
        reading.iterator, reading.behind = read.iterator, read.millis_behind_latest
        if read.records:
            reading.position = Position.after(read.records[-1].sequence_number)
        until = inf if self._until is None else self._until
        records = _before(read.records, until)
        if len(records) < len(read.records):
            del self.readings[reading.shard_id]
        elif read.iterator is None:
            reading.is_at_end = True
        elif asked_at - reading.behind / 1000 >= until:
            del self.readings[reading.shard_id]
        return records

    def end_turn(self, reading: TailedShard, *, retry_at: float | None = None) -> None:
        """Let a shard that is not done wait for its next turn. `retry_at`: when the turn that failed is repeated."""
        if reading.shard_id in self.readings and not reading.is_at_end:
            self._wait_until(reading.taken_at + self._interval if retry_at is None else retry_at, reading)

    def ended(self, reading: TailedShard, children: Sequence[ChildShard], shards: Sequence[Shard], now: float) -> None:
        """End a shard (rule R2). Its children start, also those that only the listing `shards` knows."""
        key = reading.shard_id
        del self.readings[key]
        self._leases[key] = replace(self._leases[key], checkpoint=Checkpoint.SHARD_END)
        if self._only:  # a parent outside of the family is never read, and must not be waited for
            known = self._leases.keys() | {shard.shard_id for shard in self._family(shards)}
            children = [_with_parents(child, known) for child in children]
        for lease in child_leases(children, self._leases):
            self._leases[lease.key] = lease
        self.sync(shards, now)

    def _family(self, shards: Sequence[Shard]) -> list[Shard]:
        return family(shards, {*self._only, *self._leases})  # a shard that was read may have expired since

    def _wait_until(self, at: float, reading: TailedShard) -> None:
        self._turn_count += 1  # of equal times, the first that was entered goes first
        heappush(self._turns, (at, self._turn_count, reading))


def family(shards: Sequence[Shard], roots: Collection[str]) -> list[Shard]:
    """Return the shards `roots` and their descendants, without parents that are neither."""
    kept: dict[str, Shard] = {}
    for shard in sorted(shards, key=lambda shard: (int(shard.starting_sequence_number), shard.shard_id)):
        parents = [parent for parent in shard.parents if parent in kept or parent in roots]
        if parents or shard.shard_id in roots:
            first, second = (*parents, None, None)[:2]
            kept[shard.shard_id] = replace(shard, parent_shard_id=first, adjacent_parent_shard_id=second)
    return list(kept.values())


def _with_parents(child: ChildShard, known: Collection[str]) -> ChildShard:
    parents = tuple(parent for parent in child.parent_shards if parent in known)
    return ChildShard(child.shard_id, parents, child.hash_key_range)


def _before(records: tuple[Record, ...], until: float) -> tuple[Record, ...]:
    """Return the records up to the first one that arrived after `until`."""
    late = (index for index, record in enumerate(records) if record.approximate_arrival_timestamp > until)
    return records[: next(late, len(records))]
