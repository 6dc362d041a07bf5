"""Chooses which process to kill next and when, from a seed, and waits until a killed process works again."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import trio

from efo.errors import EfoError
from efo.exception_groups import collapse_groups
from efo_service.demo.demo import ChildFailedError, DemoProcess

POLL_SECONDS = 0.1
STALLED_SECONDS = 300.0
"""The run fails after this time without progress. Spark starts in a tenth of it."""


@dataclass(slots=True)
class Target:
    """A kind of process to kill: children that share its work.

    `progress`: returns a count that grows while they work. `kills_left`: number of kills still to do. `max_delay`: most
    seconds between progress and the next kill. `max_restarts`: how often a child may end without a kill and is
    restarted, as an orchestrator would do. Spark needs this: its Python workers have ten seconds to start, which may be
    too short on a busy machine. `restarts`: how often it happened.
    """

    name: str
    children: list[DemoProcess]
    progress: Callable[[], Awaitable[int]]
    kills_left: int
    max_delay: float
    max_restarts: int = 0
    kills_done: int = 0
    restarts: int = 0

    async def restart_ended(self, report: Callable[[str], None]) -> bool:
        """Restart children that have ended without a kill, and return whether there were any.

        Raises ChildFailedError after `max_restarts` restarts.
        """
        restarted = False
        for child in self.children:
            try:
                child.check()
            except ChildFailedError as error:
                if self.restarts == self.max_restarts:
                    raise
                self.restarts += 1
                report(f"{error}\n{self.name} {child.name} is restarted")
                await child.start()
                restarted = True
        return restarted


@dataclass(slots=True)
class Killer:
    """Kills children of each target with SIGKILL and restarts them, until no kills are left."""

    seed: int
    report: Callable[[str], None]
    kills: int = 0
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)  # noqa: S311 - must be repeatable; not a secret

    async def run(self, targets: list[Target]) -> None:
        """Do all kills. Targets are killed independently of each other."""
        with collapse_groups():
            async with trio.open_nursery() as nursery:
                for target in targets:
                    nursery.start_soon(self._kill_repeatedly, target, random.Random(self._random.random()))  # noqa: S311 - the same

    async def _kill_repeatedly(self, target: Target, rng: random.Random) -> None:
        while target.kills_left:
            await self._wait_for_progress(target)
            await trio.sleep(rng.uniform(0, target.max_delay))
            child = rng.choice(target.children)
            await target.restart_ended(self.report)
            await child.kill()
            target.kills_left -= 1
            target.kills_done += 1
            self.kills += 1
            self.report(f"{target.name} {child.name} killed, {target.kills_left} kills left")
            await child.start()

    async def _wait_for_progress(self, target: Target) -> None:
        """Wait until a target has made progress since this call. Raises EfoError if it makes none for too long."""
        before = await target.progress()
        deadline = trio.current_time() + STALLED_SECONDS
        while await target.progress() == before:
            if trio.current_time() > deadline:
                raise EfoError(f"{target.name}: no progress for {STALLED_SECONDS:g} s after a restart")
            if await target.restart_ended(self.report):
                deadline = trio.current_time() + STALLED_SECONDS
            await trio.sleep(POLL_SECONDS)


async def wait_for_records(target: Target, records: int, report: Callable[[str], None]) -> None:
    """Wait until the target's progress reaches `records`. Raises EfoError if a child fails or progress stalls."""
    before, moved_at = -1, trio.current_time()
    while (now := await target.progress()) < records:
        if now != before:
            before, moved_at = now, trio.current_time()
        if trio.current_time() - moved_at > STALLED_SECONDS:
            raise EfoError(f"{now} of {records} records, and no more for {STALLED_SECONDS:g} s")
        if await target.restart_ended(report):
            moved_at = trio.current_time()
        await trio.sleep(POLL_SECONDS)


def pace_load(targets: list[Target], records: int) -> Callable[[int], Awaitable[None]]:
    """Return a function that makes the load wait for the kills.

    Each kill releases an equal share of the records, so that a target always has work before its next kill.
    """
    total = sum(target.kills_left for target in targets) + 1

    async def wait(produced: int) -> None:
        while produced < records and produced / records > _released_share(targets, total):  # noqa: ASYNC110 - polls kill counts
            await trio.sleep(POLL_SECONDS)

    return wait


def _released_share(targets: list[Target], total: int) -> float:
    if not any(target.kills_left for target in targets):
        return 1.0
    return (sum(target.kills_done for target in targets) + 1) / total
