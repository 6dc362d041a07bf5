"""Keeps this worker's leases alive and takes its fair share of them: never behind a handler (rule R10)."""

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
from efo.leases.held_lease import HeldLease, reported
from efo.leases.store import LeaseStore
from efo.model import Lease
from efo.protocol.assignment import Plan, assign, default_scan_interval
from efo.protocol.expiry import Expiry
from efo.protocol.throughput import SMOOTHING

__all__ = ["HeldLease", "LeaseKeeper"]

RELEASE_TIMEOUT: Final = 5.0
"""Seconds that releasing all leases may take at the end. What is not released by then expires."""
RELEASE_RETRY: Final = 0.5
"""Seconds between two tries of it, at most, however seldom the table is looked at."""


MAX_CONCURRENT_MOVES: Final = 10
"""Leases that are taken or asked for at the same time. If another worker was quicker to take one of them our table is
old, and the rest waits for a new one."""
OUTDATED_RESCAN_SHARE: Final = 0.01
"""The part of the fail-over time after which a table that proved to be old is looked at again."""


class LeaseKeeper:
    """Holds leases for one worker: `run` is its task.

    `worker_id`: unique among the workers of the application. `failover_time`: seconds without a sign of life
    after which the others take a worker's leases. `scan_interval`: seconds between two looks at the table,
    by default as `default_scan_interval` says; about as long does a released lease wait for its next
    owner. `graceful_handoff`: a lease that another worker holds is asked for, and taken by force only when he
    has not let go of it for `handoff_timeout` seconds and the fail-over time; otherwise it is stolen, and what its
    reader had not yet checkpointed is read again. `max_leases`: own no more than this. `by_throughput`: share out what
    the shards bring and not their number.

    `on_change`: called when something changed in `held`, or in `leases` an owner, an end or a row, or when a lease in
    our hands is asked for; quick, and must not call `wake`. `eligible`: whether a lease may be taken now, by the table
    in `leases`.
    """

    def __init__(
        self,
        store: LeaseStore,
        worker_id: str,
        *,
        failover_time: float = 10.0,
        scan_interval: float | None = None,
        graceful_handoff: bool = True,
        handoff_timeout: float = 30.0,
        max_leases: int | None = None,
        by_throughput: bool = False,
        observer: Observer = ignore_events,
        on_change: Callable[[], None] = lambda: None,
        eligible: Callable[[Lease], bool] = lambda _lease: True,
    ) -> None:
        if not worker_id or failover_time <= 0:
            raise ConfigurationError(
                f"worker_id {worker_id!r} and failover_time {failover_time!r}: name the worker, "
                "and give the fail-over time in seconds above 0"
            )
        self._store = store
        self._worker_id = worker_id
        self._failover_time = failover_time
        self._scan_interval = scan_interval
        self._graceful_handoff = graceful_handoff
        self._max_leases = max_leases
        self._by_throughput = by_throughput
        self._observer = observer
        self._on_change = on_change
        self._eligible = eligible
        self._expiry = Expiry(failover_time)
        self._handoffs = Handoffs(store, worker_id, handoff_timeout + failover_time, observer)
        self._leases: dict[str, Lease] = {}
        self._held: dict[str, HeldLease] = {}
        self._workers = 1
        self._has_scanned = False
        self._is_outdated = False
        self._is_taking = True
        self._balance_at = -inf
        self._woken = trio.Event()

    @property
    def held(self) -> Mapping[str, HeldLease]:
        """The leases in our hands, by shard id."""
        return MappingProxyType(self._held)

    @property
    def leases(self) -> Mapping[str, Lease]:
        """All leases of all workers by shard id, as the last look at the table found them."""
        return MappingProxyType(self._leases)

    def wake(self) -> None:
        """Look at the table at once: leases were created, or a shard came to its end."""
        self._woken.set()

    def stop_acquiring(self) -> None:
        """Take no more leases and wait for none; those in our hands are kept. For a worker that is about to leave."""
        self._is_taking = False
        self.wake()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Take and renew leases until cancelled, then release all that are left.

        While the store is unavailable it tries on, and gives up each lease that it cannot renew in time. Raises
        LeaseStoreCorruptError.
        """
        try:
            with collapse_groups():
                async with trio.open_nursery() as nursery:
                    task_status.started()
                    await self._scan_forever(nursery)
        finally:
            await self._release_all()

    async def _scan_forever(self, nursery: trio.Nursery) -> None:
        while True:
            with trio.move_on_after(self._failover_time):  # a store that hangs is asked again
                with suppress(LeaseStoreUnavailableError):  # reported, and tried again soon
                    await self._scan(nursery)
            with trio.move_on_at(self._next_look()):
                await self._woken.wait()
            self._woken = trio.Event()

    def _next_look(self) -> float:
        """Return when to look at the table: after the interval, or when another worker's lease may expire."""
        now = trio.current_time()
        if self._is_outdated:
            self._is_outdated = False
            return now + OUTDATED_RESCAN_SHARE * self._failover_time
        others = [key for key, lease in self._leases.items() if key not in self._held and lease.holder is not None]
        expiry = self._expiry.next_expiry(others)
        after = now + self._interval()
        return expiry if expiry is not None and now < expiry < after else after

    def _interval(self) -> float:
        if self._scan_interval is not None:
            return self._scan_interval
        return default_scan_interval(self._failover_time, self._workers)

    async def _scan(self, nursery: trio.Nursery) -> None:
        """Look at the table and take what is ours to take."""
        asked = trio.current_time()
        with reported(self._observer, "list", ""):
            rows = await self._store.list()
        self._expiry.observe(rows, asked=asked, answered=trio.current_time())
        before, self._leases = self._leases, {row.key: row for row in rows}
        if _outline(before) != _outline(self._leases):
            self._on_change()
        for key, held in self._held.items():
            if key in self._leases:
                held.notice(self._leases[key])
        if self._is_taking:
            await self._act(rows, nursery)
        else:
            await self._handoffs.withdraw(self._held)
        self._count()

    async def _act(self, rows: Sequence[Lease], nursery: trio.Nursery) -> None:
        plan, due = self._plan(rows), self._handoffs.observe(rows, self._held)
        self._has_scanned = True
        wished = self._steals(plan)
        stolen = () if self._graceful_handoff else wished
        moves: list[Callable[[], Awaitable[None]]] = [
            *(partial(self._take, lease, "take", nursery) for lease in (*due.handed, *plan.take)),
            *(partial(self._take, lease, "steal", nursery) for lease in (*due.overdue, *stolen)),
            *(partial(self._handoffs.ask, lease) for lease in wished if self._graceful_handoff),
            *(partial(self._handoffs.pass_on, lease) for lease in due.wanted),
        ]
        for start in range(0, len(moves), MAX_CONCURRENT_MOVES):
            failures: list[LeaseStoreUnavailableError] = []
            with collapse_groups():
                async with trio.open_nursery() as some:
                    for move in moves[start : start + MAX_CONCURRENT_MOVES]:
                        some.start_soon(_tried, move, failures)
            if failures:
                raise failures[0]
            if self._is_outdated:
                return

    def _steals(self, plan: Plan) -> Sequence[Lease]:
        """Return what to steal now. By throughput that has to be measured anew after every move, which takes time."""
        now = trio.current_time()
        if not self._by_throughput or not plan.steal:
            return plan.steal
        if now < self._balance_at:
            return ()
        self._balance_at = now + SMOOTHING
        return plan.steal

    def _plan(self, rows: Sequence[Lease]) -> Plan:
        # Only at first: later, a lease of our name that is not in our hands is that of a second worker with our id,
        # and to take it back would go to and fro for ever.
        former = {row.key for row in rows if row.holder == self._worker_id and not self._has_scanned}
        return assign(
            rows,
            self._worker_id,
            expired=self._expired(),
            former=former,
            neglected=self._expiry.neglected(),
            eligible=self._eligible,
            max_leases=self._max_leases,
            by_throughput=self._by_throughput,
        )

    async def _take(self, lease: Lease, operation: LeaseOperation, nursery: trio.Nursery) -> None:
        if lease.key in self._held or not self._is_taking:
            return
        started = trio.current_time()
        try:
            with reported(self._observer, operation, lease.key):
                lease = await self._store.take(lease, self._worker_id)
        except LeaseLostError:  # another worker was quicker, or the holder that is to be overrun has just renewed
            if operation == "take":
                self._handoffs.forget(lease.key)
            self._is_outdated = True
            return
        held = HeldLease(
            lease,
            self._store,
            taken_at=started,
            failover_time=self._failover_time,
            observer=self._observer,
            on_end=self._drop,
            on_wanted=self._on_change,
        )
        self._held[lease.key] = held
        self._leases[lease.key] = lease
        nursery.start_soon(held.keep_alive)
        self._on_change()

    def _drop(self, held: HeldLease) -> None:
        key = held.lease.key
        del self._held[key]
        self._leases[key] = held.lease
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
        self._observer(LeasesCounted(counts, len(workers)))

    async def _release_all(self) -> None:
        with trio.move_on_after(RELEASE_TIMEOUT, shield=True):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._persist, lambda: self._handoffs.withdraw(self._held))
                for held in list(self._held.values()):
                    nursery.start_soon(self._persist, held.release)
        for held in list(self._held.values()):
            held.give_up("store")

    async def _persist(self, write: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await write()
            except LeaseStoreUnavailableError:
                await trio.sleep(min(self._interval(), RELEASE_RETRY))
            except LeaseError:
                return
            else:
                return


async def _tried(move: Callable[[], Awaitable[None]], failures: list[LeaseStoreUnavailableError]) -> None:
    """Make a move; a store that is down for one is no reason to cut off the others, which may have reached it."""
    try:
        await move()
    except LeaseStoreUnavailableError as error:
        failures.append(error)


def _outline(leases: Mapping[str, Lease]) -> dict[str, tuple[str | None, bool]]:
    """Return what may matter to others than the owner; renewals and progress do not."""
    return {key: (lease.owner, lease.is_finished) for key, lease in leases.items()}
