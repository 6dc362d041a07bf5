"""Runs checks at the same time, each within its own time limit, and after those on which it depends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Generic, TypeVar

import trio

from efo_service.operations.doctor.outcomes import Outcome, failed, failed_by, not_tested


@dataclass(frozen=True, slots=True)
class Check:
    """One check.

    `name`: unique. `run`: returns what it found; an exception is a failure. `needs`: the names of the checks without
    which this one makes no sense. They come earlier in the list. `remedy`: what to do if it takes too long, or fails
    with an error that does not say so.
    """

    name: str
    run: Callable[[], Awaitable[Outcome]]
    remedy: str
    needs: tuple[str, ...] = ()


def untested(name: str, reason: str) -> Check:
    """Return a check of what cannot be tested without doing harm. It is listed, so that nobody believes it passed."""

    async def run() -> Outcome:
        return not_tested(reason)

    return Check(name, run, "")


def missing_package(name: str, detail: str, remedy: str) -> Check:
    """Return a check that fails, since the package that it needs is not installed."""

    async def run() -> Outcome:
        return failed(detail, remedy)

    return Check(name, run, remedy)


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of a named check."""

    name: str
    outcome: Outcome


Show = Callable[[Sequence[str], int, int], None]
"""Shows progress: the names of the running checks, how many have ended, and how many there are."""


def _show_nothing(_running: Sequence[str], _ended: int, _total: int) -> None: ...


async def run_checks(checks: Sequence[Check], seconds: float, show: Show = _show_nothing) -> list[Finding]:
    """Run all checks, and return their findings in the order of the list.

    `seconds`: the time limit of each check, without the time in which it waits for those that it needs. A check that
    hangs does not stop the others. A check is not tested if one that it needs has failed. One that it needs and that
    tested nothing is no obstacle. `show`: called whenever a check begins or ends.
    """
    _refuse_wrong_order(checks)
    outcomes: dict[str, Outcome] = {}
    causes: dict[str, str] = {}  # the check whose failure is behind that of another
    running: dict[str, None] = {}
    ended = {check.name: trio.Event() for check in checks}

    async def run(check: Check) -> None:
        for need in check.needs:
            await ended[need].wait()
        cause = next((causes[need] for need in check.needs if need in causes), None)
        if cause is None:
            running[check.name] = None
            show([*running], len(outcomes), len(checks))
            outcome = await _run_one(check, seconds)
            del running[check.name]
            cause = check.name if outcome.result == "failed" else None
        else:
            outcome = not_tested(f"{cause} failed")
        if cause is not None:
            causes[check.name] = cause
        outcomes[check.name] = outcome
        ended[check.name].set()
        show([*running], len(outcomes), len(checks))

    async with trio.open_nursery() as nursery:
        for check in checks:
            nursery.start_soon(run, check)
    return [Finding(check.name, outcomes[check.name]) for check in checks]


async def _run_one(check: Check, seconds: float) -> Outcome:
    with trio.move_on_after(seconds):
        try:
            return await check.run()
        except Exception as error:  # noqa: BLE001 - one check must not stop the others
            return failed_by(error, check.remedy)
    return failed(f"no result within {seconds:g} s", f"{check.remedy}; --timeout gives each check more time")


def _refuse_wrong_order(checks: Sequence[Check]) -> None:
    known: set[str] = set()
    for check in checks:
        if check.name in known or not known.issuperset(check.needs):
            raise ValueError(f"{check.name}: its name is taken, or a check that it needs does not come earlier")
        known.add(check.name)


T = TypeVar("T")


class SharedResource(Generic[T]):
    """Opens a resource when a check first needs it, and keeps it open until the nursery is cancelled.

    A task of its own holds it, since the check that opens it ends before the others. If opening fails or takes too
    long for one check, the next one tries again.
    """

    def __init__(self, nursery: trio.Nursery, open_it: Callable[[], AbstractAsyncContextManager[T]]) -> None:
        self._nursery = nursery
        self._open = open_it
        self._opening = trio.Lock()
        self._opened: list[T] = []

    async def get(self) -> T:
        """Return the resource. Raises what opening it raises."""
        async with self._opening:
            if not self._opened:
                self._opened.append(await self._nursery.start(self._hold))
            return self._opened[0]

    async def _hold(self, task_status: trio.TaskStatus[T]) -> None:
        async with self._open() as resource:
            task_status.started(resource)
            await trio.sleep_forever()
