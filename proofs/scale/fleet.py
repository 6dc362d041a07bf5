"""A fleet of real consumers under virtual time: a cold start, the loss of a third of the workers, twice the shards."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

import trio

from efo.consumer.opening import open_consumer
from efo.consumer.shard_stream import ShardStream
from efo.events import LeaseLost, ShardSyncFailed, StartDelayed, SubscribeAttempted
from efo.settings import ConsumerSettings
from efo.testing import FakeKinesis, FakeSettings
from proofs.scale.service import LimitedService
from proofs.scale.table import Capacity, LeaseTable, WorkerTable

STREAM: Final = "orders"
PATIENCE: Final = 1200.0
"""Seconds after which a phase is given up, and reported as such."""
PROGRESS_SECONDS: Final = 2.0
STEADY_SECONDS: Final = 30.0
"""How long the fleet is watched while nothing happens, after as long in which it has become calm."""
_OBSERVED: Final = (SubscribeAttempted, LeaseLost, ShardSyncFailed, StartDelayed)


@dataclass(frozen=True, slots=True)
class Size:
    """A fleet. `lost`: how many workers are killed at once, a third of them."""

    shards: int
    workers: int
    failover_seconds: float = 10.0
    capacity: Capacity = field(default_factory=Capacity)

    @property
    def lost(self) -> int:
        """How many workers are killed."""
        return max(1, self.workers // 3)


@dataclass(slots=True)
class _Worker:
    table: WorkerTable
    scope: trio.CancelScope


class Fleet:
    """Consumers on one stream. `reading`: the worker that last subscribed to a shard, by shard id."""

    def __init__(self, size: Size) -> None:
        self._size = size
        self._table = LeaseTable(size.capacity)
        self._workers: dict[str, _Worker] = {}
        self._reading: dict[str, str] = {}
        self._missing: set[str] = set()
        self._is_read = trio.Event()
        self._half_at = inf
        self._half = 0
        self._seen: Counter[str] = Counter()

    async def run(self, phases: MutableMapping[str, Any]) -> None:
        """Run all phases; add the figures of each when it is over."""
        settings = FakeSettings(throttle=False, consumer_creating=1.0)
        async with FakeKinesis(settings=settings) as fake:
            fake.create_stream(STREAM, self._size.shards)
            service = LimitedService(fake, STREAM)
            async with trio.open_nursery() as nursery:
                for number in range(self._size.workers):
                    nursery.start_soon(self._work, f"worker-{number:03}", service)
                nursery.start_soon(self._tell)
                phases["cold_start"] = await self._phase(service, fake.open_shards(STREAM), lambda: None)
                phases["steady"] = await self._steady(service)
                lost = sorted(self._workers)[: self._size.lost]
                orphans = [shard for shard, worker in self._reading.items() if worker in lost]
                phases["a_third_lost"] = await self._phase(service, orphans, lambda: self._kill(lost))
                before = set(fake.open_shards(STREAM))
                fake.scale(STREAM, 2 * self._size.shards)
                new = set(fake.open_shards(STREAM)) - before
                phases["twice_the_shards"] = await self._phase(service, new, lambda: None)
                nursery.cancel_scope.cancel()

    # --- workers --------------------------------------------------------------------------------------------------

    async def _work(self, name: str, service: LimitedService) -> None:
        rng = random.Random(name)  # noqa: S311 - jitter
        with trio.CancelScope() as scope:
            worker = self._workers[name] = _Worker(self._table.of_worker(), scope)
            await trio.sleep(rng.random())
            opening = open_consumer(
                service.client(),
                application="scale",
                leases=worker.table,
                worker_id=name,
                settings=ConsumerSettings(failover_seconds=self._size.failover_seconds),
                observer=_Observer(name, self._observe),
                rng=rng,
            )
            async with opening as consumer:
                await consumer.run(_read)

    def _kill(self, names: Iterable[str]) -> None:
        for name in names:
            worker = self._workers.pop(name)
            worker.table.is_dead = True
            worker.scope.cancel()

    async def _tell(self) -> None:
        """Tell on stderr how far it is: a large fleet takes minutes."""
        while True:
            unread = f"{len(self._missing):,} shards to be read"
            sys.stderr.write(f"\r{trio.current_time():.0f} s of virtual time: {unread}   ")
            sys.stderr.flush()
            await trio.sleep(PROGRESS_SECONDS)

    def _observe(self, worker: str, event: object) -> None:
        self._seen[type(event).__name__] += 1
        if not isinstance(event, SubscribeAttempted):
            return
        if event.error_type is not None:
            self._seen[f"refused: {event.error_type}"] += 1
            return
        self._reading[event.shard_id] = worker
        self._missing.discard(event.shard_id)
        if self._half_at == inf and len(self._missing) <= self._half:
            self._half_at = trio.current_time()
        if not self._missing:
            self._is_read.set()

    # --- phases ---------------------------------------------------------------------------------------------------

    async def _phase(self, service: LimitedService, shards: Iterable[str], begin: Callable[[], None]) -> dict[str, Any]:
        """Begin something; return how long it takes until these shards are read, and until the shares are even."""
        self._missing, self._is_read, self._half_at = set(shards), trio.Event(), inf
        self._half = len(self._missing) // 2
        wanted, before, started = len(self._missing), self._counts(service), trio.current_time()
        begin()
        with trio.move_on_after(PATIENCE):
            await self._is_read.wait()
        read_at = trio.current_time()
        even_at = await self._even()
        calls = self._counts(service) - before
        writes, reads = self._table.write_units, self._table.read_units
        return {
            "shards": wanted,
            "half_read_s": round(self._half_at - started, 1) if self._half_at < inf else None,
            "all_read_s": round(read_at - started, 1) if self._is_read.is_set() else None,
            "unread": len(self._missing),
            "even_s": None if even_at is None else round(even_at - started, 1),
            "most_write_units_in_a_second": round(_most(writes, started, read_at)),
            "most_read_units_in_a_second": round(_most(reads, started, read_at)),
            "calls": dict(sorted(calls.items())),
        }

    async def _even(self) -> float | None:
        """Wait until no worker has more than one lease more than another; return when. None: not within PATIENCE."""
        until = trio.current_time() + PATIENCE
        while trio.current_time() < until:
            rows = [row for row in self._table.rows() if not row.is_finished]
            held = Counter(dict.fromkeys(self._workers, 0))
            held.update(row.owner for row in rows if row.owner is not None)
            if max(held.values()) - min(held.values()) <= 1 and all(row.checkpoint_owner is None for row in rows):
                return trio.current_time()
            await trio.sleep(1.0)
        return None

    async def _steady(self, service: LimitedService) -> dict[str, Any]:
        """Return what the fleet does each second while nothing happens."""
        await trio.sleep(STEADY_SECONDS)
        before, units = self._counts(service), dict(self._table.units)
        await trio.sleep(STEADY_SECONDS)
        calls = self._counts(service) - before
        used = {name: total - units.get(name, 0.0) for name, total in self._table.units.items()}
        reads = used.get("scan", 0.0) + used.get("get", 0.0)
        return {
            "writes_per_s": round((sum(used.values()) - reads) / STEADY_SECONDS, 2),
            "read_units_per_s": round(reads / STEADY_SECONDS, 2),
            "scans_per_worker_per_minute": round(self._scans(calls) / STEADY_SECONDS * 60, 2),
            "calls": dict(sorted(calls.items())),
        }

    def _scans(self, calls: Counter[str]) -> float:
        return calls["table: scan"] / self._table.pages / self._size.workers

    def _counts(self, service: LimitedService) -> Counter[str]:
        counts = Counter({f"table: {name}": count for name, count in self._table.calls.items()})
        counts.update({f"table throttled: {name}": count for name, count in self._table.throttled.items()})
        counts.update(service.calls)
        counts.update({f"throttled: {name}": count for name, count in service.throttled.items()})
        return counts + self._seen


class _Observer:
    """Passes a few kinds of events on, with the name of the worker."""

    def __init__(self, worker: str, observe: Callable[[str, object], None]) -> None:
        self._worker = worker
        self._observe = observe

    def observes(self, event_type: type) -> bool:
        """Whether events of this type are wanted."""
        return event_type in _OBSERVED

    def __call__(self, event: object) -> None:
        """Pass an event on."""
        if isinstance(event, _OBSERVED):
            self._observe(self._worker, event)


async def _read(shard: ShardStream) -> None:
    async for batch in shard:
        shard.ack(batch)


def _most(units: Mapping[int, float], started: float, ended: float) -> float:
    return max((count for second, count in units.items() if started <= second + 1 and second <= ended), default=0.0)
