"""Finds the stream's shards and creates the leases that are missing, now and every so often (AWS: ListShards)."""

from __future__ import annotations

from dataclasses import replace

import trio

from efo.errors import LeaseStoreUnavailableError, ServiceError, TransportError
from efo.events import Observer, ShardSyncFailed
from efo.kinesis.client import Kinesis
from efo.leases.keeper import LeaseKeeper
from efo.leases.store import LeaseStore
from efo.model import LATEST, Position, PositionType
from efo.protocol.lineage import leases_to_create
from efo.settings import ConsumerSettings


class Discovery:
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

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look until cancelled. Raises EfoError: whatever fails at first, later only what is damaged."""
        started = False
        while True:
            try:
                await self._look()
            except (ServiceError, TransportError, LeaseStoreUnavailableError) as error:
                # At the start a failure is the operator's to see; later the shards that we know go on.
                if not started:
                    raise
                self._observer(ShardSyncFailed(error.error_type, str(error)))
            if not started:
                started = True
                task_status.started()
            await trio.sleep(self._settings.shard_sync_interval)

    def pinned(self, position: Position) -> Position:
        """Return LATEST as the time it is now, by the service's clock (rule R4).

        So that a first connection that fails skips nothing.
        """
        if position.type is not PositionType.LATEST:
            return position
        return Position.at_timestamp((self._kinesis.service_time or self._kinesis.clock)())

    async def _look(self) -> None:
        shards = await self._kinesis.control.list_shards()
        if self.initial is None:
            self.initial = self.pinned(self._settings.initial_position)
        leases = {lease.key: lease for lease in await self._store.list()}
        for lease in leases_to_create(shards, leases, self._settings.initial_checkpoint):
            latest_at = self.pinned(Position.latest()).timestamp if lease.checkpoint == LATEST else None
            await self._store.create(replace(lease, latest_at=latest_at))
        self._keeper.wake()
