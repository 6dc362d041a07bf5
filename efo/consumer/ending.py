"""How a consumer ends: by itself, when its shards were read up to where it is to end; by its time; or by an error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Protocol

import trio

from efo.consumer.shard_stream import ShardStream
from efo.consumer.shard_sync import ShardSync
from efo.errors import EfoError, HandlerError, IsolateShardError, class_name_of, error_type_of
from efo.events import ConsumerFailed
from efo.leases.coordinator import LeaseCoordinator
from efo.model import Lease
from efo.protocol.until import ShardLimit, Until
from efo.third_party_errors import places_of

TWO_READERS: Final = (
    "this consumer is read already, by another run or an iteration: read it once, with one reader, or open another"
    " consumer of the same application, which shares the shards"
)
CLOSED: Final = "this consumer is closed: use it within the `async with` block that opened it"


class Drains(Protocol):
    """What can be drained: a consumer of one stream or of many."""

    def drain(self) -> None:
        """Stop at the next batch of each shard."""


async def drain_after(seconds: float, consumer: Drains) -> None:
    """Drain a consumer when its time is over."""
    await trio.sleep(seconds)
    consumer.drain()


def failure_of(error: Exception) -> ConsumerFailed:
    """Return what is reported of an error that ends a consumer."""
    return ConsumerFailed(type_of(error), detail_of(error), places_of(error))


def type_of(error: Exception) -> str:
    """Return the type of an error; of one that isolates a shard because of another error, the type of that one."""
    cause = error.__cause__ if isinstance(error, IsolateShardError) else None
    return error_type_of(error if cause is None else cause)


def detail_of(error: Exception) -> str:
    """Return the text of an error of efo. That of an application's exception may contain data."""
    if isinstance(error, HandlerError) and error.__cause__ is not None:
        return f"the application's code does not fit efo: {class_name_of(error.__cause__)}"
    return str(error) if isinstance(error, EfoError) else ""


class Completion:
    """What was read of all shards that are this worker's to read.

    A shard that another worker reads is that worker's; one whose parents are unfinished follows from them. Every other
    one counts, also while nobody reads it: one that a crashed worker held, or that is isolated, is waited for.

    `until`: where the consumer is to end; None: it ends when it is drained. `selects`: whether a shard is to be read.
    `may_start`: whether its parents are finished. `running`: the shards that are being read.
    """

    def __init__(
        self,
        until: Until | None,
        coordinator: LeaseCoordinator,
        shard_sync: ShardSync,
        *,
        running: Mapping[str, ShardStream],
        selects: Callable[[Lease], bool],
        may_start: Callable[[Lease], bool],
    ) -> None:
        self._until = until
        self._coordinator = coordinator
        self._shard_sync = shard_sync
        self._running = running
        self._selects = selects
        self._may_start = may_start
        self._left: dict[str, bool] = {}  # shards that were read up to there, and whether all of that was acked
        self._finished_after = 0  # how many lease scans had begun when a shard was finished
        self._known_finished: frozenset[str] | None = None

    @property
    def ends(self) -> bool:
        """Whether the consumer is to end by itself."""
        return self._until is not None

    def limit(self, shard_id: str) -> ShardLimit | None:
        """Return where the reading of a shard ends."""
        return None if self._until is None else ShardLimit(self._until, partial(self._shard_sync.is_closed, shard_id))

    def is_left(self, key: str) -> bool:
        """Return whether a shard was read up to there, so that it is not to be read again."""
        return key in self._left

    def leave(self, shard: ShardStream) -> None:
        """Note that a shard is no longer read."""
        if shard.is_finished:
            self._finished_after = self._coordinator.scans_begun
        elif shard.is_complete:
            self._left[shard.shard_id] = not shard.has_unacked

    @property
    def is_complete(self) -> bool:
        """Whether everything was delivered up to where the consumer is to end; False if it is not to end."""
        return self._until is not None and self._covers(lambda shard: shard.is_complete, lambda _acked: True)

    @property
    def is_caught_up(self) -> bool:
        """Whether everything was delivered and acked: up to where the consumer is to end, or else up to the tip."""

        def is_done(shard: ShardStream) -> bool:
            if self._until is not None:
                return shard.is_complete and not shard.has_unacked
            is_at_tip = shard.is_at_tip and not self._shard_sync.is_closed(shard.shard_id)
            return is_at_tip and not shard.has_unacked

        return self._covers(is_done, lambda acked: acked)

    def _covers(self, is_done: Callable[[ShardStream], bool], is_left_done: Callable[[bool], bool]) -> bool:
        """Return whether nothing is left to do. `is_done`: for a shard that is read; the other: that was left."""
        if self._coordinator.scanned <= max(self._shard_sync.synced_after, self._finished_after):
            return False  # there may be leases that it did not see
        leases = self._coordinator.leases
        if self._known_finished is None:
            self._known_finished = frozenset(key for key, lease in leases.items() if lease.is_finished)
        return all(self._is_covered(lease, is_done, is_left_done) for lease in leases.values())

    def _is_covered(
        self, lease: Lease, is_done: Callable[[ShardStream], bool], is_left_done: Callable[[bool], bool]
    ) -> bool:
        key = lease.key
        if lease.is_finished:  # a scan that is not one step may show its end before the leases of its children
            is_known = self._known_finished is not None and key in self._known_finished
            return is_known or all(child in self._coordinator.leases for child in lease.children)
        if (shard := self._running.get(key)) is not None:
            return is_done(shard)
        if key in self._left:
            return is_left_done(self._left[key])
        if not self._selects(lease) or self._coordinator.is_of_another(lease):
            return True
        return not self._may_start(lease)
