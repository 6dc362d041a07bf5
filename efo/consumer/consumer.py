"""The consumer: which shards it reads, and what it does with each. Opened by `efo.consumer.opening`."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from heapq import nsmallest
from math import inf
from typing import TYPE_CHECKING, Final

import trio
from msgspec.structs import replace

from efo.checks import check_async
from efo.consumer.advice import Advice
from efo.consumer.age_limits import limits_of
from efo.consumer.deaggregator import Deaggregator
from efo.consumer.ending import CLOSED, TWO_READERS, Completion, detail_of, drain_after, failure_of, type_of
from efo.consumer.expired_records import ExpiredRecords
from efo.consumer.handlers.misuse import check_no_handler, check_surface
from efo.consumer.shard_sources import ShardSources
from efo.consumer.shard_stream import ShardStream
from efo.consumer.shard_sync import ShardSync
from efo.consumer.shard_task import LAST_SAVE_TIMEOUT, ShardReader, ShardTask
from efo.consumer.status import ConsumerStatus, status_of
from efo.errors import (
    ConfigurationError,
    IsolateShardError,
    LeaseError,
    LeaseLostError,
    ResourceNotFoundError,
    ServiceError,
    ShardNotReadError,
)
from efo.events import (
    Observer,
    ShardFinished,
    ShardIsolated,
    ShardsCounted,
    ShardStarted,
    ShardStopped,
)
from efo.exception_groups import collapse_groups, shorten
from efo.health import IsolatedShard, LeaseCounts, ShardReading
from efo.kinesis.client import KinesisClient
from efo.kinesis.identity import StreamIdentity
from efo.leases.coordinator import HeldLease, LeaseCoordinator
from efo.leases.store import LeaseStore
from efo.model import Checkpoint, Lease, Position, Shard
from efo.protocol.joint_assignment import TableAssignment
from efo.protocol.lineage import has_lineage, is_startable
from efo.protocol.until import Until
from efo.settings import ConsumerSettings, OnServiceError, PositionLike, parse_position, pinned

if TYPE_CHECKING:
    from efo.telemetry.spans import Spans

MAX_PROBES: Final = 25
"""How many leases without lineage all workers together read at the same time."""


class Consumer:
    """Reads the shards whose leases this worker holds. Made by `open_consumer`.

    `failure`: what ended it, and where; None unless an error did. `is_closed`: whether its block was left.
    """

    def __init__(
        self,
        kinesis: KinesisClient,
        store: LeaseStore,
        settings: ConsumerSettings,
        *,
        worker_id: str,
        on_service_error: OnServiceError,
        sources: ShardSources,
        identity: StreamIdentity,
        observer: Observer,
        advice: Advice,
        spans: Spans | None,
        rng: random.Random,
        joint: TableAssignment | None = None,
        until: Until | None = None,
        timeout: float | None = None,
    ) -> None:
        self.worker_id = worker_id
        self.failure: str | None = None
        self.is_closed: bool = False
        self.on_end: Callable[[], object] = lambda: None
        self._token = trio.lowlevel.current_trio_token()
        self._coordinator = LeaseCoordinator(
            store,
            worker_id,
            failover_seconds=settings.failover_seconds,
            graceful_handoff=settings.graceful_handoff,
            handoff_seconds=settings.handoff_seconds,
            max_leases=settings.max_leases,
            max_leases_per_scan=settings.max_leases_per_scan,
            assignment=settings.assignment,
            scan_interval=settings.lease_scan_seconds,
            by_throughput=settings.balance == "throughput",
            checkpoint_seconds=settings.checkpoint_seconds,
            observer=observer,
            on_namesake=partial(advice.worker_id, worker_id),
            on_change=self._wake,
            on_scan=self._on_scan,
            eligible=self._may_take,
            joint=joint,
        )
        self._kinesis = kinesis
        self._store = store
        self._settings = settings
        self._is_one_of_several = joint is not None
        self._isolates_service_errors = on_service_error == "isolate"
        self._sources = sources
        self._observer = observer
        self._advice = advice
        self._unacked: dict[str, int] = {}  # records of shards that this worker has left
        self._spans = spans
        self._service_time = kinesis.service_time or kinesis.clock
        self._shard_sync = ShardSync(
            kinesis, store, settings, self._coordinator, observer, rng.random, identity, advice
        )
        self._expired = ExpiredRecords(identity, self._service_time, observer)
        self._started: set[str] = set()
        self._running: dict[str, ShardStream] = {}
        self._completion = Completion(
            until,
            self._coordinator,
            self._shard_sync,
            running=self._running,
            selects=settings.selects,
            may_start=self._may_start,
        )
        self._timeout = timeout
        self._reads = False
        self._is_caught_up: bool | None = None  # when it has ended
        self._abandoned: dict[str, ShardReading] = {}  # that no worker is known to read
        self._clock = trio.lowlevel.current_clock().current_time  # from any thread, unlike trio.current_time
        self._isolated: dict[str, tuple[float, IsolatedShard]] = {}  # until when, and why
        self._probed: frozenset[str] = frozenset()
        self._probed_at = -inf
        self._draining = False
        self._changed = trio.Event()
        self._are_counts_outdated = False

    def __repr__(self) -> str:
        return f"<Consumer of {self.worker_id}>"  # without an address: simulations compare stories

    async def run(self, reader: ShardReader) -> None:
        """Read shards until `drain`, each in a task of its own that calls `reader(shard)`.

        What was acked is checkpointed in any case, and nothing is skipped silently (rule R11). A reader that raises
        IsolateShardError stops its shard alone; any other exception of a reader stops everything. So does an error of
        the service that retries cannot cure (KMS, access denied), unless `on_service_error` is "isolate". Raises what
        the reader raises, and EfoError.
        """
        check_surface(reader, "efo")
        check_async(reader, "reader", "shard")
        check_no_handler(reader, "efo")
        if self._reads:
            raise ConfigurationError(TWO_READERS)
        if self.is_closed:
            raise ConfigurationError(CLOSED)
        self._reads, self._is_caught_up = True, None
        try:
            with collapse_groups():
                async with trio.open_nursery() as background:
                    await background.start(self._shard_sync.run)
                    background.start_soon(self._expired.run)
                    if self._timeout is not None:
                        background.start_soon(drain_after, self._timeout, self)
                    self._observer(ShardsCounted(self._counts()))
                    async with trio.open_nursery() as shards:
                        while not self._draining:
                            self._changed = trio.Event()
                            for held in self._to_start():
                                self._started.add(held.lease.key)
                                is_ours = self._settings.selects(held.lease) and not held.handoff_requested.is_set()
                                shards.start_soon(self._read_shard if is_ours else self._give_back, held, reader)
                            self._are_counts_outdated = True
                            if self._completion.is_complete:
                                self._coordinator.stop_acquiring()
                                self.on_end()
                                break
                            await self._changed.wait()
                    background.cancel_scope.cancel()
        except Exception as error:
            self._unacked.clear()  # it interrupted them
            self.failed(error)
            shorten(error)
            raise
        finally:
            self._advice.unacked(self._unacked)
            self._is_caught_up = self._completion.is_caught_up
            self._reads = False
            self._abandoned = {}  # metrics ask again after the end, and would report a lag that grows for ever

    def drain(self) -> None:
        """Stop at the next batch of each shard: finish what was delivered, checkpoint, release; then `run` returns.

        Any thread may call it.
        """
        if not trio.lowlevel.in_trio_run() or trio.lowlevel.current_trio_token() is not self._token:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self.drain)
            return
        self._draining = True
        self._coordinator.stop_acquiring()
        for shard in self._running.values():
            shard.drain()
        self._wake()
        self.on_end()

    def failed(self, error: Exception) -> None:
        """Note what ends the consumer, and report it once. efo calls it."""
        if self.failure is None:
            event = failure_of(error)
            where = f" at {event.places[-1]}" if event.places else ""
            self.failure = f"{event.error_type}{where}{f': {event.detail}' if event.detail else ''}"
            self._observer(event)

    def caught_up(self) -> bool:
        """Return whether all records that had arrived are acked: those that arrived by `until`, if it was given.

        Without `until`: up to the last event of each shard that this worker is to read. For a shard at its tip that is
        at most some five seconds ago. What other workers read does not count.
        """
        return self._completion.is_caught_up if self._is_caught_up is None else self._is_caught_up

    @property
    def is_complete(self) -> bool:
        """Whether everything was delivered up to `until`."""
        return self._completion.is_complete

    def pause(self, shard_id: str) -> None:
        """Deliver no more batches of a shard until `resume`; its lease is kept. Raises ShardNotReadError."""
        self._shard(shard_id).pause()

    def resume(self, shard_id: str) -> None:
        """Continue a paused shard, without loss or repetition. Raises ShardNotReadError."""
        self._shard(shard_id).resume()

    def seek(self, shard_id: str, to: Checkpoint | PositionLike) -> None:
        """Continue a shard after a checkpoint or at a position: see `ShardStream.seek`. Raises ShardNotReadError."""
        self._shard(shard_id).seek(to)

    def release(self, shard_id: str) -> None:
        """Hand the lease of a shard back after the batch that is being processed, so that another worker takes it.

        Nothing is lost or repeated. This worker does not take it again for `ConsumerSettings.shard_cooldown_seconds`;
        until some worker reads it, `status().isolated` has it with the error_type "released". Raises ShardNotReadError.
        """
        shard = self._shard(shard_id)
        self._note_isolated(IsolatedShard(shard_id, "released", self._settings.shard_cooldown_seconds))
        shard.drain()

    def lineage(self) -> tuple[Sequence[Shard], Mapping[str, Lease]]:
        """Return the shards of the last listing, and the leases of all workers as of the last lease scan, by shard id.

        Both are empty until they were read. It causes no call of Kinesis or of the lease store.
        """
        return self._shard_sync.shards, self._coordinator.leases

    def status(self) -> ConsumerStatus:
        """Return a snapshot of the consumer."""
        now, counts = self._clock(), self.counts()
        shards = tuple(status_of(shard, now) for shard in self.shards())
        running = list(self._running.values())
        return ConsumerStatus(
            self.worker_id,
            self._sources.is_registered,
            self._draining,
            shards,
            None if counts is None else counts.shards,
            tuple(self.isolated()),
            counts,
            self._sources.read_mode,
            None if (error := self._sources.fan_out_error) is None else str(error),
            self.failure,
            (*self._advice.given, *(slow for shard in running if (slow := shard.slow_batch()) is not None)),
        )

    # What status, metrics and readiness are derived from: see `efo.health.Readings`. These four may be
    # called from any thread.

    def now(self) -> float:
        """Return the time of the clock of `shards`, in seconds."""
        return self._clock()

    def shards(self) -> list[ShardReading]:
        """Return what is known of each shard that this worker reads, or stopped reading with no known successor."""
        return [*[shard.reading() for shard in list(self._running.values())], *list(self._abandoned.values())]

    def isolated(self) -> list[IsolatedShard]:
        """Return the shards that failed, and that this worker has not read successfully since."""
        now, known = self._clock(), self._isolated.copy()
        return [
            replace(shard, seconds_left=max(0.0, until - now))
            for key, (until, shard) in known.items()
            if self._is_still_isolated(until, key)
        ]

    def _is_still_isolated(self, until: float, shard_id: str) -> bool:
        """Return whether a shard was isolated until some time, or is read again and has acked nothing yet."""
        shard = self._running.get(shard_id)
        return until > self._clock() or (shard is not None and shard.acked in {None, shard.checkpoint})

    def counts(self) -> LeaseCounts | None:
        """Return what the lease table shows; None if it was not read for so long that it is unknown."""
        counted = self._coordinator.counts(self._clock())
        return None if counted is None else LeaseCounts(counted.counts, counted.workers, self._counts())

    def _shard(self, shard_id: str) -> ShardStream:
        if self.is_closed:
            raise ConfigurationError(CLOSED)
        if shard_id not in self._running:
            raise ShardNotReadError(
                f"this worker does not read {shard_id}: status().shards has those that it reads; those in the state"
                " no_lease or isolated it has given up"
            )
        return self._running[shard_id]

    # --- which shards ------------------------------------------------------------------------------------

    def _may_start(self, lease: Lease) -> bool:
        return is_startable(lease, self._coordinator.leases)

    def _may_probe(self, lease: Lease) -> bool:
        """Return whether a lease without lineage may be read now; always true for one with lineage.

        Reading it shows whether its shard exists. Only the first few are tried, so that thousands of them do not take
        the budgets of the stream's shards. All workers choose alike.
        """
        if has_lineage(lease, self._coordinator.leases, self._shard_sync.listed):
            return True
        leases, now = self._coordinator.leases, trio.current_time()
        if self._probed_at != now:
            listed = self._shard_sync.listed
            doubtful = (key for key, row in leases.items() if not (row.is_finished or has_lineage(row, leases, listed)))
            self._probed, self._probed_at = frozenset(nsmallest(MAX_PROBES, doubtful)), now
        return lease.key in self._probed

    def _may_take(self, lease: Lease) -> bool:
        return (
            self._settings.selects(lease)
            and not self._completion.is_left(lease.key)
            and not self._is_isolated(lease.key)
            and self._may_start(lease)
            and self._may_probe(lease)
        )

    def _is_isolated(self, key: str) -> bool:
        return key in self._isolated and trio.current_time() < self._isolated[key][0]

    def _to_start(self) -> list[HeldLease]:
        return [
            held
            for key, held in self._coordinator.held.items()
            if key not in self._started and not held.lease.is_finished and not self._completion.is_left(key)
            if held.handoff_requested.is_set() or (self._may_start(held.lease) and self._may_probe(held.lease))
        ]

    def _counts(self) -> dict[str, int]:
        counts = dict.fromkeys(("waiting_parent", "ready", "consuming", "finished"), 0)
        for key, lease in list(self._coordinator.leases.items()):
            if lease.is_finished:
                counts["finished"] += 1
            elif key in self._started:
                counts["consuming"] += 1
            else:
                counts["ready" if self._may_start(lease) else "waiting_parent"] += 1
        return counts

    def _on_scan(self) -> None:
        """Report the counts if they may have changed. Forget abandoned shards that another worker reads, and cooldowns.

        Called after a lease scan, which visits all leases.
        """
        for key in list(self._abandoned):
            lease = self._coordinator.leases.get(key)
            if lease is None or lease.is_finished or lease.owner not in {None, self.worker_id}:
                del self._abandoned[key]
        known = self._isolated.items()
        self._isolated = {key: found for key, found in known if self._is_still_isolated(found[0], key)}
        if self._are_counts_outdated:
            self._are_counts_outdated = False
            self._observer(ShardsCounted(self._counts()))
        for shard in self._running.values():
            shard.watch()
        if self._completion.ends:
            self._wake()

    def _wake(self) -> None:
        self._changed.set()

    # --- one shard ---------------------------------------------------------------------------------------

    async def _read_shard(self, held: HeldLease, reader: ShardReader) -> None:
        """Read one shard to its end, or until the consumer drains, the lease is lost or the shard fails (rule R11)."""
        shard_id = held.lease.key
        finished = False
        stopped = ShardStopped(shard_id)
        try:
            opened = partial(self._open, held)
            task = ShardTask(held, opened, self._settings, self._coordinator, self._store)
            finished = await task.run(reader)
        except LeaseLostError:
            pass  # the new owner continues after the last checkpoint
        except Exception as error:
            stopped = ShardStopped(shard_id, type_of(error), detail_of(error))
            cooldown = self._cooldown(error)
            if cooldown is None:
                self._draining = True  # everything stops: `run` must not start a shard again meanwhile
                raise
            await self._isolate(held, error, cooldown)
        finally:
            self._started.discard(shard_id)
            self._leave(held)
            held.forget_reader()
            if finished:
                self._observer(ShardFinished(shard_id, held.lease.children))
            else:
                self._observer(stopped)
            self._wake()

    def _leave(self, held: HeldLease) -> None:
        """Stop reporting on a shard, unless nobody reads it now: its lag then grows until some worker does."""
        shard = self._running.pop(held.lease.key, None)
        if shard is None:
            return
        shard.is_left = True
        self._completion.leave(shard)
        if shard.unacked and held.lost_because in {None, "released"} and not self._is_isolated(held.lease.key):
            self._unacked[shard.shard_id] = shard.unacked
        if self._draining:
            return
        if self._is_isolated(held.lease.key):
            self._abandoned[shard.shard_id] = replace(shard.reading(), state="isolated", is_paused=False)
        elif held.lost_because in {"store", "expired"}:
            self._abandoned[shard.shard_id] = replace(shard.reading(), state="no_lease", is_paused=False)

    def _cooldown(self, error: Exception) -> float | None:
        """Return for how many seconds to isolate a shard that failed with this error; None: everything stops."""
        match error:
            case IsolateShardError(cooldown=None):
                return self._settings.shard_cooldown_seconds
            case IsolateShardError(cooldown=cooldown):
                return cooldown
            case ResourceNotFoundError() if self._is_one_of_several:
                return None  # not the shard, which would be a ShardGoneError: its whole stream is gone
            case ServiceError() if self._isolates_service_errors:
                return self._settings.shard_cooldown_seconds
            case _:
                return None

    async def _isolate(self, held: HeldLease, error: Exception, cooldown: float) -> None:
        """Release the lease of a shard that failed: another worker may succeed, and this one later."""
        shard_id, error_type, detail = held.lease.key, type_of(error), detail_of(error)
        record = error.record if isinstance(error, IsolateShardError) else None
        self._note_isolated(IsolatedShard(shard_id, error_type, cooldown, detail, record))
        await self._give_back(held)
        self._observer(ShardIsolated(shard_id, cooldown, error_type, detail))

    def _note_isolated(self, shard: IsolatedShard) -> None:
        self._isolated[shard.shard_id] = (trio.current_time() + shard.seconds_left, shard)

    async def _give_back(self, held: HeldLease, _reader: ShardReader | None = None) -> None:
        """Release a lease. If the store cannot be reached, stop renewing the lease, so that it expires."""
        with trio.move_on_after(LAST_SAVE_TIMEOUT, shield=True):
            # The save at the end of the task may have been given up, and the store may be back since.
            for write in (held.save, held.release):
                with suppress(LeaseError):
                    await write()
        held.mark_lost("released")
        self._started.discard(held.lease.key)

    def _initial_of(self, lease: Lease) -> Position:
        if lease.latest_at is not None:
            return Position.at_timestamp(lease.latest_at)
        return self._shard_sync.initial or self._settings.start_position

    def _open(self, held: HeldLease, attempts: trio.Nursery) -> ShardStream:
        lease = held.lease
        shard = self._running[lease.key] = ShardStream(
            self._kinesis.stream,
            lease.key,
            lease.checkpoint,
            subscribe=partial(self._sources.open, attempts, lease.key),
            initial=self._initial_of(lease),
            unread=self._expired.of_shard(lease),
            pin=self._shard_sync.pinned,
            save=held.save,
            deaggregator=Deaggregator(
                lease.key,
                self._shard_sync.range_of(lease),
                self._settings.aggregates,
                self._observer,
                self._shard_sync.ancestors_of(lease),
            ),
            clock=self._kinesis.clock,
            observer=self._observer,
            spans=None if self._spans is None else self._spans.of_shard(lease.key),
            limit=self._completion.limit(lease.key),
            on_complete=self._wake,
            service_time=self._service_time,
            ages=limits_of(lease.key, self._settings, self._service_time, self._observer),
        )
        held.reader, held.unread_since = shard, lambda: shard.unread_since
        self._abandoned.pop(lease.key, None)
        self._unacked.pop(lease.key, None)
        self._observer(ShardStarted(lease.key, lease.checkpoint))
        if (start := self._start_of(lease)) is not None:
            shard.seek(start)
        if self._draining:
            shard.drain()
        return shard

    def _start_of(self, lease: Lease) -> Position | Checkpoint | None:
        """Return where the application wants to start a shard that was never read, and whose parents were not (R1)."""
        is_new = lease.checkpoint.is_sentinel and not any(
            parent in self._coordinator.leases for parent in lease.parents
        )
        if not is_new or self._settings.start_at is None:
            return None
        start = self._settings.start_at(lease)
        if start is None or isinstance(start, Checkpoint):
            return start
        return pinned(parse_position(start, "start_at"), self._service_time(), "start_at")
