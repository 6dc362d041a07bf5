"""A seed is the same world in each run, also in another process with another hash seed."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache

import pytest

from proofs.simulation.plan import plan
from proofs.simulation.run import Outcome, run
from tests.paths import ROOT

pytestmark = pytest.mark.runner

SEEDS = (0, 1, 2, 4, 25, 64, 78)
"""One seed for each kind of reader, one with a log, one with a file of leases that crashes, a start AT_TIMESTAMP, and a
second consumer of each kind."""

CODE = """
import sys
from proofs.simulation.run import run
print(*[run(int(seed), digest=True).digest for seed in sys.argv[1:]])
"""


def test_the_seeds_have_every_kind_of_world() -> None:
    assert {plan(seed).reader for seed in SEEDS} == {"batches", "records", "stream", "sink"}
    assert any(plan(seed).log for seed in SEEDS)
    assert any(plan(seed).at_time is not None for seed in SEEDS)
    assert any(plan(seed).constants for seed in SEEDS)
    assert {plan(seed).shares_stream for seed in SEEDS if plan(seed).neighbour} == {False, True}
    assert any((file := plan(seed).lease_file) and file.kill and file.power for seed in SEEDS)


@cache
def first(seed: int) -> Outcome:
    return run(seed, digest=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_repeats_in_the_same_process(seed: int) -> None:
    second = run(seed, digest=True)
    assert first(seed).digest == second.digest
    assert first(seed).tally == second.tally


def test_different_seeds_have_different_stories() -> None:
    assert len({first(seed).digest for seed in SEEDS}) == len(SEEDS)


def test_a_seed_repeats_in_another_process_with_another_hash_seed() -> None:
    hash_seed = "4711" if os.environ.get("PYTHONHASHSEED") != "4711" else "1"
    assert digests_in_another_process(hash_seed) == [first(seed).digest for seed in SEEDS]


def digests_in_another_process(hash_seed: str) -> list[str]:
    arguments = [sys.executable, "-c", CODE, *map(str, reversed(SEEDS))]
    environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": f"{ROOT}:{ROOT / 'service'}"}
    completed = subprocess.run(arguments, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return completed.stdout.split()[::-1]
