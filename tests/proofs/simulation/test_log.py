"""Worlds with the embedded log find the mistakes that only a crash shows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice

import pytest

from efo_service.relay.log import catalog, segments
from proofs.simulation.plan import plan
from proofs.simulation.run import run

MAX_WORLDS = 80


def log_seeds() -> Iterator[int]:
    """Yield the seeds of the worlds whose log meets power failures."""
    return (seed for seed in count() if (log := plan(seed).log) is not None and log.faults.power)


def nothing(_argument: object) -> None:
    pass


@pytest.mark.parametrize(
    ("module", "forgotten"),
    [(segments, "sync"), (segments, "sync_directory"), (catalog, "sync")],
)
def test_a_forgotten_sync_breaks_a_guarantee(monkeypatch: pytest.MonkeyPatch, module: object, forgotten: str) -> None:
    monkeypatch.setattr(module, forgotten, nothing)
    assert any(run(seed).problems for seed in islice(log_seeds(), MAX_WORLDS))
