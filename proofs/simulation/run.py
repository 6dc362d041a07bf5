"""Runs the world of a seed. Every run of a seed is the same, on every machine."""

from __future__ import annotations

import random
import time
import traceback
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import trio
import trio.testing

from efo_service.relay import doubt
from proofs.simulation.constants import perturbed
from proofs.simulation.coverage import Coverage
from proofs.simulation.lives import Life, live
from proofs.simulation.plan import plan
from proofs.simulation.rot import RottingLog
from proofs.simulation.story import Rotted
from proofs.simulation.world import Tally, World


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one seed. Times are in seconds.

    `problems`: the broken guarantees. `unexplained`: duplicates that are a defect. `seconds`: CPU time. `story`: the
    last lines of the story, if there are problems or they were asked for.
    """

    seed: int
    problems: tuple[str, ...]
    records: int
    duplicates: int
    unexplained: int
    tally: Tally
    seconds: float
    marks: frozenset[str] = frozenset()
    story: str = ""
    digest: str = ""


def run(seed: int, *, lines: int = 60, digest: bool = False, keep_story: bool = False) -> Outcome:
    """Run a seed.

    `lines`: how many lines of the story to keep. `digest`: also compute the digest of the story. `keep_story`: keep the
    story of a seed without problems too.
    """
    with mock.patch.object(doubt, "PAUSE", 0.0):  # it would block: damage is read again at once
        return _run(seed, lines, digest=digest, keep_story=keep_story)


def _run(seed: int, lines: int, *, digest: bool, keep_story: bool) -> Outcome:
    began = time.process_time()
    _pin(seed)
    world = World(plan(seed))
    raised: list[str] = []
    try:
        with perturbed((*world.plan.intervals, *world.plan.constants)):
            trio.run(world.run, clock=trio.testing.MockClock(autojump_threshold=0))
    except Exception as error:  # noqa: BLE001 - whatever a world raises is a problem to report
        raised.append("".join(traceback.format_exception(error)))
    worlds = world.consumers
    log = RottingLog(seed)
    try:
        log.run()
    except Exception as error:  # noqa: BLE001 - the same
        raised.append("".join(traceback.format_exception(error)))
    life = Life()
    try:
        live(seed, life)
    except Exception as error:  # noqa: BLE001 - the same
        raised.append("".join(traceback.format_exception(error)))
    of_worlds = [problem for each in worlds for problem in each.checks.problems]
    problems = [*of_worlds, *log.problems, *life.problems, *raised]
    outcome = Outcome(
        seed,
        tuple(problems),
        sum(each.checks.records for each in worlds),
        sum(each.checks.duplicates for each in worlds),
        sum(each.checks.unexplained for each in worlds),
        world.tally,
        time.process_time() - began,
        Coverage(world.plan.timing).add_all([Rotted(log.kind), *life.lines]).union(*map(_marks, worlds)),
        story="\n\n".join(each.story.tail(lines) for each in worlds) if problems or keep_story else "",
    )
    return replace(outcome, digest="-".join(each.story.digest() for each in worlds)) if digest else outcome


def _marks(world: World) -> frozenset[str]:
    return Coverage(world.plan.timing).add_all(line for _, line in world.story.lines)


def _pin(seed: int) -> None:
    """Seed trio's scheduler, which otherwise shuffles the tasks that are ready, and the global random generator."""
    schedule: Any = trio._core._run
    schedule._ALLOW_DETERMINISTIC_SCHEDULING = True
    schedule._r.seed(seed)
    random.seed(seed)
