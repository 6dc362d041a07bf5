"""`python -m proofs.simulation`: its line of JSON, its exit status, and its report of a failing seed."""

from __future__ import annotations

import json

import pytest

from proofs.catalog import find
from proofs.simulation import __main__ as command
from proofs.simulation.run import Outcome, run
from proofs.simulation.world import Tally
from tests import makefile

KEYS = [
    "seeds", "failures", "records", "splits", "merges", "faults", "crashes", "duplicates_unexplained", "virtual_hours",
    "seconds", "marks_never_reached", "marks",
]  # fmt: skip


def test_the_last_line_is_a_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--seeds", "2", "--first", "1", "--jobs", "1"]) == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert list(summary) == KEYS
    assert summary["seeds"] == 2
    assert summary["failures"] == summary["duplicates_unexplained"] == 0
    assert summary["records"] == run(1).records + run(2).records


def test_a_failing_seed_is_reported_with_its_story_and_the_command_to_repeat_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(seed: int) -> Outcome:
        problems = ("made up",) if seed == 1 else ()
        return Outcome(seed, problems, 1, 0, 0, Tally(), 0.1, story="the end")

    monkeypatch.setattr(command, "run", broken)
    assert command.main(["--seeds", "3", "--jobs", "1"]) == 1
    out = capsys.readouterr().out
    assert "seed 1 failed:\n  - made up" in out
    assert "the end\nrepeat it: make sim ARGS='--seed 1'" in out
    assert json.loads(out.splitlines()[-1])["failures"] == 1


def test_seed_prints_the_story_of_one_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--seed", "2", "--lines", "5"]) == 0
    *story, digest, summary = capsys.readouterr().out.splitlines()
    assert len(story) == 5
    assert digest == f"digest {run(2, digest=True).digest}"
    assert json.loads(summary)["seeds"] == 1


def test_an_exception_from_a_world_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_world: object) -> None:
        raise RuntimeError("made up")

    monkeypatch.setattr("proofs.simulation.world.World.run", fail)
    (problem,) = run(2).problems
    assert "RuntimeError: made up" in problem


@pytest.mark.parametrize("option", ["--seeds", "--jobs", "--lines"])
def test_a_number_below_one_is_rejected(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main([option, "0"])
    assert f"{option} 0: expected 1 or more" in capsys.readouterr().err


def test_the_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--help"])
    assert "make sim SEEDS=500" in capsys.readouterr().out


def test_make_sim_runs_the_command() -> None:
    assert find("sim").module == "proofs.simulation"
    assert "sim: ALWAYS = --seeds $(SEEDS)\n" in makefile.TEXT
