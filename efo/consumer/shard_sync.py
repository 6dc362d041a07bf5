"""Shard sync: keeps the leases in line with the shards of the stream (AWS: ListShards).

At an interval, and at once when no lease covers some hash keys, it lists shards and leases, creates missing leases, and
deletes the leases of finished shards that nothing depends on any more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Final

import trio

from efo.consumer.advice import Advice
from efo.consumer.recreation import RecreationCheck
from efo.errors import LeaseStoreUnavailableError, ServiceError, TransportError
from efo.events import (
    HashRangeHoleFound,
    Observer,
    ParentCycleFound,
    ShardsListed,
    ShardSyncFailed,
    StreamIdentified,
)
from efo.exception_groups import collapse_groups
from efo.kinesis.client import KinesisClient
from efo.kinesis.identity import StreamIdentity
from efo.leases.coordinator import LeaseCoordinator
from efo.leases.held_lease import report_store_call
from efo.leases.store import LeaseStore
from efo.leases.writes import MAX_CONCURRENT_WRITES
from efo.model import Checkpoint, HashKeyRange, Lease, Position, Shard
from efo.protocol.backoff import Backoff
from efo.protocol.lineage import (
    HashRangeAudit,
    ancestor_ranges,
    deletable_leases,
    leases_to_create,
    parent_cycles,
    without_ancestors,
)
from efo.settings import ConsumerSettings, pinned

CLEANUP_AFTER: Final = 600.0
"""Seconds after which the lease of a finished shard is deleted, since nothing depends on it. More than twice as long as
ListShards may lag."""

AUDITS: Final = 20
"""Audits of the hash-key ranges between two shard syncs. They use the leases that the coordinator has read anyway."""
MARGIN: Final = 5.0
"""Seconds by which the times of shards and of records may differ. A shard that ended this shortly before AT_TIMESTAMP
is read too, since it may contain records of that time."""
LISTING_LAG: Final = 300.0
"""Seconds by which ListShards may be late if no time for the clean-up of leases says so."""
JITTER: Final = 0.25
"""By up to this share of the interval a shard sync is sooner: workers that start together do not list together for
ever. ListShards has a limit for the whole stream."""
_MAX_NAMED: Final = 10


class ShardSync:
    """Syncs the shards of one stream.

    `random`: returns a number from 0 to 1, for jitter.
    `initial`: where shards start that were never read, once `run` has started. `shards`: those of the last listing.
    `synced_after`: how many lease scans had begun when the leases of a listing were created; infinity before the first.
    """

    def __init__(
        self,
        kinesis: KinesisClient,
        store: LeaseStore,
        settings: ConsumerSettings,
        coordinator: LeaseCoordinator,
        observer: Observer,
        random: Callable[[], float],
        identity: StreamIdentity,
        advice: Advice,
    ) -> None:
        self.initial: Position | None = None
        self.synced_after: float = inf
        self._kinesis = kinesis
        self._store = store
        self._settings = settings
        self._coordinator = coordinator
        self._observer = observer
        self._advice = advice
        self._random = random
        self._cleanup_after = CLEANUP_AFTER if settings.lease_cleanup else inf
        self._audit = HashRangeAudit()
        self._listed: dict[str, Shard] = {}
        self.shards: Sequence[Shard] = ()
        self._deletable_since: dict[str, float] = {}
        self._cycles: list[tuple[str, ...]] = []
        self._service_time = kinesis.service_time or kinesis.clock
        self._identity = identity
        self._is_identified = False
        lag = CLEANUP_AFTER / 2 if settings.lease_cleanup else LISTING_LAG
        self._recreation = RecreationCheck(kinesis.stream, kinesis.control_plane, identity, lag)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Sync until cancelled.

        Raises EfoError: if Kinesis refuses the first one, or the lease store is corrupt or of another stream.
        """
        started = False
        backoff = Backoff(self._random, initial=1.0)
        while True:
            try:
                await self._sync_in_time()
            except (ServiceError, TransportError, LeaseStoreUnavailableError) as error:
                # At the start the operator should see a failure, but the lease store was there when it was opened.
                # Later, the known shards are read on.
                if not started and not isinstance(error, LeaseStoreUnavailableError):
                    raise
                self._observer(ShardSyncFailed(error.error_type, str(error)))
                if not started:
                    await trio.sleep(backoff.next())
                    continue
            else:
                self._observer(ShardsListed(len(self._listed)))
            if not started:
                started = True
                task_status.started()
            with trio.move_on_after(self._settings.shard_sync_seconds * (1 - JITTER * self._random())):
                await self._wait_for_hole()

    def pinned(self, position: Position) -> Position:
        """Return LATEST as the current time of the service, so that a failed first connection skips nothing (R4).

        Raises ConfigurationError for a time in the future; one within the error of clocks is the current time.
        """
        return pinned(position, self._service_time(), "the position")

    @property
    def listed(self) -> Collection[str]:
        """The ids of the shards of the last listing."""
        return self._listed.keys()

    def is_closed(self, shard_id: str) -> bool:
        """Return whether a shard had ended, by a split or a merge, when the shards were listed."""
        return (shard := self._listed.get(shard_id)) is not None and not shard.is_open

    def range_of(self, lease: Lease) -> HashKeyRange | None:
        """Return the hash-key range of a shard, from its lease or else from ListShards."""
        listed = self._listed.get(lease.key)
        return lease.hash_key_range or (None if listed is None else listed.hash_key_range)

    def ancestors_of(self, lease: Lease) -> list[HashKeyRange]:
        """Return the hash-key ranges of a shard's ancestors, as far as they are known (rule R17).

        None of a stream that distributes records itself (AUTO): no aggregate is there because of a shard map.
        """
        if (stream := self._identity.description) is not None and stream.is_auto:
            return []
        return ancestor_ranges(lease.key, self._coordinator.leases, self._listed, lease.parents)

    async def _wait_for_hole(self) -> None:
        """Wait until no lease has covered some hash keys for some time."""
        while True:
            await trio.sleep(self._settings.shard_sync_seconds / AUDITS)
            unfinished = [lease for lease in self._coordinator.leases.values() if not lease.is_finished]
            ranges = [keys for lease in unfinished if (keys := self.range_of(lease))]
            if len(ranges) == len(unfinished) and (hole := self._audit.observe(ranges)):
                self._observer(HashRangeHoleFound(hole.start, hole.end))
                return

    async def _sync_in_time(self) -> None:
        # Not longer: by then, a lease that was missing may have been created, finished and deleted.
        limit = self._cleanup_after / 2
        with trio.move_on_after(limit) as scope:
            await self._sync()
        if scope.cancelled_caught:
            raise TransportError(f"Kinesis and the lease store did not list shards and leases within {limit:g} s")

    async def _sync(self) -> None:
        shards = await self._kinesis.control_plane.list_shards()
        if self.initial is None:
            self.initial = pinned(self._settings.start_position, self._service_time(), "initial_position")
        leases = {lease.key: lease for lease in await self._store.list()}
        await self._recreation.check(shards, leases.values())
        self._identified()
        self.shards = shards
        self._listed = {shard.shard_id: shard for shard in shards}
        self._report_cycles(leases)
        if self.synced_after == inf:
            self._advice.shards_listed(self._kinesis.stream, self._settings, self._listed, leases)
        await self._create_missing(await self._since_initial(shards, leases), leases)
        await self._clean_up(leases, shards)
        self.synced_after = self._coordinator.scans_begun
        self._coordinator.wake()

    def _identified(self) -> None:
        """Note which stream the leases are of, and report it once."""
        description = self._identity.description
        self._coordinator.stream_created_at = self._identity.created_at
        if not self._is_identified:
            self._is_identified = True
            hours = None if description is None else description.retention_hours
            self._observer(StreamIdentified(self._identity.created_at, hours))

    async def _create_missing(self, wanted: Sequence[Shard], leases: Mapping[str, Lease]) -> None:
        """Create the missing leases, parents before children.

        Workers that start together create them together: each begins anywhere, and reads the table again when it meets
        a lease that another one has created. Otherwise each of them would write every lease of the stream.
        """
        known = dict(leases)
        while missing := leases_to_create(wanted, known, self._settings.initial_checkpoint):
            keys = {lease.key for lease in missing}
            ready = [self._complete(lease, leases) for lease in missing if keys.isdisjoint(lease.parents)]
            ready = ready or [self._complete(lease, leases) for lease in missing]  # a circle: rows written by hand
            first = int(self._random() * len(ready)) if len(ready) > MAX_CONCURRENT_WRITES else 0
            ready = ready[first:] + ready[:first]
            for at in range(0, len(ready), MAX_CONCURRENT_WRITES):
                now = ready[at : at + MAX_CONCURRENT_WRITES]
                are_new = await self._create_all(now)
                known |= {lease.key: lease for lease in now}
                if not are_new:
                    known |= {lease.key: lease for lease in await self._store.list()}
                    break

    async def _create_all(self, leases: Sequence[Lease]) -> bool:
        """Create leases at the same time; return whether none of them existed."""
        created: list[bool] = []

        async def create(lease: Lease) -> None:
            created.append(await self._store.create(lease))

        with collapse_groups():
            async with trio.open_nursery() as nursery:
                for lease in leases:
                    nursery.start_soon(create, lease)
        return all(created)

    def _complete(self, lease: Lease, leases: Mapping[str, Lease]) -> Lease:
        """Return a new lease with its stream and its times. One that continues what was read has no time: R5."""
        now = self._service_time()
        is_first = not lease.is_finished and not any(parent in leases for parent in lease.parents)
        return replace(
            lease,
            latest_at=now if lease.checkpoint == Checkpoint.LATEST else None,
            unread_since=now if is_first else None,
            stream_created_at=self._identity.created_at,
        )

    def _report_cycles(self, leases: Mapping[str, Lease]) -> None:
        """Report each circle of parents once, until it is gone."""
        cycles = parent_cycles(leases)
        for cycle in cycles:
            if cycle not in self._cycles:
                self._observer(ParentCycleFound(cycle[:_MAX_NAMED]))
        self._cycles = cycles

    async def _since_initial(self, shards: Sequence[Shard], leases: Mapping[str, Lease]) -> Sequence[Shard]:
        """Drop shards that had ended before AT_TIMESTAMP: otherwise their children would be read from the beginning.

        Only as long as no shard was read; then the leases decide. KCL uses this filter too, while its table is empty.
        """
        settings = self._settings
        is_first = all(lease.checkpoint == Checkpoint.AT_TIMESTAMP for lease in leases.values())
        at = settings.start_position.timestamp
        if at is None or settings.start_at is not None or not is_first:
            return shards
        at = min(at, self._service_time())  # ListShards rejects times in the future
        return without_ancestors(shards, await self._kinesis.control_plane.shards_open_at(at - MARGIN))

    async def _clean_up(self, leases: Mapping[str, Lease], shards: Sequence[Shard]) -> None:
        """Delete leases that were deletable for long enough: by then, a suspended worker has read the table again."""
        now, known = trio.current_time(), self._deletable_since
        self._deletable_since = {key: known.get(key, now) for key in deletable_leases(leases, shards)}
        for key, since in self._deletable_since.items():
            if since + self._cleanup_after <= now:
                with report_store_call(self._observer, "delete", key):
                    await self._store.delete(key)
