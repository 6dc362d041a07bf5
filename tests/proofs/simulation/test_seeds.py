"""The first worlds that `make sim` runs: enough to see that worlds run and pass. The proof is `make sim`."""

from __future__ import annotations

import pytest

from proofs.simulation.run import run

SEEDS = 40
CHUNK = 5
FIRST = [0, *(pytest.param(first, marks=pytest.mark.runner) for first in range(CHUNK, SEEDS, CHUNK))]


@pytest.mark.parametrize("first", FIRST)
def test_seeds_break_no_guarantee(first: int) -> None:
    for seed in range(first, first + CHUNK):
        outcome = run(seed)
        assert not outcome.problems, f"seed {seed}: {outcome.problems}\n{outcome.story}"
