"""Finds the stream's shards and sees to it that their leases are those that are needed (AWS: ListShards).

Every so often, and at once when the leases leave hash keys uncovered, it lists shards and leases, creates leases that
are missing and deletes those of finished shards that nothing depends on any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Final

import trio

from efo.errors import LeaseStoreUnavailableError, ServiceError, TransportError
from efo.events import HashRangeHoleFound, Observer, ShardSyncFailed
from efo.kinesis.client import Kinesis
from efo.leases.held_lease import reported
from efo.leases.keeper import LeaseKeeper
from efo.leases.store import LeaseStore
from efo.model import AT_TIMESTAMP, LATEST, HashKeyRange, Lease, Position, PositionType, Shard
from efo.protocol.audit import Audit
from efo.protocol.cleanup import deletable
from efo.protocol.lineage import leases_to_create, without_ancestors
from efo.settings import ConsumerSettings

AUDITS: Final = 20
"""Audits from one listing of the shards to the next. They look at what the keeper has read anyway."""
MARGIN: Final = 5.0
"""Seconds by which the clocks of shards and of records may differ: a shard that ended so shortly before the time at
which a reading begins is read too, for it may have a record of that time."""


class ShardSync:
    """The shards of one stream. `initial`: where shards begin that were never read; known once `run` has started."""

    def __init__(
        self,
        kinesis: Kinesis,
        store: LeaseStore,
        settings: ConsumerSettings,
        keeper: LeaseKeeper,
        observer: Observer,
    ) -> None:
        self.initial: Position | None = None
        self._kinesis = kinesis
        self._store = store
        self._settings = settings
        self._keeper = keeper
        self._observer = observer
        self._cleanup_after = inf if settings.lease_cleanup_after is None else settings.lease_cleanup_after
        self._audit = Audit()
        self._ranges: dict[str, HashKeyRange] = {}
        self._deletable_since: dict[str, float] = {}

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look until cancelled. Raises EfoError: whatever fails at first, later only what is damaged."""
        started = False
        while True:
            try:
                await self._look_in_time()
            except (ServiceError, TransportError, LeaseStoreUnavailableError) as error:
                # At the start a failure is the operator's to see; later the shards that we know go on.
                if not started:
                    raise
                self._observer(ShardSyncFailed(error.error_type, str(error)))
            if not started:
                started = True
                task_status.started()
            with trio.move_on_after(self._settings.shard_sync_interval):
                await self._hole()

    def pinned(self, position: Position) -> Position:
        """Return LATEST as the time it is now, by the service's clock (rule R4).

        So that a first connection that fails skips nothing.
        """
        if position.type is not PositionType.LATEST:
            return position
        return Position.at_timestamp((self._kinesis.service_time or self._kinesis.clock)())

    def range_of(self, lease: Lease) -> HashKeyRange | None:
        """Return the hash keys of a shard, from its lease or, if that does not say, from the listing."""
        return lease.hash_key_range or self._ranges.get(lease.key)

    async def _hole(self) -> None:
        """Wait until the leases leave hash keys uncovered, and for some time."""
        while True:
            await trio.sleep(self._settings.shard_sync_interval / AUDITS)
            unfinished = [lease for lease in self._keeper.leases.values() if not lease.is_finished]
            ranges = [keys for lease in unfinished if (keys := self.range_of(lease))]
            if len(ranges) == len(unfinished) and (hole := self._audit.observe(ranges)):
                self._observer(HashRangeHoleFound(hole.start, hole.end))
                return

    async def _look_in_time(self) -> None:
        # Not for longer: a lease that was missing may by then have been made, read to its end and deleted.
        limit = self._cleanup_after / 2
        with trio.move_on_after(limit) as scope:
            await self._look()
        if scope.cancelled_caught:
            raise TransportError(f"Kinesis and the lease store did not list shards and leases within {limit:g} s")

    async def _look(self) -> None:
        shards = await self._kinesis.control.list_shards()
        if self.initial is None:
            self.initial = self.pinned(self._settings.initial_position)
        self._ranges = {shard.shard_id: shard.hash_key_range for shard in shards}
        leases = {lease.key: lease for lease in await self._store.list()}
        wanted = await self._since_initial(shards, leases)
        for lease in leases_to_create(wanted, leases, self._settings.initial_checkpoint):
            latest_at = self.pinned(Position.latest()).timestamp if lease.checkpoint == LATEST else None
            await self._store.create(replace(lease, latest_at=latest_at))
        await self._clean_up(leases, shards)
        self._keeper.wake()

    async def _since_initial(self, shards: Sequence[Shard], leases: Mapping[str, Lease]) -> Sequence[Shard]:
        """Leave out what had ended before a first reading AT_TIMESTAMP begins: its children would be read whole.

        Once something has begun the leases say what is read. KCL lists with this filter too, while its table is empty.
        """
        settings = self._settings
        is_first = all(lease.checkpoint == AT_TIMESTAMP for lease in leases.values())
        at = settings.initial_position.timestamp
        if at is None or settings.start_at is not None or not is_first:
            return shards
        now = (self._kinesis.service_time or self._kinesis.clock)()  # nothing can be asked about the future
        return without_ancestors(shards, await self._kinesis.control.shards_open_at(min(at, now) - MARGIN))

    async def _clean_up(self, leases: Mapping[str, Lease], shards: Sequence[Shard]) -> None:
        """Delete what has been deletable for long enough: a worker that slept has learned of it by then."""
        now, known = trio.current_time(), self._deletable_since
        self._deletable_since = {key: known.get(key, now) for key in deletable(leases, shards)}
        for key, since in self._deletable_since.items():
            if since + self._cleanup_after <= now:
                with reported(self._observer, "delete", key):
                    await self._store.delete(key)
