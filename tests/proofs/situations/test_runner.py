"""The runner of situations tells what is wrong, what hangs, crashes, and prints a secret."""

import json
import subprocess
import sys

import pytest

from proofs.paths import ROOT
from proofs.situations.runner import find_situations, summarise, try_in_process

PACKAGE = "tests.proofs.situations.sample"


@pytest.fixture(scope="module")
def seen():
    return {each.name: try_in_process(PACKAGE, each) for each in find_situations(f"{PACKAGE}.cases")}


def test_each_case_is_judged_by_what_it_returns_prints_and_how_its_process_ends(seen) -> None:
    assert {name: each.is_wrong for name, each in seen.items()} == {
        "right one": False,
        "wrong one": True,
        "tells a secret": True,
        "hangs": True,
        "crashes": True,
        "home": False,
    }
    assert (seen["hangs"].is_hung, seen["crashes"].is_crashed, seen["tells a secret"].secrets_found) == (True, True, 1)
    assert seen["hangs"].did == "nothing within 1 s"


def test_the_summary_adds_counts_up_but_for_the_worst_ones(seen) -> None:
    names = ["records_lost_silently", "ms_worst", "hung", "crashed", "secrets_found"]
    assert summarise([*seen.values()], names) == {
        "cases": 6,
        "wrong": 4,
        "records_lost_silently": 2,
        "ms_worst": 7,
        "hung": 1,
        "crashed": 1,
        "secrets_found": 1,
    }


def test_the_command_prints_json_last_and_fails_if_a_case_is_wrong() -> None:
    command = [sys.executable, "-m", PACKAGE, "right one", "wrong one"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert json.loads(run.stdout.splitlines()[-1])["wrong"] == 1
    assert "WRONG  wrong one  lost two" in run.stdout


def test_a_kind_that_does_not_exist_is_refused() -> None:
    run = subprocess.run(
        [sys.executable, "-m", PACKAGE, "clocks"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (run.returncode, "the kinds are sample" in run.stderr) == (64, True)
