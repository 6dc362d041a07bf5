"""The batches of all shards of a consumer, one at a time, for an application that iterates over the consumer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final

import trio

from efo.consumer.shard_stream import ShardStream
from efo.model import Batch

Deliver = Callable[[Batch | None], object]
"""Passes a batch to the application; None: the iteration has ended."""


@dataclass(frozen=True, slots=True)
class _Offer:
    shard: ShardStream
    batch: Batch
    taken: trio.CancelScope


class Merge:
    """Reads every shard, and delivers a batch when one is wanted. All methods are called in the trio thread.

    Each shard offers one batch at a time, and reads on when it is taken. So memory is bound by the number of shards,
    and no shard waits for another one. `read` is the reader for `Consumer.run`.

    A shard whose batches are not all acked is kept after its last batch, until they are or the application leaves: a
    drain may come while it works on one.
    """

    def __init__(self) -> None:
        self._shards: Final[dict[str, ShardStream]] = {}
        self._offers: Final[dict[str, _Offer]] = {}  # in the order in which they came
        self._unacked_ends: Final[dict[str, trio.CancelScope]] = {}
        self._iterated: Final[set[str]] = set()
        self._is_draining = self._is_left = False
        self._deliver: Deliver | None = None

    async def read(self, shard: ShardStream) -> None:
        """Offer the batches of a shard; at its end, wait until the application has acked them all (rule R2)."""
        self._shards[shard.shard_id] = shard
        self._iterated.add(shard.shard_id)
        try:
            while await self._offer_next(shard):
                pass
            self._stop_iterating(shard)
            if shard.has_unacked and not self._is_left:
                with trio.CancelScope() as self._unacked_ends[shard.shard_id]:
                    await trio.sleep_forever()
        finally:
            self._stop_iterating(shard)
            self._unacked_ends.pop(shard.shard_id, None)
            self._offers.pop(shard.shard_id, None)
            del self._shards[shard.shard_id]

    def want(self, deliver: Deliver) -> None:
        """Call `deliver` with the next batch, as soon as there is one."""
        self._deliver = deliver
        self.match()
        self._end_if_drained()

    def match(self) -> None:
        """Deliver an offer, if a batch is wanted and its shard is not paused."""
        if self._deliver is None:
            return
        for offer in self._offers.values():
            if not offer.shard.is_paused and offer.shard.is_wanted(offer.batch):
                deliver, self._deliver = self._deliver, None
                del self._offers[offer.shard.shard_id]
                offer.taken.cancel()
                deliver(offer.batch)
                return

    def drain(self) -> None:
        """End the iteration when no shard has another batch, even if some are not acked yet."""
        self._is_draining = True
        self._end_if_drained()

    def leave(self) -> None:
        """Give up what is not acked: the application takes no more batches, and acks none."""
        self._is_left = True
        for end in self._unacked_ends.values():
            end.cancel()

    def ack(self, batch: Batch, ack: Callable[[ShardStream], None]) -> None:
        """Ack by `ack`. No effect if the shard was lost since, or the batch is not in flight."""
        shard = self._shards.get(batch.shard_id)
        if shard is None or not shard.is_in_flight(batch):
            return
        ack(shard)
        if not shard.has_unacked and (end := self._unacked_ends.get(batch.shard_id)) is not None:
            end.cancel()

    def _stop_iterating(self, shard: ShardStream) -> None:
        self._iterated.discard(shard.shard_id)
        self._end_if_drained()

    def _end_if_drained(self) -> None:
        if self._is_draining and not self._iterated and self._deliver is not None:
            deliver, self._deliver = self._deliver, None
            deliver(None)

    async def _offer_next(self, shard: ShardStream) -> bool:
        """Offer the next batch until it is taken; return whether there was one.

        After a seek or in a drain it is withdrawn. No variable has it afterwards: idle shards would hold much memory.
        """
        batch = await anext(shard, None)
        if batch is None:
            return False
        with trio.CancelScope() as taken:
            self._offers[shard.shard_id] = _Offer(shard, batch, taken)
            self.match()
            await shard.wait(batch, inf)
            self._offers.pop(shard.shard_id, None)
        return True
