"""Makes tasks wait until they may call SubscribeToShard: `protocol.pacing` decides, this module waits."""

from __future__ import annotations

import math
from typing import Protocol

import trio

from efo.protocol.pacing import Pacer


class PacesSubscribes(Protocol):
    """The part of `SubscribePacer` that the shards of one stream use."""

    async def acquire(self, shard_id: str, *, renewal: bool) -> float:
        """Wait until this shard may subscribe; return the seconds that it waited."""
        ...

    def succeeded(self, shard_id: str) -> None:
        """Record that a call was accepted: the service rejects the next one for 5 s."""
        ...


class SubscribePacer:
    """Limits the calls of SubscribeToShard of all shards of one consumer. `run` must be running.

    `budget`: calls per second (rule R6). The shards of several streams share it: see `of_stream`.
    """

    def __init__(self, budget: float) -> None:
        self._pacer = Pacer(budget)
        self._granted: dict[str, trio.Event] = {}
        self._changed = trio.Event()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Grant calls until cancelled."""
        task_status.started()
        while True:
            self._changed = trio.Event()
            shards, again_at = self._pacer.poll(trio.current_time())
            for shard_id in shards:
                self._granted.pop(shard_id).set()
            with trio.move_on_at(math.inf if again_at is None else again_at):
                await self._changed.wait()

    def of_stream(self, stream: str) -> PacesSubscribes:
        """Return the limiter of one of several streams, whose shards may have the ids of another one's shards."""
        return _StreamLimiter(self, stream)

    async def acquire(self, shard_id: str, *, renewal: bool) -> float:
        """Wait until this shard may subscribe; return the seconds that it waited."""
        since = trio.current_time()
        grant = self._granted[shard_id] = trio.Event()
        self._pacer.request(shard_id, since, renewal=renewal)
        self._changed.set()
        try:
            await grant.wait()
        except trio.Cancelled:
            if self._granted.get(shard_id) is grant:
                del self._granted[shard_id]
                self._pacer.withdraw(shard_id)
            raise
        return trio.current_time() - since

    def succeeded(self, shard_id: str) -> None:
        """Record that a call was accepted: the service rejects the next one for 5 s."""
        self._pacer.succeeded(shard_id, trio.current_time())


class _StreamLimiter:
    """The shards of one stream, under the budget of all."""

    def __init__(self, limiter: SubscribePacer, stream: str) -> None:
        self._limiter = limiter
        self._stream = stream

    async def acquire(self, shard_id: str, *, renewal: bool) -> float:
        return await self._limiter.acquire(f"{self._stream}/{shard_id}", renewal=renewal)

    def succeeded(self, shard_id: str) -> None:
        self._limiter.succeeded(f"{self._stream}/{shard_id}")
