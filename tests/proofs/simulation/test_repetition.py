"""A seed is the same world each time: in this process, and in another one with other hashes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from proofs.simulation.plan import plan
from proofs.simulation.run import run
from tests.paths import ROOT

SEEDS = (0, 1, 2, 4)
"""One of each kind of reader."""

CODE = """
import sys
from proofs.simulation.run import run
print(*[run(int(seed), digest=True).digest for seed in sys.argv[1:]])
"""


def test_the_seeds_are_of_every_kind() -> None:
    assert {plan(seed).reader for seed in SEEDS} == {"batches", "records", "plain", "sink"}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_repeats_in_a_process(seed: int) -> None:
    first, second = run(seed, digest=True), run(seed, digest=True)
    assert first.digest == second.digest
    assert first.tally == second.tally


def test_seeds_differ() -> None:
    assert len({run(seed, digest=True).digest for seed in SEEDS}) == len(SEEDS)


def test_a_seed_repeats_in_another_process() -> None:
    told = [elsewhere(hash_seed) for hash_seed in ("1", "4711")]
    assert told[0] == told[1] == [run(seed, digest=True).digest for seed in SEEDS]


def elsewhere(hash_seed: str) -> list[str]:
    arguments = [sys.executable, "-c", CODE, *map(str, reversed(SEEDS))]
    environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(arguments, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()[::-1]
