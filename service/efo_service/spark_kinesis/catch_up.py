"""Whether a log holds every record that was in a stream at a time. Pure.

The leases say how far each shard is in the log: a checkpoint is saved after its records were committed (rule R3), never
before. Whether anything older than the time follows a checkpoint, Kinesis itself says: GetRecords at that checkpoint.
So it does not matter which process relays a shard.

No shard that is created later can have a record of before. Of those that exist, each must be passed:

- its lease is finished, or the rules of every consumer say that it is not to be read (`efo.protocol.lineage`);
- or nothing follows its checkpoint: the shard ended there, or GetRecords is at the tip;
- or what follows arrived after the time, with a margin: arrival times are approximate;
- or it waits for parents of which records that arrived later are not read: its records are newer than all of theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from efo.model import Checkpoint, Lease, Position, PositionType, Record, Shard
from efo.protocol.lineage import leases_to_create

MARGIN: Final = 5.0
"""Seconds by which the arrival times of records and the time of the service may differ."""


class CatchUp:
    """Decides whether all shards are passed. `until`: the time, in seconds since the epoch, by the service's clock.

    `initial`: where shards start that were never read: TRIM_HORIZON, LATEST or AT_TIMESTAMP.
    `passed`: the ids of the shards of which the log holds every record until then.
    """

    def __init__(self, until: float, initial: Position) -> None:
        self.until = until
        self.passed: set[str] = set()
        self.is_complete = False
        self._initial = initial
        self._at_tip: set[str] = set()  # passed, and nothing followed the checkpoint: nothing is known of children

    @property
    def bound(self) -> float:
        """A time before which every record arrived that was in the stream, in seconds since the epoch."""
        return self.until + MARGIN

    def sync(self, shards: Sequence[Shard], leases: Mapping[str, Lease]) -> list[Lease]:
        """Return the leases at whose checkpoints the shards are to be read: call `accept` with what follows.

        `shards`: of a listing that is not older than the time. `leases`: all of them, read afterwards.
        """
        missing = {lease.key for lease in leases_to_create(shards, leases, Checkpoint(self._initial.type.value))}
        listed = {shard.shard_id for shard in shards}
        unknown: list[Lease] = []
        # Parents first: they decide whether a child that nobody reads yet matters.
        for shard in sorted(shards, key=lambda shard: (int(shard.starting_sequence_number), shard.shard_id)):
            key = shard.shard_id
            if key in self.passed:
                continue
            lease = leases.get(key)
            if lease is not None and not lease.is_finished:
                unknown.append(lease)
            elif lease is not None or (
                key not in missing and all(self._shows_children(parent, leases) for parent in listed & {*shard.parents})
            ):
                self.passed.add(key)
        self.is_complete = listed <= self.passed
        return unknown

    def _shows_children(self, key: str, leases: Mapping[str, Lease]) -> bool:
        """Return whether a parent proves that a child without a lease has no record of before, or was read."""
        is_read = key not in leases or leases[key].is_finished
        return key in self.passed and (is_read or key not in self._at_tip)

    def position(self, lease: Lease) -> Position | None:
        """Return where to read what follows a lease's checkpoint. None: that is not known yet.

        The record of the checkpoint is read, too: it may be an aggregate of which only a part is committed (rule R5).
        """
        checkpoint = lease.checkpoint
        if not checkpoint.is_sentinel:
            return Position.at(checkpoint.sequence_number)
        if lease.latest_at is not None:
            return Position.at_timestamp(lease.latest_at)
        if checkpoint == Checkpoint.TRIM_HORIZON:
            return Position.trim_horizon()
        is_initial = checkpoint == Checkpoint.AT_TIMESTAMP and self._initial.type is PositionType.AT_TIMESTAMP
        return self._initial if is_initial else None

    def accept(self, shard_id: str, following: Sequence[Record], millis_behind: int, *, is_end: bool) -> bool:
        """Take what GetRecords has read after a checkpoint; return whether the shard is passed.

        `following`: the first user records after the checkpoint, in order. `is_end`: no further record can follow.
        """
        if following:
            is_passed = following[0].approximate_arrival_timestamp >= self.bound
        else:
            is_passed = is_end or not millis_behind
        if is_passed:
            self.passed.add(shard_id)
            if not following:
                self._at_tip.add(shard_id)
        return is_passed
