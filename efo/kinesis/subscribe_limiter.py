"""Makes tasks wait until pacing lets them subscribe: `protocol.pacing` decides, this waits."""

from __future__ import annotations

import math

import trio

from efo.protocol.pacing import Pacer


class SubscribeLimiter:
    """Admits one subscribe after the other, for all shards of one consumer. `run` must be running.

    `budget`: subscribes per second (rule R6).
    """

    def __init__(self, budget: float) -> None:
        self._pacer = Pacer(budget)
        self._admitted: dict[str, trio.Event] = {}
        self._changed = trio.Event()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Admit until cancelled."""
        task_status.started()
        while True:
            self._changed = trio.Event()
            granted, again_at = self._pacer.poll(trio.current_time())
            for shard_id in granted:
                self._admitted.pop(shard_id).set()
            with trio.move_on_at(math.inf if again_at is None else again_at):
                await self._changed.wait()

    async def admit(self, shard_id: str, *, renewal: bool) -> float:
        """Wait until this shard may subscribe; return how long that took, in seconds."""
        since = trio.current_time()
        admitted = self._admitted[shard_id] = trio.Event()
        self._pacer.request(shard_id, since, renewal=renewal)
        self._changed.set()
        try:
            await admitted.wait()
        except trio.Cancelled:
            if self._admitted.get(shard_id) is admitted:
                del self._admitted[shard_id]
                self._pacer.withdraw(shard_id)
            raise
        return trio.current_time() - since

    def succeeded(self, shard_id: str) -> None:
        """Take note that a subscribe was accepted: the service refuses the next one for 5 s."""
        self._pacer.succeeded(shard_id, trio.current_time())
