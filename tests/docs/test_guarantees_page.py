"""docs/guarantees.md: each rule has its row, all that is dropped has one, and what they name exists."""

from __future__ import annotations

import logging
import re
from typing import get_args

import pytest

from efo import events
from efo_service.telemetry import logs
from tests import makefile
from tests.paths import ROOT
from tools.docs.reference import outage_lines, service_lines

PAGE = (ROOT / "docs" / "guarantees.md").read_text()
RULES = re.findall(r"^\| (R\d+) [^|]+\|[^|]+\|[^|]*\| ([^|]+) \|$", PAGE, re.MULTILINE)


def test_the_page_has_each_rule_of_the_architecture_in_its_order():
    architecture = re.findall(r"^\| (R\d+) ", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE)
    assert [rule for rule, _ in RULES] == architecture


def test_the_evidence_of_each_rule_exists():
    for rule, evidence in RULES:
        tests = re.findall(r"`(tests/[\w/]+\.py)`", evidence)
        assert tests, rule
        assert [path for path in tests if not (ROOT / path).exists()] == []
        for target in re.findall(r"`make ([\w-]+)", evidence):
            assert target in makefile.TARGETS, target


# --- what is dropped ----------------------------------------------------------------------------------------

DROPS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.split("<!-- drops -->")[1].split("<!-- end -->")[0].splitlines()
    if line.startswith("| ") and not line.startswith("| what")
]
ROWS = [row for row in DROPS if not row[0].startswith("**")]
CODE = {path: path.read_text() for folder in ("efo", "service") for path in (ROOT / folder).rglob("*.py")}
EVENTS = set(get_args(events.Event))
LINE_OF = {kind.__name__: name for kind, name in logs._NAMES.items()}
LINES = {*LINE_OF.values(), *outage_lines(), *(name for name, *_ in service_lines())}


def names(row, kind: str) -> list[str]:
    return re.findall(rf"\b{kind} `([^`]+)`", row[2])


def is_in_code(text: str) -> bool:
    return any(text in code for code in CODE.values())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:50])
def test_what_a_row_names_exists(row):
    what, when, seen, _shown = row
    assert what, when
    events_, lines = names(row, "event"), names(row, "line")
    assert set(events_) <= {kind.__name__ for kind in EVENTS}
    assert set(lines) <= LINES
    for name in events_:  # the line of an event is in its row, unless it is at "debug"
        assert LINE_OF[name] in lines or name == "LeaseStoreCalled"
    known = [*names(row, "metric"), *names(row, "attribute"), *names(row, "text")]
    assert [text for text in known if not is_in_code(text)] == []
    assert [name for name in names(row, "error") if not is_in_code(f"class {name}(")] == []
    reported = len(re.findall(r"`[^`]+`", seen))
    assert reported == len([*events_, *lines, *known, *names(row, "error")]) + seen.count("`/status`")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:50])
def test_what_a_row_names_is_seen_in_its_tests(row):
    paths = re.findall(r"`(tests/[\w/]+\.py)`", row[3])
    text = "".join((ROOT / path).read_text() for path in paths)
    assert paths
    events_ = names(row, "event")
    of_events = {LINE_OF[name] for name in events_}
    for name in (
        *events_,
        *(line for line in names(row, "line") if line not in of_events),
        *(name for kind in ("attribute", "text", "error") for name in names(row, kind)),
    ):
        assert name in text, (name, paths)
    if "`/status`" in row[2]:
        assert "problems()" in text


def test_each_warning_about_an_event_is_in_a_row():
    warned = {
        kind.__name__
        for kind in EVENTS
        for value in (None, "x")
        if logs.severity_of(kind(**dict.fromkeys(kind.__struct_fields__, value))) >= logging.WARNING
    }
    assert warned <= {name for row in ROWS for name in names(row, "event")}
