"""Waits until the log holds what was in a stream at a time: reads leases, and the stream after their checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import trio

from efo.consumer.deaggregator import Deaggregator
from efo.errors import LeaseStoreUnavailableError, ResourceNotFoundError, ServiceError, TransportError
from efo.events import ignore_events
from efo.exception_groups import collapse_groups
from efo.kinesis.client import KinesisClient
from efo.leases.store import LeaseStore
from efo.model import Checkpoint, Lease, Position, Record, Shard
from efo.protocol.aggregation import AggregateMode
from efo.protocol.lineage import ancestor_ranges
from efo.retrying import retry
from efo_service.spark_kinesis.catch_up import CatchUp

INTERVAL: Final = 1.0
"""Seconds between two rounds. All applications together may call GetRecords five times per second and shard."""
_RECORDS: Final = 25
"""Records of a call. The first one after the checkpoint decides; the others are for aggregates that are left out."""
_CALLS: Final = 10
"""How many calls are made at the same time."""


@dataclass(slots=True)
class _Walk:
    """How far the probe of a shard is. `iterator`: of its next call. `has_records`: the next move is the relay's."""

    checkpoint: Checkpoint
    iterator: str | None = None
    has_records: bool = False


class Probe:
    """Compares the leases of a consumer with its stream."""

    def __init__(
        self, kinesis: KinesisClient, leases: LeaseStore, initial: Position, aggregates: AggregateMode
    ) -> None:
        self._kinesis = kinesis
        self._leases = leases
        self._initial = initial
        self._aggregates = aggregates
        self._walks: dict[str, _Walk] = {}
        self._leased: dict[str, Lease] = {}
        self._listed: dict[str, Shard] = {}
        self._calls = trio.CapacityLimiter(_CALLS)

    async def wait(self, until: float | None, on_start: Callable[[CatchUp], None]) -> None:
        """Return when every record that was in the stream at `until` is in the log.

        `until`: seconds since the epoch, not in the future; None: now. `on_start`: called with the time that it means.
        Raises ServiceError and TransportError if repeating cannot help.
        """
        shards = await self._list()
        catch_up = CatchUp(self._now() if until is None else until, self._initial)
        on_start(catch_up)
        while not (catch_up.is_complete and {shard.shard_id for shard in shards} <= catch_up.passed):
            if not await self._round(catch_up, shards):
                await trio.sleep(INTERVAL)
            # Also after the last round: a listing may show the children of a reshard late.
            shards = await self._list()

    def _now(self) -> float:
        return (self._kinesis.service_time or self._kinesis.clock)()

    async def _list(self) -> list[Shard]:
        return list(await retry(self._kinesis.control_plane.list_shards, lambda: INTERVAL))

    async def _round(self, catch_up: CatchUp, shards: list[Shard]) -> bool:
        """Look at each shard once; return whether all are passed."""
        try:
            leases = self._leased = {lease.key: lease for lease in await self._leases.list()}
        except LeaseStoreUnavailableError:
            return False
        listed = self._listed = {shard.shard_id: shard for shard in shards}
        with collapse_groups():
            async with trio.open_nursery() as nursery:
                for lease in catch_up.sync(shards, leases):
                    nursery.start_soon(self._probe, catch_up, lease, listed[lease.key])
        catch_up.sync(shards, leases)
        return catch_up.is_complete

    async def _probe(self, catch_up: CatchUp, lease: Lease, shard: Shard) -> None:
        walk = self._walks.get(lease.key)
        if walk is None or walk.checkpoint != lease.checkpoint:
            walk = self._walks[lease.key] = _Walk(lease.checkpoint)
        position = catch_up.position(lease)
        if walk.has_records or position is None:
            return
        async with self._calls:
            try:
                await self._read(catch_up, walk, position, shard)
            except (ServiceError, TransportError) as error:
                walk.iterator = None  # it may be too old
                if not (error.retryable or isinstance(error, ResourceNotFoundError)):  # the next listing will show it
                    raise

    async def _read(self, catch_up: CatchUp, walk: _Walk, position: Position, shard: Shard) -> None:
        control_plane = self._kinesis.control_plane
        iterator = walk.iterator or await control_plane.get_shard_iterator(shard.shard_id, position)
        read = await control_plane.get_records(iterator, _RECORDS)
        following = self._following(shard, read.records, walk.checkpoint)
        is_end = read.iterator is None
        if not catch_up.accept(shard.shard_id, following, read.millis_behind_latest, is_end=is_end):
            walk.iterator, walk.has_records = read.iterator, bool(following)

    def _following(self, shard: Shard, records: tuple[Record, ...], after: Checkpoint) -> list[Record]:
        """Return the user records after a checkpoint, as the relay hands them over."""
        ancestors = ancestor_ranges(shard.shard_id, self._leased, self._listed)
        deaggregator = Deaggregator(shard.shard_id, shard.hash_key_range, self._aggregates, ignore_events, ancestors)
        return [record for part in deaggregator.deaggregate(records, after) for record in part.records]
