"""The task that reads one shard, from a held lease to the end of the shard, a drain, or a failure.

idle watch
  attempts of the subscription
    the reader

The coordinator saves the progress meanwhile, with the renewals of the lease.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

import trio

from efo.consumer.shard_stream import ShardStream
from efo.errors import EfoError, HandlerError, LeaseError
from efo.exception_groups import collapse_groups
from efo.leases.coordinator import HeldLease, LeaseCoordinator
from efo.leases.store import LeaseStore
from efo.model import Checkpoint
from efo.protocol.lineage import child_leases
from efo.retrying import retry
from efo.settings import ConsumerSettings

ShardReader = Callable[[ShardStream], Awaitable[None]]
"""An async function that reads one shard until its iteration ends, and acks what it has processed."""

STORE_RETRY_INTERVAL: Final = 0.5
"""Seconds between two attempts of a write that the lease store could not perform."""
LAST_SAVE_TIMEOUT: Final = 2.0
"""Seconds for the last write about a shard after its task has failed or was cancelled."""


class ShardTask:
    """Reads the shard of `held`. `open_shard` makes its stream; the attempts of its subscription run in the nursery."""

    def __init__(
        self,
        held: HeldLease,
        open_shard: Callable[[trio.Nursery], ShardStream],
        settings: ConsumerSettings,
        coordinator: LeaseCoordinator,
        store: LeaseStore,
    ) -> None:
        self._held = held
        self._open_shard = open_shard
        self._settings = settings
        self._coordinator = coordinator
        self._store = store

    async def run(self, reader: ShardReader) -> bool:
        """Read the shard until the reader returns; return whether the shard has ended.

        Without an exception the shard is then checkpointed, and finished or released. What was acked is saved in any
        case. Returns False as well when the lease was lost. Raises what `reader` raises.
        """
        finished = False
        with collapse_groups():
            async with trio.open_nursery() as nursery:
                shard: ShardStream | None = None
                try:
                    async with trio.open_nursery() as attempts:
                        shard = self._open_shard(attempts)
                        # A requested lease is drained: its next owner then continues without repeating anything.
                        lost = partial(_lose, shard, nursery.cancel_scope)
                        self._held.watch(on_lost=lost, on_handoff_requested=shard.drain)
                        nursery.start_soon(shard.unsubscribe_when_idle, self._settings.unsubscribe_idle_seconds)
                        await reader(shard)
                        _check_iterated(shard)
                        attempts.cancel_scope.cancel()
                    await _retry_until_written(self._held.save)
                except BaseException:
                    if shard is not None:
                        await self._save_at_last()
                    raise
                finished = await self._after_reading(shard)
                nursery.cancel_scope.cancel()
        return finished

    async def _save_at_last(self) -> None:
        """Save what was acked after a failure or a cancellation, so that less is repeated."""
        if self._held.lost.is_set():
            return
        with trio.move_on_after(LAST_SAVE_TIMEOUT, shield=True), suppress(LeaseError):
            await self._held.save()

    async def _after_reading(self, shard: ShardStream) -> bool:
        """Finish a shard that was read to its end, otherwise release it; return which. What was acked is saved already.

        Each write is repeated until the store performs it. If that takes too long, the coordinator gives up the lease,
        which cancels this task.
        """
        if not shard.is_finished or (shard.is_draining and shard.has_unacked):
            await _retry_until_written(self._held.release)
            return False
        if shard.has_unacked:
            raise EfoError(
                f"{shard.shard_id} was read to its end, but its reader returned without acking the last batches: "
                "ack each batch, or raise; a handler that returns HOLD needs a flush function"
            )
        # Rule R2, in this order: after a crash between any two steps, the next reader of the shard's end repeats them.
        # The lease is confirmed first: a worker that was suspended must not create the children's leases again after
        # these have been finished and deleted.
        await _retry_until_written(self._held.confirm)
        children = shard.children or ()
        created_at = self._held.lease.stream_created_at
        for new in child_leases(children, self._coordinator.leases):
            child = replace(new, unread_since=shard.unread.was_open_at, stream_created_at=created_at)
            await _retry_until_written(partial(self._store.create, child))
        await _retry_until_written(lambda: self._held.save_children(tuple(child.shard_id for child in children)))
        await _retry_until_written(lambda: self._held.checkpoint(Checkpoint.SHARD_END))
        self._coordinator.wake()
        return True


def _lose(shard: ShardStream, scope: trio.CancelScope) -> None:
    shard.is_lost = True
    scope.cancel()


def _check_iterated(shard: ShardStream) -> None:
    """Refuse a reader that returns early: its lease would be released and taken again without end."""
    if not (shard.has_ended or shard.is_draining):
        raise HandlerError(
            f"{shard.shard_id}: the reader returned before its iteration over the shard ended: iterate to the end, or "
            "raise IsolateShardError to release the shard"
        )


async def _retry_until_written(write: Callable[[], Awaitable[object]]) -> None:
    """Write to the lease store, and retry while it is unavailable: a short outage must not end all shards."""
    await retry(write, lambda: STORE_RETRY_INTERVAL)
