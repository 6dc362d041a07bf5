"""Subscriptions to the shards of a load: the same rules, but events are generated, not stored."""

from __future__ import annotations

from bisect import bisect_right
from itertools import count
from typing import Final

import trio

from efo.model import Position
from efo.testing.state.consumers import ConsumerState
from efo.testing.state.core import Core
from efo.testing.state.shards import ShardState
from efo.testing.state.streams import StreamState, hash_key_of
from efo.testing.state.subscriptions import FakeSubscription, Slot, SubscriptionCounts, Subscriptions
from proofs.load.settings import Load
from proofs.load.shard import LoadShard

KEYS_PER_SHARD: Final = 16


class LoadSubscriptions(Subscriptions):
    """Accepts or rejects subscribes. Subscriptions to streams of the load receive generated events."""

    def __init__(self, core: Core, load: Load) -> None:
        super().__init__(core)
        self._load = load
        self._keys: dict[str, dict[str, list[str]]] = {}
        self._shards: dict[tuple[str, str], LoadShard] = {}

    def _start(
        self,
        stream: StreamState,
        shard: ShardState,
        consumer: ConsumerState,
        slot: Slot,
        counts: SubscriptionCounts,
        position: Position,
    ) -> FakeSubscription:
        if stream.name not in self._load.shards:
            return super()._start(stream, shard, consumer, slot, counts, position)
        log = self._log(stream, shard)
        event, first = log.find(position)
        return LoadSubscription(self._core, shard, consumer, slot, counts, log, event, first)

    def _log(self, stream: StreamState, shard: ShardState) -> LoadShard:
        log = self._shards.get((stream.name, shard.id))
        if log is None:
            keys = self._keys_of(stream, shard)
            log = self._shards[stream.name, shard.id] = LoadShard(shard, self._load, keys, self._core.clock)
        return log

    def _keys_of(self, stream: StreamState, shard: ShardState) -> list[str]:
        """Return partition keys of this shard. They are searched once for all open shards of the stream."""
        keys = self._keys.setdefault(stream.name, {})
        if shard.id not in keys:
            keys.update(_find_keys(stream.open_shards if shard.is_open else [shard]))
        return keys[shard.id]


class LoadSubscription(FakeSubscription):
    """The messages of one subscription to a shard of a load."""

    def __init__(
        self,
        core: Core,
        shard: ShardState,
        consumer: ConsumerState,
        slot: Slot,
        counts: SubscriptionCounts,
        log: LoadShard,
        event: int,
        first: int,
    ) -> None:
        super().__init__(core, shard, consumer, slot, counts, event)
        self._log = log
        self._first = first

    def _has_backlog(self) -> bool:
        return self._log.has(self._index)

    def _records_event(self, now: float) -> bytes:
        message = self._log.render(self._index, self._first)
        self._index += 1
        self._first = 0
        self._idle_at = now + self._settings.idle_interval
        return message

    def _next_deadline(self) -> float:
        arrival = self._log.arrival(self._index)
        due = float("inf") if arrival is None else trio.current_time() + max(0.0, arrival - self._core.clock())
        return min(super()._next_deadline(), due)


def _find_keys(shards: list[ShardState]) -> dict[str, list[str]]:
    """Return partition keys for each of these shards, all of the same length. Every run finds the same keys."""
    shards = sorted(shards, key=lambda shard: shard.start)
    starts = [shard.start for shard in shards]
    keys: dict[str, list[str]] = {shard.id: [] for shard in shards}
    missing = len(shards) * KEYS_PER_SHARD
    for number in count():
        if not missing:
            break
        key = f"key-{number:010}"
        hash_key = hash_key_of(key)
        at = bisect_right(starts, hash_key) - 1
        if at < 0 or hash_key > shards[at].end:
            continue
        found = keys[shards[at].id]
        if len(found) < KEYS_PER_SHARD:
            found.append(key)
            missing -= 1
    return keys
