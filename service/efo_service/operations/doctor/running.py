"""Runs checks at the same time, each within its own time limit, and after those that it needs; what each has found."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeVar

import trio

from efo.exception_groups import leaf_exceptions
from efo.third_party_errors import reason_of
from efo_service.exit_codes import Exit, code_of


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


Result = Literal["passed", "failed", "not tested"]

_ADVICE: Final = re.compile(
    r"[;:.,] (?=(?:as the owner|check|choose|correct|create|expected|free|give|grant|install|renew|restore|set|the"
    r" credentials need|pip install|the principal needs|upgrade|use)\b)",
    re.IGNORECASE,
)
"""Where the remedy begins in the message of an error: efo's messages say what, where, and then what to do."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a check found.

    `detail`: what was found, or why it was not tested. `remedy`: what to do if it failed. `code`: the exit code that
    a failure asks for.
    """

    result: Result
    detail: str
    remedy: str = ""
    code: Exit = Exit.OK


def passed(detail: str) -> Outcome:
    """Return the outcome of a check that found no problem."""
    return Outcome("passed", detail)


def not_tested(reason: str) -> Outcome:
    """Return the outcome of a check that did not test anything."""
    return Outcome("not tested", reason)


def failed(detail: str, remedy: str, code: Exit = Exit.UNAVAILABLE) -> Outcome:
    """Return the outcome of a check that found a problem: something is unavailable, unless `code` says otherwise."""
    return Outcome("failed", detail, remedy, code)


def failed_by(error: BaseException, remedy: str) -> Outcome:
    """Return the outcome of a check that raised an error. `remedy`: used if the error's message has none.

    The exit code is that with which another command would report the error.
    """
    code = code_of(error)
    leaf = next(leaf_exceptions(error))
    if isinstance(leaf, OSError):
        where = f"{leaf.filename}: " if isinstance(leaf.filename, str) else ""
        return failed(f"{where}{reason_of(leaf)}", remedy)
    if code is Exit.INTERNAL:
        return failed(reason_of(leaf), "this is a defect of efo: please report it", code)
    detail, advice = split_advice(" ".join(str(leaf).split()))
    return failed(detail, advice or remedy, code)


def split_advice(message: str) -> tuple[str, str]:
    """Return what an error's message says happened, and the remedy that follows it; "" if it has none."""
    found = _ADVICE.search(message)
    return (message, "") if found is None else (message[: found.start()], message[found.end() :])
