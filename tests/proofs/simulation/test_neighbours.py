"""Worlds with two consumers: of two streams or two applications, in the same processes. They must not mix."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice

import pytest
import trio
import trio.testing

from efo.leases.store import LeaseScope
from efo.testing import FakeKinesis
from proofs.simulation.constants import perturbed
from proofs.simulation.plan import Plan, plan
from proofs.simulation.run import run
from proofs.simulation.store_faults import LeaseRows
from proofs.simulation.story import Crashed
from proofs.simulation.world import STREAM, World

pytestmark = pytest.mark.runner

MAX_WORLDS = 20
LONGEST = 60.0
"""The longest worlds, in virtual seconds: others take more time than they show here."""


def plans(*, shares_stream: bool) -> Iterator[Plan]:
    """Yield the plans of the first worlds with two consumers."""
    found = (
        candidate
        for candidate in map(plan, count())
        if candidate.neighbour is not None
        and candidate.shares_stream == shares_stream
        and candidate.calm_from < LONGEST
    )
    return islice(found, MAX_WORLDS)


def allow_any_store(_scope: LeaseScope, _application: str, _stream: str) -> None:
    pass


def run_world(world: World) -> World:
    with perturbed(world.plan.intervals):
        trio.run(world.run, clock=trio.testing.MockClock(autojump_threshold=0))
    return world


@pytest.mark.parametrize("shares_stream", [False, True], ids=["two streams", "two applications"])
def test_both_consumers_read_their_records_by_leases_of_their_own(*, shares_stream: bool) -> None:
    world = run_world(World(next(plans(shares_stream=shares_stream))))
    first, second = world.consumers
    assert (first.stream == second.stream) == shares_stream
    assert (first.application == second.application) != shares_stream
    assert first.rows.store is not second.rows.store
    assert first.checks.records
    assert second.checks.records
    assert first.checks.problems == second.checks.problems == []


@pytest.mark.parametrize("shares_stream", [False, True], ids=["two streams", "two applications"])
def test_a_store_that_lets_a_second_consumer_in_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, *, shares_stream: bool
) -> None:
    monkeypatch.setattr(LeaseScope, "ensure", allow_any_store)
    problems = run(next(plans(shares_stream=shares_stream)).seed).problems
    assert any("can be opened with the lease store of" in problem for problem in problems), problems


@pytest.mark.parametrize("shares_stream", [False, True], ids=["two streams", "two applications"])
def test_a_checkpoint_of_the_other_consumer_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, *, shares_stream: bool
) -> None:
    monkeypatch.setattr(LeaseScope, "ensure", allow_any_store)

    def has_problem(seed: int) -> bool:
        rows = LeaseRows()
        monkeypatch.setattr("proofs.simulation.world.LeaseRows", lambda: rows)
        return any("but its lease has" in problem for problem in run(seed).problems)

    assert any(has_problem(plan.seed) for plan in plans(shares_stream=shares_stream))


def test_records_of_the_other_stream_are_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    client_of = FakeKinesis.kinesis
    monkeypatch.setattr(FakeKinesis, "kinesis", lambda fake, _stream: client_of(fake, STREAM))
    problems = (problem for plan in plans(shares_stream=False) for problem in run(plan.seed).problems)
    assert any("that was not put there" in problem for problem in problems)


def test_the_consumers_of_a_process_crash_together() -> None:
    def crashes(world: World) -> set[float]:
        return {at for at, line in world.story.lines if isinstance(line, Crashed)}

    worlds = (run_world(World(plan)) for plan in plans(shares_stream=False))
    assert any(crashes(world) & crashes(world.consumers[1]) for world in worlds)
