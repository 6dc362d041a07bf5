"""Whom to kill next, and when: seeded dice, and patience until a victim does its work again."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import trio

from efo.errors import EfoError
from efo.exception_groups import collapse_groups
from efo_service.demo.children import Child, ChildFailedError

LOOK_SECONDS = 0.1
STALLED_SECONDS = 300.0
"""Without progress for so long after a restart, the run has failed; Spark's start takes a tenth of it."""


@dataclass(slots=True)
class Victim:
    """A kind of process: some children that share its work, and a number that grows while they do it.

    `left`: how many kills are before it. `linger`: at most so many seconds it works on after its progress shows.
    `failures`: how often it may end by itself and is started again, as an orchestrator would: Spark gives its Python
    workers ten seconds to start, and a busy machine may need more. `restarts`: how often it was.
    """

    name: str
    children: list[Child]
    progress: Callable[[], Awaitable[int]]
    left: int
    linger: float
    failures: int = 0
    done: int = 0
    restarts: int = 0

    async def check(self, tell: Callable[[str], None]) -> bool:
        """Start again what has ended by itself; tell whether something had. Raises ChildFailedError after too many."""
        restarted = False
        for child in self.children:
            try:
                child.check()
            except ChildFailedError as error:
                if self.restarts == self.failures:
                    raise
                self.restarts += 1
                tell(f"{error}\n{self.name} {child.name} is started again")
                await child.start()
                restarted = True
        return restarted


@dataclass(slots=True)
class Killer:
    """Kills what works, with SIGKILL, and starts it again, until each victim has had its kills."""

    seed: int
    tell: Callable[[str], None]
    kills: int = 0
    _dice: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._dice = random.Random(self.seed)  # noqa: S311 - a draw that can be repeated, not a secret

    async def run(self, victims: list[Victim]) -> None:
        """Kill each victim as often as it says; different victims independently of each other."""
        with collapse_groups():
            async with trio.open_nursery() as nursery:
                for victim in victims:
                    nursery.start_soon(self._hunt, victim, random.Random(self._dice.random()))  # noqa: S311 - the same

    async def _hunt(self, victim: Victim, dice: random.Random) -> None:
        while victim.left:
            await self._works(victim)
            await trio.sleep(dice.uniform(0, victim.linger))
            child = dice.choice(victim.children)
            await victim.check(self.tell)
            await child.kill()
            victim.left -= 1
            victim.done += 1
            self.kills += 1
            self.tell(f"{victim.name} {child.name} killed, {victim.left} more to come")
            await child.start()

    async def _works(self, victim: Victim) -> None:
        """Wait until a victim has done something since now."""
        before = await victim.progress()
        deadline = trio.current_time() + STALLED_SECONDS
        while await victim.progress() == before:
            if trio.current_time() > deadline:
                raise EfoError(f"{victim.name}: no progress for {STALLED_SECONDS:g} s after a restart")
            if await victim.check(self.tell):
                deadline = trio.current_time() + STALLED_SECONDS
            await trio.sleep(LOOK_SECONDS)


async def until(victim: Victim, records: int, tell: Callable[[str], None]) -> None:
    """Wait until everything is there. Raises EfoError if a child ends, or nothing moves for too long."""
    before, moved_at = -1, trio.current_time()
    while (now := await victim.progress()) < records:
        if now != before:
            before, moved_at = now, trio.current_time()
        if trio.current_time() - moved_at > STALLED_SECONDS:
            raise EfoError(f"{now} of {records} records, and no more for {STALLED_SECONDS:g} s")
        if await victim.check(tell):
            moved_at = trio.current_time()
        await trio.sleep(LOOK_SECONDS)


def hold_back(victims: list[Victim], records: int) -> Callable[[int], Awaitable[None]]:
    """Return what makes the load wait for the kills: a share of the records for each, so that none is without work."""
    total = sum(victim.left for victim in victims) + 1

    async def hold(produced: int) -> None:
        while produced < records and produced / records > _share(victims, total):  # noqa: ASYNC110 - kills are counted
            await trio.sleep(LOOK_SECONDS)

    return hold


def _share(victims: list[Victim], total: int) -> float:
    if not any(victim.left for victim in victims):
        return 1.0
    return (sum(victim.done for victim in victims) + 1) / total
