"""Worlds that start AT_TIMESTAMP: before, in and at the end of a history, and they notice a loss."""

from __future__ import annotations

from itertools import count, islice

import pytest

from efo.consumer import shard_sync
from efo.consumer.consumer import Consumer
from efo.model import Lease, Position
from proofs.simulation.plan import Plan, plan
from proofs.simulation.run import run

pytestmark = pytest.mark.runner

MAX_WORLDS = 40
QUICKEST = {27, 147}
"""Worlds that show the defects below today, and are small ones: they run first."""


def timed_plans() -> list[Plan]:
    """Return the plans of the first worlds that start AT_TIMESTAMP."""
    return list(islice((found for seed in count() if (found := plan(seed)).at_time is not None), MAX_WORLDS))


def breaks_a_guarantee() -> bool:
    """Return whether a world that starts AT_TIMESTAMP has a problem."""
    return any(run(plan.seed).problems for plan in sorted(timed_plans(), key=lambda plan: plan.seed not in QUICKEST))


def test_the_time_is_before_in_and_at_the_end_of_the_history() -> None:
    plans = timed_plans()
    assert any(plan.at_time < 0.0 for plan in plans if plan.at_time is not None)
    assert any(0.0 < plan.at_time < plan.history for plan in plans if plan.at_time is not None)
    assert any(plan.at_time == plan.history for plan in plans)
    assert not any(plan.at_latest for plan in plans)


def test_a_start_one_second_late_loses_records(monkeypatch: pytest.MonkeyPatch) -> None:
    position_of = Consumer._initial_of

    def late(consumer: Consumer, lease: Lease) -> Position:
        return Position.at_timestamp((position_of(consumer, lease).timestamp or 0.0) + 1.0)

    monkeypatch.setattr(Consumer, "_initial_of", late)
    assert breaks_a_guarantee()


@pytest.mark.parametrize("margin", [-10.0, 15.0], ids=["records are lost", "older records are read"])
def test_another_choice_of_shards_breaks_a_guarantee(monkeypatch: pytest.MonkeyPatch, margin: float) -> None:
    monkeypatch.setattr(shard_sync, "MARGIN", margin)
    assert breaks_a_guarantee()
