"""What a proof downloads, and what its exit status says about what it could not run."""

from __future__ import annotations

import os
import re

import pytest

from proofs.interop.clients.__main__ import exit_status
from proofs.interop.clients.load import RECORDS
from proofs.interop.clients.transcript import Comparison
from proofs.local_servers import installing
from tests import makefile
from tests.paths import ROOT


def test_only_the_servers_of_the_chosen_stores_are_downloaded(capsys):
    asked = []

    def make(target):
        asked.append(target)
        return target != "ministack"

    installing.download(["memory", "sqlite", "redis"], make)
    assert asked == []
    installing.download(["ministack", "dynamodb-local", "ministack"], make)
    assert asked == ["ministack", "dynamodb-local"]
    assert "make ministack has failed" in capsys.readouterr().err


def test_every_download_is_a_target_of_make():
    assert set(installing.TARGETS.values()) <= makefile.TARGETS


def test_each_variable_among_the_prerequisites_of_a_target_is_defined_above_it():
    """Make expands prerequisites when it reads the rule: later, the variable would be empty."""
    known = {"MAKEFILE_LIST"}
    for line in makefile.TEXT.splitlines():
        if defined := re.match(r"([A-Z_]+) *[:?]?=", line):
            known.add(defined[1])
        elif re.match(r"[^\t#][^:=]*:(?! ?[A-Z]* ?=)", line):
            used = set(re.findall(r"\$\(([A-Z_]+)\)", line.partition("##")[0]))
            assert used <= known, line


@pytest.mark.parametrize("tool", ["mvn", "npm"])
def test_each_recipe_that_needs_a_tool_names_it_first(tool):
    """Not the shell: "mvn: not found" does not say what to install."""
    need = {"mvn": "$(NEED_MAVEN)", "npm": "$(NEED_NODE)"}[tool]
    rules = [rule for rule in makefile.TEXT.split("\n\n") if re.search(rf"[\t ]{tool} (--|ci)", rule)]
    assert rules
    for rule in rules:
        lines = rule[rule.index(".ready:") :].splitlines()
        assert lines[1].strip() == need


def test_the_programs_of_each_environment_run_where_the_checkout_is_moved():
    """Otherwise their first lines name the interpreter by the path at which it was installed."""
    made = re.findall(r"\$\(UV\) venv .*", (ROOT / "proofs/proofs.mk").read_text())
    assert made
    assert [line for line in made if "--relocatable" not in line] == []


def test_a_skipped_client_is_no_success():
    good = Comparison(RECORDS, 0, 0, 0, 3, refused_ok=True)
    assert exit_status({"boto3": good}) == 0
    assert exit_status({"boto3": good, "go": {"skipped": "not found: go"}}) == os.EX_UNAVAILABLE
    assert exit_status({"go": {"skipped": "not found: go"}, "boto3": {"failed": "x"}}) == 1
