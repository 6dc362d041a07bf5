"""Renews this worker's leases and takes its fair share of them, never delayed by a handler (rule R10)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from types import MappingProxyType
from typing import Final

import trio

from efo.errors import ConfigurationError, LeaseError, LeaseLostError, LeaseStoreUnavailableError
from efo.events import LeaseOperation, LeasesCounted, Observer, ignore_events
from efo.exception_groups import collapse_groups
from efo.leases.handoffs import Handoffs
from efo.leases.held_lease import TRUSTED_SHARE, HeldLease, LeaseTiming, report_store_call
from efo.leases.known_rows import Namesakes
from efo.leases.renewals import Renewals
from efo.leases.store import LeaseStore
from efo.leases.transitions import taken
from efo.leases.writer import LeaseWriter
from efo.leases.writes import ReleaseLease, TakeLease
from efo.model import Lease
from efo.protocol.assignment.assign import assign, default_scan_interval
from efo.protocol.assignment.balance import SMOOTHING, balanced_assignment
from efo.protocol.assignment.view import Assignment, AssignmentPlan
from efo.protocol.joint_assignment import TableAssignment
from efo.protocol.lease_expiry import LeaseExpiry
from efo.retrying import retry
from efo.settings import FAILOVER_SECONDS

__all__ = ["HeldLease", "LeaseCoordinator"]

RELEASE_TIMEOUT: Final = 5.0
"""Seconds for the release of all leases at the end. A lease that is not released by then expires."""
RELEASE_RETRY: Final = 0.5
"""Maximum seconds between two tries of that release, however long the lease scan interval is."""
MIN_MOVES: Final = 10
MAX_MOVES: Final = 160
"""How many leases are taken or requested at the same time: at first `MIN_MOVES`, and then twice as many each time. If
another worker took one of them first, the table as read is outdated, and the remaining moves wait for the next lease
scan."""
OUTDATED_RESCAN_SHARE: Final = 0.01
"""Delay until the next lease scan if the table as read was outdated, as a share of the fail-over time."""


class LeaseCoordinator:
    """Holds leases for one worker: `run` is its task.

    `worker_id`: unique among the workers of the application.
    `failover_seconds`: seconds without a renewal after which other workers take a worker's leases.
    `scan_interval`: seconds between two lease scans, about as long as a released lease waits for its next owner. None:
    see `default_scan_interval`.
    `graceful_handoff`: request a lease from its holder, and take it by force only if the holder does not release it
    within `handoff_seconds` seconds plus the fail-over time. False: steal it, so that records that are not yet
    checkpointed are read again.
    `max_leases`: the most leases that this worker owns. `max_leases_per_scan`: the most that it takes in one scan.
    `assignment`: decides which.
    `by_throughput`: balance the throughput of the shards, not their number.
    `checkpoint_seconds`: how often the progress of readers is saved, in seconds; see `HeldLease.reader`.
    `on_change`: called when `held` changes, when `leases` gains or loses a row, or one changes its owner or is
    finished, and when a held lease is requested. Must be quick, and must not call `wake`.
    `on_scan`: called after each lease scan. Must be quick. `on_namesake`: called with the shard of a lease that another
    worker renews under the same id.
    `eligible`: whether a lease may be taken now, according to `leases`.
    `joint`: balances the leases together with those of other tables. None: this table by itself.
    `stream_created_at`: when the stream was created, once that is known: see `HeldLease`.
    """

    def __init__(
        self,
        store: LeaseStore,
        worker_id: str,
        *,
        failover_seconds: float = FAILOVER_SECONDS,
        scan_interval: float | None = None,
        graceful_handoff: bool = True,
        handoff_seconds: float = 30.0,
        max_leases: int | None = None,
        max_leases_per_scan: int | None = None,
        assignment: Assignment = balanced_assignment,
        by_throughput: bool = False,
        checkpoint_seconds: float = 5.0,
        observer: Observer = ignore_events,
        on_change: Callable[[], None] = lambda: None,
        on_scan: Callable[[], None] = lambda: None,
        on_namesake: Callable[[str], None] = lambda _shard_id: None,
        eligible: Callable[[Lease], bool] = lambda _lease: True,
        joint: TableAssignment | None = None,
    ) -> None:
        if not worker_id or failover_seconds <= 0:
            raise ConfigurationError(
                f"worker_id {worker_id!r} or failover_seconds {failover_seconds!r} is invalid: "
                "worker_id must not be empty, and failover_seconds must be above 0 seconds"
            )
        self.stream_created_at: float | None = None
        self._store = store
        self._worker_id = worker_id
        self._failover_time = failover_seconds
        self._scan_interval = scan_interval
        self._graceful_handoff = graceful_handoff
        self._max_leases = max_leases
        self._max_leases_per_scan = max_leases_per_scan
        self._assignment = assignment
        self._by_throughput = by_throughput
        self._observer = observer
        self._on_change = on_change
        self._on_scan = on_scan
        self._on_namesake = on_namesake
        self._namesakes = Namesakes()
        self._eligible = eligible
        self._joint = joint
        self._timing = LeaseTiming(failover_seconds, checkpoint_seconds)
        self._expiry = LeaseExpiry(failover_seconds)
        self._writer = LeaseWriter(store, failover_seconds, observer)
        self._handoffs = Handoffs(store, worker_id, handoff_seconds + failover_seconds, observer)
        self._leases: dict[str, Lease] = {}
        self._held: dict[str, HeldLease] = {}
        self._unanswered: dict[str, Lease] = {}  # the rows that takes without a response wrote, if they took place
        self._renewals = Renewals(self._held, self._timing)
        self._workers = 1
        self._scanned_at: float | None = None
        self.scans_begun: int = 0
        self.scanned: int = 0  # the number of the last lease scan that has ended
        self._has_scanned = False
        self._is_table_outdated = False
        self._is_acquiring = True
        self._next_balance_at = -inf
        self._settled_until = -inf
        self._counted: LeasesCounted  # by the first scan
        self._woken = trio.Event()

    @property
    def held(self) -> Mapping[str, HeldLease]:
        """The held leases of this worker, by shard id."""
        return MappingProxyType(self._held)

    @property
    def leases(self) -> Mapping[str, Lease]:
        """All leases of all workers as of the last lease scan, by shard id."""
        return MappingProxyType(self._leases)

    def is_of_another(self, lease: Lease) -> bool:
        """Return whether another worker holds a lease, and was seen to renew it."""
        return lease.owner not in {None, self._worker_id} and self._expiry.is_alive(lease.key)

    def counts(self, now: float) -> LeasesCounted | None:
        """Return the leases by state, and the workers. None: unknown, since the table was not read for too long.

        That is as long as this worker relies on its leases, or two lease scan intervals if these are longer.
        """
        limit = max(TRUSTED_SHARE * self._failover_time, 2 * self._interval())
        is_known = self._scanned_at is not None and now - self._scanned_at < limit
        return self._counted if is_known else None

    def wake(self) -> None:
        """Scan the lease table at once: leases were created, or a shard reached its end."""
        self._woken.set()

    def stop_acquiring(self) -> None:
        """Take no more leases and withdraw all requests; keep the held leases. For a worker that is about to stop."""
        self._is_acquiring = False
        self._settled_until = -inf
        self.wake()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Take and renew leases until cancelled, then release all of them.

        While the lease store is unavailable, retries, and gives up each lease that cannot be renewed in time. Raises
        LeaseStoreCorruptError.
        """
        try:
            with collapse_groups():
                async with trio.open_nursery() as nursery:
                    await nursery.start(self._writer.run)
                    nursery.start_soon(self._renewals.run)
                    task_status.started()
                    await self._scan_forever()
        finally:
            await self._release_all()

    async def _scan_forever(self) -> None:
        while True:
            with trio.move_on_after(self._failover_time):  # the store may hang
                with suppress(LeaseStoreUnavailableError):  # reported, and retried soon
                    await self._scan()
            with trio.move_on_at(self._next_scan()):
                await self._woken.wait()
            self._woken = trio.Event()

    def _next_scan(self) -> float:
        """Return the time of the next lease scan: after the interval, or when another worker's lease may expire."""
        now = trio.current_time()
        if self._is_table_outdated:
            self._is_table_outdated = False
            return now + OUTDATED_RESCAN_SHARE * self._failover_time
        others = [key for key, lease in self._leases.items() if key not in self._held and lease.holder is not None]
        expiry = self._expiry.next_expiry(others)
        self._settled_until = min(self._settled_until, inf if expiry is None else expiry)
        latest = now + self._interval()
        return expiry if expiry is not None and now < expiry < latest else latest

    def _interval(self) -> float:
        if self._scan_interval is not None:
            return self._scan_interval
        return default_scan_interval(self._failover_time, self._workers)

    async def _scan(self) -> None:
        """Scan the lease table, then take and request leases."""
        started = trio.current_time()
        number = self.scans_begun = self.scans_begun + 1
        with report_store_call(self._observer, "list", ""):
            rows = await self._store.list()
        self._expiry.observe(rows, sent_at=started, received_at=trio.current_time())
        if self._observe(rows):
            self._settled_until = -inf
            self._on_change()
        is_outdated = self._joint is not None and self._joint.is_outdated
        if is_outdated or trio.current_time() >= self._settled_until:
            await trio.lowlevel.checkpoint()  # of many leases, each of these parts is a long step
            await self._assign(rows)
        self._scanned_at, self.scanned = trio.current_time(), number
        self._observer(self._counted)
        self._on_scan()

    def _observe(self, rows: Sequence[Lease]) -> bool:
        """Replace `leases`; return whether a row was added or removed, or has changed its owners, or is finished.

        A store returns the same Lease while its row is unchanged.
        """
        previous, self._leases = self._leases, {row.key: row for row in rows}
        is_changed = len(previous) != len(self._leases)
        self._unanswered = {key: lease for key, lease in self._unanswered.items() if key in self._leases}
        for row in rows:
            before = previous.get(row.key)
            if before is not row:
                is_changed = is_changed or before is None or _ownership(before) != _ownership(row)
                if row.key in self._held:
                    self._held[row.key].observe_row(row)
                elif row.holder == self._worker_id and row.key not in self._unanswered and self._namesakes.renews(row):
                    self._on_namesake(row.key)
        return is_changed

    async def _assign(self, rows: Sequence[Lease]) -> None:
        """Take and request leases, and count the leases.

        If every lease has an owner that renews it, and there is nothing to move, then the next lease scans need not do
        this again: until a row changes its owners, or a lease may have expired. The fail-over time limits how long a
        change of what is eligible goes unnoticed.
        """
        now, is_acquiring = trio.current_time(), self._is_acquiring
        is_moving = False
        if is_acquiring:
            is_moving = await self._make_moves(rows)
        else:
            if self._joint is not None:  # the other tables must not plan with leases that this one held before
                self._joint.observe(rows, self._expired())
            await self._handoffs.withdraw(self._held)
        await trio.lowlevel.checkpoint()
        self._count()
        counts = self._counted.counts
        is_settled = not (is_moving or counts["unowned"] or counts["expired"] or self._handoffs.is_waiting)
        if is_acquiring and is_settled and not self._by_throughput:
            self._settled_until = now + self._failover_time

    async def _make_moves(self, rows: Sequence[Lease]) -> bool:
        """Take and request leases; return whether there were any to take or request."""
        plan, due = self._plan(rows), self._handoffs.observe(rows, self._held)
        self._has_scanned = True
        to_move = self._leases_to_move(plan)
        stolen = () if self._graceful_handoff else to_move
        moves: list[Callable[[], Awaitable[None]]] = [
            *(partial(self._take, lease, "take") for lease in (*due.handed_over, *plan.take)),
            *(partial(self._take, lease, "steal") for lease in (*due.overdue, *stolen)),
            *(partial(self._handoffs.request, lease) for lease in to_move if self._graceful_handoff),
            *(partial(self._handoffs.pass_on, lease) for lease in due.requested),
        ]
        is_moving, size = bool(moves), MIN_MOVES
        while moves:
            now, moves = moves[:size], moves[size:]
            size = min(2 * size, MAX_MOVES)
            failures: list[LeaseStoreUnavailableError] = []
            with collapse_groups():
                async with trio.open_nursery() as batch:
                    for move in now:
                        batch.start_soon(_make_move, move, failures)
            if failures:
                raise failures[0]
            if self._is_table_outdated:
                break
        return is_moving

    def _leases_to_move(self, plan: AssignmentPlan) -> Sequence[Lease]:
        """Return the leases to move to this worker now.

        By throughput, the next moves wait until the measurements show the effect of the last ones.
        """
        now = trio.current_time()
        if not self._by_throughput or not plan.steal:
            return plan.steal
        if now < self._next_balance_at:
            return ()
        self._next_balance_at = now + SMOOTHING
        return plan.steal

    def _plan(self, rows: Sequence[Lease]) -> AssignmentPlan:
        # In the first scan only. Later, a lease with this worker's id that is not held belongs to a second worker with
        # the same id: the two would take it from each other for ever.
        previously_held = {row.key for row in rows if row.holder == self._worker_id and not self._has_scanned}
        plan = assign if self._joint is None else self._joint.assign
        return plan(
            rows,
            self._worker_id,
            expired=self._expired(),
            previously_held=previously_held,
            neglected=self._expiry.neglected(),
            eligible=self._eligible,
            max_leases=self._max_leases,
            max_leases_per_scan=self._max_leases_per_scan,
            strategy=self._assignment,
            by_throughput=self._by_throughput,
        )

    async def _take(self, lease: Lease, operation: LeaseOperation) -> None:
        if lease.key in self._held or not self._is_acquiring:
            return
        self._namesakes.forget(lease.key)
        started = trio.current_time()
        try:
            lease = await self._writer.write(TakeLease(lease, self._worker_id), operation)
        except LeaseLostError:  # another worker took it first, or the overdue holder renewed it
            if operation == "take":
                self._handoffs.forget(lease.key)
            self._is_table_outdated = True
            return
        except BaseException:  # it may have taken place
            self._unanswered[lease.key] = taken(lease, self._worker_id)
            raise
        self._unanswered.pop(lease.key, None)
        held = HeldLease(
            lease,
            self._store,
            self._writer,
            taken_at=started,
            timing=self._timing,
            observer=self._observer,
            on_end=self._remove,
            on_handoff_requested=self._on_change,
            on_due=self._renewals.due,
            stream_created_at=lambda: self.stream_created_at,
        )
        self._held[lease.key] = held
        self._leases[lease.key] = lease
        self._on_change()

    def _remove(self, held: HeldLease) -> None:
        key = held.lease.key
        del self._held[key]
        self._leases[key] = held.lease
        self._settled_until = -inf
        self._on_change()

    def _expired(self) -> set[str]:
        return self._expiry.expired() - self._held.keys()

    def _count(self) -> None:
        counts = {"held": 0, "unowned": 0, "expired": 0}
        workers: set[str] = set()
        expired = self._expired()
        for key, lease in self._leases.items():
            if lease.is_finished:
                continue
            if lease.owner is None:
                counts["unowned"] += 1
            elif key in expired:
                counts["expired"] += 1
            else:
                counts["held"] += 1
                workers.add(lease.owner)
        self._workers = len(workers | {self._worker_id})
        self._counted = LeasesCounted(counts, len(workers))

    async def _release_all(self) -> None:
        with trio.move_on_after(RELEASE_TIMEOUT, shield=True):
            async with trio.open_nursery() as writing:
                await writing.start(self._writer.run)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._retry_until_written, lambda: self._handoffs.withdraw(self._held))
                    for held in list(self._held.values()):
                        nursery.start_soon(self._retry_until_written, held.release)
                    for lease in self._unanswered.values():
                        nursery.start_soon(self._retry_until_written, partial(self._release_taken, lease))
                writing.cancel_scope.cancel()
        for held in list(self._held.values()):
            held.mark_lost("store")

    async def _release_taken(self, lease: Lease) -> None:
        """Release a lease whose take had no response, or was cancelled: its row if it took place, and nothing else."""
        await self._writer.write(ReleaseLease(lease))

    async def _retry_until_written(self, write: Callable[[], Awaitable[None]]) -> None:
        with suppress(LeaseError):  # the lease has another owner, or is gone
            await retry(write, lambda: min(self._interval(), RELEASE_RETRY))


async def _make_move(move: Callable[[], Awaitable[None]], failures: list[LeaseStoreUnavailableError]) -> None:
    """Make a move and collect its failure: raising it would cancel other moves that may have reached the store."""
    try:
        await move()
    except LeaseStoreUnavailableError as error:
        failures.append(error)


def _ownership(lease: Lease) -> tuple[str | None, str | None, bool]:
    """Return the parts of a lease whose change `on_change` reports. Renewals and progress are not among them."""
    return lease.owner, lease.checkpoint_owner, lease.is_finished
