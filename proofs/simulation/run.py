"""Runs the world of a seed, the same way each time and everywhere."""

from __future__ import annotations

import random
import time
import traceback
from dataclasses import dataclass, replace
from typing import Any

import trio
import trio.testing

from proofs.simulation.plan import plan
from proofs.simulation.world import Tally, World


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one seed. `problems`: what broke a promise; `story`: its end, where there are any."""

    seed: int
    problems: tuple[str, ...]
    records: int
    duplicates: int
    unexplained: int
    tally: Tally
    seconds: float
    story: str = ""
    digest: str = ""


def run(seed: int, *, lines: int = 60, digest: bool = False, always_tell: bool = False) -> Outcome:
    """Run a seed. `lines`: how much of its story to keep if it fails, or always; `digest`: whether to take that."""
    began = time.process_time()
    _pin(seed)
    world = World(plan(seed))
    raised: list[str] = []
    try:
        trio.run(world.run, clock=trio.testing.MockClock(autojump_threshold=0))
    except Exception as error:  # noqa: BLE001 - whatever a world raises is what was looked for
        raised.append("".join(traceback.format_exception(error)))
    problems = [*world.checks.problems, *raised]
    outcome = Outcome(
        seed,
        tuple(problems),
        world.checks.records,
        world.checks.duplicates,
        world.checks.unexplained,
        world.tally,
        time.process_time() - began,
        story=world.story.end(lines) if problems or always_tell else "",
    )
    return replace(outcome, digest=world.story.digest()) if digest else outcome


def _pin(seed: int) -> None:
    """Let trio wake tasks in the same order each time: it shuffles those that are ready, by a generator of its own."""
    schedule: Any = trio._core._run
    schedule._ALLOW_DETERMINISTIC_SCHEDULING = True
    schedule._r.seed(seed)
    random.seed(seed)
