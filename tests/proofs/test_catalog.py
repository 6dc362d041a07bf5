"""The catalog of proofs: make has a target for each, its module exists, and the command lists and starts them."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys

import pytest

from proofs import __main__ as command
from proofs.catalog import PROOFS, find
from tests import makefile
from tests.paths import ROOT

MAKE = "make"
ALL = [proof for proofs in PROOFS.values() for proof in proofs]


@pytest.mark.parametrize("proof", ALL, ids=lambda proof: proof.name)
def test_its_module_can_be_run(proof):
    module = ROOT / (proof.module.replace(".", "/") + ".py")
    assert module.exists() or module.with_suffix("").joinpath("__main__.py").exists()


@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
@pytest.mark.parametrize("proof", ALL, ids=lambda proof: proof.name)
def test_it_says_what_it_takes_and_runs_nothing(proof, monkeypatch, capsys):
    """`ARGS="--help"` is what the list advises."""
    monkeypatch.setattr(sys, "argv", [proof.name, "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(proof.module, run_name="__main__")
    assert not ended.value.code
    assert capsys.readouterr().out.lower().startswith("usage: ")


def test_make_has_a_target_for_each_row():
    query = subprocess.run(
        [MAKE, "--print-data-base", "--question", "help"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    (names,) = [line.partition(":=")[2].split() for line in query.stdout.splitlines() if line.startswith("PROOFS :=")]
    assert names == [proof.name for proof in ALL]
    assert len(set(names)) == len(names)
    assert set(names) <= makefile.TARGETS


def test_the_table_and_the_json_have_each_proof(capsys):
    assert command.main([]) == os.EX_OK
    table = capsys.readouterr().out
    assert command.main(["--json"]) == os.EX_OK
    rows = json.loads(capsys.readouterr().out)
    for proof in ALL:
        assert f"make {proof.name} " in table
    assert [row["name"] for row in rows] == [proof.name for proof in ALL]


def test_a_proof_is_started_with_its_arguments(monkeypatch):
    started = []
    monkeypatch.setattr(os, "execv", lambda path, arguments: started.append((path, arguments)) or 0)
    command.main(["sim", "--seeds", "7"])
    assert started == [(sys.executable, [sys.executable, "-m", "proofs.simulation", "--seeds", "7"])]


def test_an_unknown_proof_is_refused(capsys):
    assert find("sims") is None
    assert command.main(["sims"]) == os.EX_USAGE
    assert "there is no proof 'sims'" in capsys.readouterr().err
    assert command.main(["--help"]) == os.EX_OK
