"""docs/guarantees.md: each rule has its row, and what it names as evidence exists."""

from __future__ import annotations

import re

from tests.paths import ROOT

PAGE = (ROOT / "docs" / "guarantees.md").read_text()
RULES = re.findall(r"^\| (R\d+) [^|]+\|[^|]+\|[^|]*\| ([^|]+) \|$", PAGE, re.MULTILINE)


def test_the_page_has_each_rule_of_the_architecture_in_its_order():
    architecture = re.findall(r"^\| (R\d+) ", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE)
    assert [rule for rule, _ in RULES] == architecture


def test_the_evidence_of_each_rule_exists():
    makefile = (ROOT / "Makefile").read_text()
    for rule, evidence in RULES:
        tests = re.findall(r"`(tests/[\w/]+\.py)`", evidence)
        assert tests, rule
        assert [path for path in tests if not (ROOT / path).exists()] == []
        for target in re.findall(r"`make ([\w-]+)", evidence):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
