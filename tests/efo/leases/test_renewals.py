"""When leases are renewed and their progress is saved: one task for all, in virtual time, with leases that note it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf

import pytest
import trio

from efo.errors import LeaseLostError
from efo.leases import renewals
from efo.leases.held_lease import LeaseTiming
from efo.leases.renewals import Renewals

RARELY_SAVED = LeaseTiming(failover_seconds=12.0, checkpoint_seconds=60.0)  # renewed every 4 s
OFTEN_SAVED = LeaseTiming(failover_seconds=60.0, checkpoint_seconds=5.0)  # renewed every 20 s


class Noted:
    """A held lease of which each call is noted. A renewal is written at once."""

    def __init__(self, timing: LeaseTiming, *, renew_at: float, trusted_until: float = inf) -> None:
        self.renew_at, self.trusted_until = renew_at, trusted_until
        self.unresolved: Exception | None = None
        self.has_ended = False
        self.progress_at = inf
        self.renewed: list[float] = []
        self.resolved: list[float] = []
        self.expired: list[float] = []
        self._timing = timing
        self._saved_at = 0.0

    def expire(self) -> None:
        self.expired.append(trio.current_time())
        self.has_ended, self.renew_at, self.trusted_until = True, inf, inf

    async def resolve(self, _error: Exception) -> None:
        self.resolved.append(trio.current_time())

    def save_at(self) -> float:
        return self.progress_at

    def next_save_check(self, now: float) -> float:
        due = self._saved_at + self._timing.checkpoint_seconds
        return due if due > now else now + self._timing.checkpoint_seconds

    def renew_soon(self) -> None:
        now = trio.current_time()
        self.renewed.append(now)
        self.renew_at = now + self._timing.renewal_interval
        if self.progress_at <= now:
            self._saved_at, self.progress_at = now, inf


@asynccontextmanager
async def renewing(timing: LeaseTiming, *leases: Noted) -> AsyncIterator[Renewals]:
    """Renew leases until the end of the block. The virtual clock begins at 0."""
    task = Renewals({str(n): lease for n, lease in enumerate(leases)}, timing)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(task.run)
        yield task
        nursery.cancel_scope.cancel()


async def test_a_lease_is_renewed_when_it_is_due_and_after_each_interval(autojump_clock) -> None:
    lease = Noted(RARELY_SAVED, renew_at=3.0)
    async with renewing(RARELY_SAVED, lease):
        await trio.sleep(12)
    assert lease.renewed == [3.0, 7.0, 11.0]


async def test_the_lease_that_is_due_first_decides_when_to_wake(autojump_clock) -> None:
    early, late = Noted(RARELY_SAVED, renew_at=1.0), Noted(RARELY_SAVED, renew_at=3.5)
    async with renewing(RARELY_SAVED, late, early):
        await trio.sleep(4)
    assert (early.renewed, late.renewed) == ([1.0], [3.5])


async def test_leases_that_are_due_within_a_quarter_of_the_interval_are_renewed_together(autojump_clock) -> None:
    first, soon, later = (Noted(RARELY_SAVED, renew_at=at) for at in (1.0, 2.0, 2.1))
    async with renewing(RARELY_SAVED, first, soon, later):
        await trio.sleep(2.5)
    assert (first.renewed, soon.renewed, later.renewed) == ([1.0], [1.0], [2.1])


async def test_a_lease_that_is_no_longer_trusted_expires_and_is_not_renewed(autojump_clock) -> None:
    lease, other = Noted(RARELY_SAVED, renew_at=inf, trusted_until=2.0), Noted(RARELY_SAVED, renew_at=2.0)
    async with renewing(RARELY_SAVED, lease, other):
        await trio.sleep(3)
    assert (lease.expired, lease.renewed, other.renewed) == ([2.0], [], [2.0])


async def test_a_renewal_in_doubt_is_resolved_once_and_not_repeated_meanwhile(autojump_clock) -> None:
    lease, other = Noted(RARELY_SAVED, renew_at=1.0), Noted(RARELY_SAVED, renew_at=1.5)
    lease.unresolved = LeaseLostError("lost")
    async with renewing(RARELY_SAVED, lease, other):
        await trio.sleep(4)
    assert (lease.resolved, lease.renewed, lease.unresolved) == ([0.0], [], None)
    assert other.renewed == [1.5]


async def test_progress_that_is_due_before_the_renewal_is_saved_with_a_renewal_of_its_own(autojump_clock) -> None:
    lease = Noted(OFTEN_SAVED, renew_at=20.0)
    lease.progress_at = 5.0
    async with renewing(OFTEN_SAVED, lease):
        await trio.sleep(11)
        lease.progress_at = 12.0
        await trio.sleep(7)
    assert lease.renewed == [5.0, 15.0]  # looked at after each checkpoint interval


@pytest.mark.parametrize(
    ("timing", "renew_at"), [(RARELY_SAVED, 4.0), (LeaseTiming(failover_seconds=60.0, checkpoint_seconds=20.0), 27.0)]
)
async def test_progress_waits_for_the_renewal_if_that_comes_as_often(timing, renew_at, autojump_clock) -> None:
    lease = Noted(timing, renew_at=renew_at)
    lease.progress_at = 0.5
    async with renewing(timing, lease):
        await trio.sleep(renew_at + 1)
    assert lease.renewed == [renew_at]


async def test_a_lease_that_is_due_before_the_task_runs_is_renewed(autojump_clock) -> None:
    lease = Noted(RARELY_SAVED, renew_at=1.0)
    task = Renewals({"0": lease}, RARELY_SAVED)
    task.due(lease)
    with trio.move_on_after(2):
        await task.run()
    assert lease.renewed == [1.0]


async def test_progress_of_many_leases_is_looked_at_a_few_times_for_each_interval_at_most(autojump_clock) -> None:
    leases = [Noted(OFTEN_SAVED, renew_at=inf) for _ in range(100)]
    for number, lease in enumerate(leases):
        lease._saved_at = number / 1000 - 5 + 0.2  # due at 0.2, 0.201, 0.202, ...
        lease.progress_at = number / 1000 + 0.2
    async with renewing(OFTEN_SAVED, *leases):
        await trio.sleep(1.4)
    assert sorted({at for lease in leases for at in lease.renewed}) == [0.5]  # a tenth of the interval after the start
    assert all(len(lease.renewed) == 1 for lease in leases)


@pytest.mark.parametrize("what", ["renew_at", "trusted_until"])
async def test_a_lease_that_is_due_earlier_than_it_was_wakes_the_task(what, autojump_clock) -> None:
    lease = Noted(RARELY_SAVED, renew_at=3.0)
    async with renewing(RARELY_SAVED, lease) as task:
        await trio.sleep(1)
        setattr(lease, what, 2.0)
        task.due(lease)
        await trio.sleep(1.5)
    assert (lease.renewed, lease.expired) == (([2.0], []) if what == "renew_at" else ([], [2.0]))


async def test_a_new_lease_whose_progress_is_due_first_wakes_the_task(autojump_clock) -> None:
    held: dict[str, Noted] = {}
    task = Renewals(held, OFTEN_SAVED)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(task.run)
        await trio.sleep(1)
        held["new"] = lease = Noted(OFTEN_SAVED, renew_at=21.0)
        lease.progress_at = 3.0
        task.due(lease)
        await trio.sleep(5)
        nursery.cancel_scope.cancel()
    assert lease.renewed == [5.0]


async def test_other_tasks_run_between_the_renewals_of_many_leases(autojump_clock, monkeypatch) -> None:
    monkeypatch.setattr(renewals, "LEASES_PER_STEP", 10)
    leases = [Noted(RARELY_SAVED, renew_at=1.0) for _ in range(35)]
    seen: list[int] = []

    async def watch() -> None:
        await trio.sleep(1)
        while sum(len(lease.renewed) for lease in leases) < len(leases):
            seen.append(sum(len(lease.renewed) for lease in leases))
            await trio.lowlevel.checkpoint()

    async with renewing(RARELY_SAVED, *leases):
        await watch()
    assert len({10, 20, 30} & set(seen)) >= 2


async def test_a_lease_that_ends_between_two_steps_is_not_renewed(autojump_clock, monkeypatch) -> None:
    monkeypatch.setattr(renewals, "LEASES_PER_STEP", 1)
    first, second = Noted(RARELY_SAVED, renew_at=1.0), Noted(RARELY_SAVED, renew_at=1.0)

    def end_the_second() -> None:
        Noted.renew_soon(first)
        second.has_ended, second.renew_at = True, inf

    first.renew_soon = end_the_second
    async with renewing(RARELY_SAVED, first, second):
        await trio.sleep(2)
    assert (first.renewed, second.renewed) == ([1.0], [])
