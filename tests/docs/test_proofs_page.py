"""docs/proofs.md: it lists the proofs of the Makefile, and the operators of the mutants."""

from __future__ import annotations

import re

from proofs.mutants.__main__ import EFO
from proofs.mutants.run import make_plan
from tests import makefile
from tests.paths import ROOT

PAGE = (ROOT / "docs/proofs.md").read_text()


def test_every_target_that_runs_a_proof_is_listed():
    listed = set(re.findall(r"`(?:make )?([a-z0-9-]+)[^`]*`", PAGE.partition("## Mutation testing")[0]))
    proofs = makefile.PROOF_NAMES - {"api"}  # which shows nothing about efo's behaviour
    assert "sim" in proofs
    assert proofs - listed == set()


def test_the_listed_commands_exist():
    named = re.findall(r"`make ([a-z0-9-]+)", PAGE)
    assert [target for target in named if target not in makefile.TARGETS] == []


def test_the_table_has_every_operator_of_the_mutants():
    table = PAGE.partition("| operator | change |")[2].partition("\n\n")[0]
    operators = {mutant.operator for mutant in make_plan(EFO, sample=10**9, seed=0).tried} - {"planted"}
    assert {
        name.strip() for row in re.findall(r"^\| ([^|-]+) \|", table, re.MULTILINE) for name in row.split(",")
    } == operators
