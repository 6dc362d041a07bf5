"""The consumer: the nursery tree, and the only room that knows every part.

    connections (pool, subscribe gate)          outermost: lives until the last shard has stopped
      keeper (leases: renew, take, release)     never behind a handler (rule R10)
        shards: one task per shard that is held, may start (rule R1) and is not finished
          one reading of it, see `efo.consumer.shard_task`

Each nursery is left from the inside out: shards finish what they hold, the keeper releases their leases, the
connections close.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from math import inf

import trio

from efo.consumer.deaggregation import Deaggregator
from efo.consumer.shard_stream import ShardStream
from efo.consumer.shard_sync import ShardSync
from efo.consumer.shard_task import LAST_SAVE_TIMEOUT, ShardReader, ShardTask
from efo.errors import EfoError, IsolateShardError, LeaseError, LeaseLostError, ServiceError, ShardNotReadError
from efo.events import Observer, ShardFinished, ShardIsolated, ShardsCounted, ShardStarted, ShardStopped, ignore
from efo.exception_groups import collapse_groups
from efo.kinesis.client import Kinesis
from efo.kinesis.connection_pool import ConnectionPool
from efo.kinesis.registration import Registration
from efo.kinesis.shard_subscription import ShardSubscription
from efo.kinesis.subscribe_call import SubscribeCaller
from efo.kinesis.subscribe_limiter import SubscribeLimiter
from efo.leases.keeper import HeldLease, LeaseKeeper
from efo.leases.store import LeaseStore
from efo.model import Checkpoint, Lease, Position
from efo.protocol.lineage import startable
from efo.settings import ConsumerSettings

__all__ = ["Consumer", "ConsumerSettings", "ConsumerStatus", "ShardReader", "ShardStatus", "open_consumer"]


@dataclass(frozen=True, slots=True)
class ShardStatus:
    """A shard that this worker is reading. `millis_behind_latest` is None until its first event."""

    shard_id: str
    checkpoint: Checkpoint
    millis_behind_latest: int | None
    is_paused: bool = False


@dataclass(frozen=True, slots=True)
class ConsumerStatus:
    """A snapshot. `counts`: shards by state (waiting_parent, ready, consuming, finished), of all workers' leases.

    `parked`: shards that failed by themselves and that this worker leaves alone for now (rule R11).
    """

    consumer_active: bool
    is_stopping: bool
    shards: tuple[ShardStatus, ...]
    counts: dict[str, int]
    parked: tuple[str, ...] = ()


@asynccontextmanager
async def open_consumer(
    kinesis: Kinesis,
    store: LeaseStore,
    settings: ConsumerSettings,
    observer: Observer = ignore,
    *,
    rng: random.Random | None = None,
) -> AsyncIterator[Consumer]:
    """Find or register the fan-out consumer, wait until it is ACTIVE, and keep connections and leases.

    Leaving the context releases the leases. `rng` gives the jitter of renewals and retries. Raises EfoError.
    """
    registration = Registration(kinesis.control, settings.consumer or settings.application, observer)
    await registration.ensure()
    pool = ConnectionPool(
        kinesis.connect, address=kinesis.authority, stream_window=settings.stream_window, observer=observer
    )
    gate = SubscribeLimiter(settings.subscribes_per_second)
    consumer = Consumer(kinesis, store, settings, registration, pool, gate, observer, rng or random.Random())  # noqa: S311
    with collapse_groups():
        async with trio.open_nursery() as connections:
            await connections.start(pool.run)
            await connections.start(gate.run)
            async with trio.open_nursery() as keeping:
                await keeping.start(consumer.keeper.run)
                yield consumer
                keeping.cancel_scope.cancel()
            connections.cancel_scope.cancel()


class Consumer:
    """Reads the shards whose leases this worker holds; made by `open_consumer`."""

    def __init__(
        self,
        kinesis: Kinesis,
        store: LeaseStore,
        settings: ConsumerSettings,
        registration: Registration,
        pool: ConnectionPool,
        gate: SubscribeLimiter,
        observer: Observer,
        rng: random.Random,
    ) -> None:
        self.keeper = LeaseKeeper(
            store,
            settings.worker_id,
            failover_time=settings.failover_time,
            graceful_handoff=settings.graceful_handoff,
            handoff_timeout=settings.handoff_timeout,
            max_leases=settings.max_leases,
            scan_interval=settings.lease_scan_interval,
            by_throughput=settings.balance_by_throughput,
            observer=observer,
            on_change=self._wake,
            eligible=self._may_take,
        )
        self._kinesis = kinesis
        self._store = store
        self._settings = settings
        self._registration = registration
        self._gate = gate
        self._caller = SubscribeCaller(
            pool,
            sign=kinesis.sign,
            authority=kinesis.authority,
            scheme=kinesis.scheme,
            consumer_arn=lambda: registration.arn,
        )
        self._observer = observer
        self._rng = rng
        self._discovery = ShardSync(kinesis, store, settings, self.keeper, observer)
        self._started: set[str] = set()
        self._running: dict[str, ShardStream] = {}
        self._parked_until: dict[str, float] = {}
        self._stopping = False
        self._changed = trio.Event()

    async def run(self, read: ShardReader) -> None:
        """ShardReader shards, each in a task of its own that calls `read`, until `stop`.

        Nothing is skipped silently (rule R11), and what was acked is checkpointed first. A `read` that raises
        IsolateShardError stops its shard alone; any other exception of it ends it all. So does what the service refuses
        for good (KMS, access denied), unless `ConsumerSettings.park_faults`. Raises what `read` raises, and EfoError
        for what trying again cannot cure.
        """
        with collapse_groups():
            async with trio.open_nursery() as background:
                await background.start(self._discovery.run)
                async with trio.open_nursery() as shards:
                    while not self._stopping:
                        self._changed = trio.Event()
                        for held in self._to_start():
                            self._started.add(held.lease.key)
                            is_ours = self._settings.selects(held.lease) and not held.wanted.is_set()
                            shards.start_soon(self._read_shard if is_ours else self._give_back, held, read)
                        self._report_counts()
                        await self._changed.wait()
                background.cancel_scope.cancel()

    def stop(self) -> None:
        """Drain: shards stop at their next batch, finish what they hold, checkpoint and release; then `run` returns."""
        self._stopping = True
        self.keeper.stop_acquiring()
        for shard in self._running.values():
            shard.stop()
        self._wake()

    def pause(self, shard_id: str) -> None:
        """Hand out no more batches of a shard until `resume`; its lease is kept. Raises ShardNotReadError."""
        self._shard(shard_id).pause()

    def resume(self, shard_id: str) -> None:
        """Go on with a paused shard, without loss or repetition. Raises ShardNotReadError."""
        self._shard(shard_id).resume()

    def seek(self, shard_id: str, to: Checkpoint | Position) -> None:
        """Go on elsewhere in a shard: see `ShardStream.seek`. Raises ShardNotReadError."""
        self._shard(shard_id).seek(to)

    def status(self) -> ConsumerStatus:
        """Return what is going on now."""
        shards = tuple(
            ShardStatus(
                shard.shard_id,
                shard.progress.checkpoint or shard.checkpoint,
                shard.millis_behind_latest,
                shard.is_paused,
            )
            for shard in self._running.values()
        )
        parked = tuple(key for key in self._parked_until if self._is_parked(key))
        return ConsumerStatus(self._registration.is_active, self._stopping, shards, self._counts(), parked)

    def _shard(self, shard_id: str) -> ShardStream:
        if shard_id not in self._running:
            raise ShardNotReadError(f"{shard_id} is not being read by this worker: see status().shards")
        return self._running[shard_id]

    # --- which shards ------------------------------------------------------------------------------------

    def _may_start(self, lease: Lease) -> bool:
        return startable(lease, self.keeper.leases)

    def _may_take(self, lease: Lease) -> bool:
        return self._settings.selects(lease) and not self._is_parked(lease.key) and self._may_start(lease)

    def _is_parked(self, key: str) -> bool:
        return trio.current_time() < self._parked_until.get(key, -inf)

    def _to_start(self) -> list[HeldLease]:
        return [
            held
            for key, held in self.keeper.held.items()
            if key not in self._started and not held.lease.is_finished
            if held.wanted.is_set() or self._may_start(held.lease)
        ]

    def _counts(self) -> dict[str, int]:
        counts = dict.fromkeys(("waiting_parent", "ready", "consuming", "finished"), 0)
        for key, lease in self.keeper.leases.items():
            if lease.is_finished:
                counts["finished"] += 1
            elif key in self._started:
                counts["consuming"] += 1
            else:
                counts["ready" if self._may_start(lease) else "waiting_parent"] += 1
        return counts

    def _report_counts(self) -> None:
        self._observer(ShardsCounted(self._counts()))

    def _wake(self) -> None:
        self._changed.set()

    # --- one shard ---------------------------------------------------------------------------------------

    async def _read_shard(self, held: HeldLease, read: ShardReader) -> None:
        """Read one shard to its end, or until the consumer drains, the lease is lost or the shard fails (rule R11)."""
        shard_id = held.lease.key
        failure: Exception | None = None
        finished = False
        try:
            opened = partial(self._open, held)
            task = ShardTask(held, opened, self._settings, self.keeper, self._store, self._observer)
            finished = await task.run(read)
        except LeaseLostError:
            pass  # its new owner goes on from the last checkpoint
        except Exception as error:
            failure = error
            cooldown = self._cooldown(error)
            if cooldown is None:
                self._stopping = True  # everything ends: `run` must not begin a shard again on its way out
                raise
            await self._park(held, error, cooldown)
        finally:
            self._started.discard(shard_id)
            self._running.pop(shard_id, None)
            if finished:
                self._observer(ShardFinished(shard_id, held.lease.children))
            else:
                self._observer(ShardStopped(shard_id, _error_type(failure), _detail(failure)))
            self._wake()

    def _cooldown(self, error: Exception) -> float | None:
        """Return for how many seconds to leave a shard alone that failed so; None: everything is to stop."""
        match error:
            case IsolateShardError(cooldown=None):
                return self._settings.shard_cooldown
            case IsolateShardError(cooldown=cooldown):
                return cooldown
            case ServiceError() if self._settings.park_faults:
                return self._settings.shard_cooldown
            case _:
                return None

    async def _park(self, held: HeldLease, error: Exception, cooldown: float) -> None:
        """Release the lease of a shard that failed: another worker may have more luck, and this one later."""
        shard_id = held.lease.key
        self._parked_until[shard_id] = trio.current_time() + cooldown
        await self._give_back(held)
        self._observer(ShardIsolated(shard_id, cooldown, _error_type(error) or "", _detail(error)))

    async def _give_back(self, held: HeldLease, _read: ShardReader | None = None) -> None:
        """Release a lease; where the store does not let us, keep it alive no longer, so that it expires."""
        with trio.move_on_after(LAST_SAVE_TIMEOUT, shield=True), suppress(LeaseError):
            await held.release()
        held.give_up("released")
        self._started.discard(held.lease.key)

    def _initial_of(self, lease: Lease) -> Position:
        if lease.latest_at is not None:
            return Position.at_timestamp(lease.latest_at)
        return self._discovery.initial or self._settings.initial_position

    def _open(self, held: HeldLease, attempts: trio.Nursery) -> ShardStream:
        lease = held.lease
        shard = self._running[lease.key] = ShardStream(
            self._kinesis.stream,
            lease.key,
            lease.checkpoint,
            subscribe=lambda position: self._subscription(attempts, lease.key, position),
            initial=self._initial_of(lease),
            pin=self._discovery.pinned,
            deaggregator=Deaggregator(
                lease.key, self._discovery.range_of(lease), self._settings.aggregates, self._observer
            ),
            clock=self._kinesis.clock,
            observer=self._observer,
        )
        held.received = lambda: shard.bytes_received
        self._observer(ShardStarted(lease.key, lease.checkpoint))
        if (start := self._start_of(lease)) is not None:
            shard.seek(start)
        if self._stopping:
            shard.stop()
        return shard

    def _start_of(self, lease: Lease) -> Position | Checkpoint | None:
        """Ask where to begin a shard that was never read and that carries on none of our reading (rule R1)."""
        is_new = lease.checkpoint.is_sentinel and not any(parent in self.keeper.leases for parent in lease.parents)
        return self._settings.start_at(lease) if is_new and self._settings.start_at else None

    def _subscription(self, attempts: trio.Nursery, shard_id: str, position: Position) -> ShardSubscription:
        return ShardSubscription(
            attempts,
            shard_id,
            position,
            caller=self._caller,
            gate=self._gate,
            diagnose=lambda error: self._registration.diagnose(shard_id, error),
            rng=self._rng,
            timing=self._settings.timing,
            observer=self._observer,
        )


def _error_type(error: Exception | None) -> str | None:
    return None if error is None else str(getattr(error, "error_type", type(error).__name__))


def _detail(error: Exception | None) -> str:
    """Return what an error of ours says; what a reader's says may hold data."""
    return str(error) if isinstance(error, EfoError) else ""
