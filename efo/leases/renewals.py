"""Renews the held leases of a worker, saves the progress of their readers, and gives up what could not be renewed."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Final

import trio

from efo.leases.held_lease import HeldLease, LeaseTiming

COALESCING_SHARE: Final = 0.25
"""A lease is renewed together with others, up to this share of the interval before it is due: so few batches do."""

LEASES_PER_STEP: Final = 1000
"""How many leases are renewed before other tasks run: the renewals of 4,000 at once take 50 ms of CPU time."""

MIN_CHECK_SHARE: Final = 0.1
"""Minimum time between two looks at the progress of all readers, as a share of the checkpoint interval."""


class Renewals:
    """One task for all leases in `held`. It waits for no write: a write that hangs delays nothing (rule R10)."""

    def __init__(self, held: Mapping[str, HeldLease], timing: LeaseTiming) -> None:
        self._held = held
        self._timing = timing
        self._scope = trio.CancelScope(deadline=inf)
        # Otherwise each renewal comes in time for the progress too.
        self._saves_between = timing.checkpoint_seconds < timing.renewal_interval

    def due(self, held: HeldLease) -> None:
        """Consider that a lease is due earlier than it was."""
        due = min(held.renew_at, held.trusted_until)
        if self._saves_between:
            due = min(due, held.next_save_check(trio.current_time()))
        self._scope.deadline = min(self._scope.deadline, due)

    async def run(self) -> None:
        """Renew leases until cancelled. Raises LeaseStoreCorruptError."""
        async with trio.open_nursery() as nursery:
            while True:
                now = trio.current_time()
                await self._renew(nursery, now)
                await self._wait(now)

    async def _wait(self, now: float) -> None:
        leases = self._held.values()
        deadline = min((min(held.renew_at, held.trusted_until) for held in leases), default=inf)
        if self._saves_between:
            check = min((held.next_save_check(now) for held in leases), default=inf)
            deadline = min(deadline, max(check, now + MIN_CHECK_SHARE * self._timing.checkpoint_seconds))
        with trio.CancelScope(deadline=deadline) as self._scope:
            await trio.sleep_forever()

    async def _renew(self, nursery: trio.Nursery, now: float) -> None:
        horizon = now + COALESCING_SHARE * self._timing.renewal_interval
        leases = list(self._held.values())
        for held in leases:
            if held.trusted_until <= now:
                held.expire()
            elif (error := held.unresolved) is not None:
                held.unresolved, held.renew_at = None, inf
                nursery.start_soon(held.resolve, error)
        # Those that are nearly due go with those that are due, so that a few batches renew all.
        is_any_due = any(held.renew_at <= now for held in leases)
        for count, held in enumerate(leases, 1):
            is_due = (is_any_due and held.renew_at <= horizon) or (self._saves_between and held.save_at() <= now)
            if is_due and not held.has_ended:
                held.renew_soon()
            if count % LEASES_PER_STEP == 0:
                await trio.lowlevel.checkpoint()
