"""The batches of all shards of a consumer, one at a time, for an application that iterates over the consumer."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from threading import get_ident
from typing import Final

import trio

from efo.consumer.shard_stream import ShardStream
from efo.model import Batch


class Offer:
    """A batch that the application may take. `is_taken`: set by the application's thread."""

    __slots__ = ("batch", "is_taken", "shard", "taken")

    def __init__(self, shard: ShardStream, batch: Batch, taken: trio.CancelScope) -> None:
        self.shard: Final = shard
        self.batch: Final = batch
        self.taken: Final = taken
        self.is_taken = False

    @property
    def is_open(self) -> bool:
        """Whether it may be taken: not after a seek, in a drain, or while the shard is paused."""
        return not self.is_taken and not self.shard.is_paused and self.shard.is_wanted(self.batch)


_Key = tuple[str, str]


def _key(of: ShardStream | Batch) -> _Key:
    """Return the stream and the shard: streams have shards of the same ids."""
    return of.stream, of.shard_id


class Merge:
    """Reads every shard, and offers the batches to an application that takes them from another thread.

    Each shard offers one batch at a time, and reads on when it is taken. So memory is bound by the number of shards,
    and no shard waits for another one. `read` is the reader for `Consumer.run`. `post`: calls a function in the trio
    thread. `on_change`: called there when there may be an offer to take, or the iteration has ended. `taking`: by
    thread, an offer that is taken, and that the application may not have yet.

    An offer is taken without asking the trio thread. A seek or a drain that comes at the same moment counts as one that
    came afterwards: the batch is delivered, and its acks have no effect or count, as for any batch that is in process.

    A shard whose batches are not all acked is kept after its last batch, until they are or the application leaves: a
    drain may come while it works on one.
    """

    def __init__(self, post: Callable[..., object]) -> None:
        self.on_change: Callable[[], object] = _nothing
        self.has_ended = False
        self._post = post
        self.taking: Final[dict[int, Offer | None]] = {}
        self._shards: Final[dict[_Key, ShardStream]] = {}
        self._offers: Final[dict[_Key, Offer]] = {}  # in the order in which they came
        self._unacked_ends: Final[dict[_Key, trio.CancelScope]] = {}
        self._withdrawn: Final[dict[_Key, Batch]] = {}  # the last offer of a shard, if nobody took it
        self._iterated: Final[set[_Key]] = set()
        self._is_draining = self._is_left = False

    # --- in the application's thread ---------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether `take` has a batch, or the iteration has ended."""
        return self.has_ended or self._first() is not None

    def take(self) -> Batch | None:
        """Take the oldest batch; None if there is none now. One thread takes at a time.

        The caller sets its `taking` to None when it returns the batch. If Ctrl-C comes before, its next call has it
        again.
        """
        offer = self.taking.get(get_ident())
        if offer is None or not offer.shard.is_wanted(offer.batch):
            offer = self._first()
            if offer is None:
                return None
            self.taking[get_ident()] = offer
        offer.is_taken = True
        self._post(offer.taken.cancel)  # its shard reads on
        return offer.batch

    def _first(self) -> Offer | None:
        for offer in list(self._offers.values()):  # one step of the interpreter, whatever the trio thread does
            if offer.is_open:
                return offer
        return None

    # --- in the trio thread ------------------------------------------------------------------------------------------

    async def read(self, shard: ShardStream) -> None:
        """Offer the batches of a shard; at its end, wait until the application has acked them all (rule R2)."""
        self._shards[_key(shard)] = shard
        self._iterated.add(_key(shard))
        try:
            while await self._offer_next(shard):
                pass
            self._stop_iterating(shard)
            if self._awaits_acks(shard) and not self._is_left:
                with trio.CancelScope() as self._unacked_ends[_key(shard)]:
                    await trio.sleep_forever()
        finally:
            self._stop_iterating(shard)
            self._unacked_ends.pop(_key(shard), None)
            self._offers.pop(_key(shard), None)
            self._withdrawn.pop(_key(shard), None)
            del self._shards[_key(shard)]

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
        shard = self._shards.get(_key(batch))
        if shard is None or not shard.is_in_flight(batch):
            return
        ack(shard)
        if not self._awaits_acks(shard) and (end := self._unacked_ends.get(_key(batch))) is not None:
            end.cancel()

    def _awaits_acks(self, shard: ShardStream) -> bool:
        """Return whether the application has a batch of the shard that it did not ack."""
        withdrawn = self._withdrawn.get(_key(shard))
        return shard.has_unacked if withdrawn is None else shard.has_unacked_besides(withdrawn)

    def _stop_iterating(self, shard: ShardStream) -> None:
        self._iterated.discard(_key(shard))
        self._end_if_drained()

    def _end_if_drained(self) -> None:
        if self._is_draining and not self._iterated:
            self.has_ended = True
            self.on_change()

    async def _offer_next(self, shard: ShardStream) -> bool:
        """Offer the next batch until it is taken; return whether there was one.

        After a seek or in a drain it is withdrawn. Otherwise no variable has it afterwards: idle shards would hold much
        memory.
        """
        batch = await anext(shard, None)
        if batch is None:
            return False
        with trio.CancelScope() as taken:
            offer = self._offers[_key(shard)] = Offer(shard, batch, taken)
            self._withdrawn.pop(_key(shard), None)
            self.on_change()
            await shard.wait(batch, inf)
        self._offers.pop(_key(shard), None)
        if not offer.is_taken:
            self._withdrawn[_key(shard)] = batch
        return True


def _nothing() -> None:
    pass
