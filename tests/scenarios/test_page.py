"""docs/guarantees.md and its tool: the tables are up to date, and results are counted by situation."""

import importlib.util
import json
import sys
from types import SimpleNamespace

import pytest

from tests.paths import ROOT


@pytest.fixture
def tool(monkeypatch):
    spec = importlib.util.spec_from_file_location("scenarios", ROOT / "tools" / "scenarios.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "scenarios", module)  # dataclasses look up their module there
    spec.loader.exec_module(module)
    return module


def test_the_tables_are_up_to_date(tool):
    page = tool.PAGE.read_text()
    assert page == tool.renewed(page), "stale: run python -m tools.scenarios --write"


def test_each_situation_from_g1_to_g75_has_a_text(tool):
    assert list(tool.SCENARIOS) == [f"G{n}" for n in range(1, 76)]
    assert len(set(tool.SCENARIOS.values())) == 75


def test_a_page_without_a_place_for_the_tables_is_rejected(tool):
    with pytest.raises(ValueError, match="no place for the tables"):
        tool.renewed("# A page\n")


MARKED = """
import pytest
@pytest.mark.scenario("G1", "G2")
def test_one(): pass
@pytest.mark.scenario("G3")
class TestSome:
    @pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.scenario("G4")), 2])
    async def test_two(self, x): pass
    def test_three(self): pass
@pytest.mark.parametrize("text", ["G5"])
def test_of_something_else(text): pass
def test_unmarked(): pass
"""


def test_markers_are_found_on_tests_classes_and_parameters(tool, tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text(MARKED)
    some = "tests/test_a.py::TestSome::"
    assert tool.marked_tests(tmp_path) == {
        "G1": ["tests/test_a.py::test_one"],
        "G2": ["tests/test_a.py::test_one"],
        "G3": [some + "test_two", some + "test_three"],
        "G4": [some + "test_two"],
    }


def test_a_marker_with_an_unknown_situation_is_rejected(tool, tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text('@pytest.mark.scenario("G99")\ndef test_one(): pass\n')
    with pytest.raises(ValueError, match=r"tests/test_a.py::test_one shows G99"):
        tool.marked_tests(tmp_path)


def report(node, outcome, when="call"):
    return SimpleNamespace(nodeid=node, outcome=outcome, when=when)


def test_the_result_of_a_situation_is_that_of_its_worst_test(tool, capsys):
    results = tool.Results()
    marks = {"a": ["G1", "G2"], "b": ["G2"], "c": ["G3"], "d": ["G3"], "e": ["G4"]}
    results._of.update(marks)
    for node, outcome in {"a": "passed", "b": "failed", "c": "skipped", "d": "passed", "e": "skipped"}.items():
        results.pytest_runtest_logreport(report(node, "passed", "setup"))
        results.pytest_runtest_logreport(report(node, outcome))
    tests = {key: ["n"] for key in ("G1", "G2", "G3", "G4")}
    assert tool._report(tests, results, ["G1", "G2", "G3", "G4", "G5", "G75"]) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("G1   passed     ")
    assert json.loads(out[-1]) == {
        "scenarios": 6, "passed": 2, "failed": 1, "failures": ["G2"], "skipped": ["G4"], "by_command": ["G75"],
        "missing": ["G5"],
    }  # fmt: skip


def test_a_failure_in_the_setup_of_a_test_counts_as_failed(tool):
    results = tool.Results()
    results._of["a"] = ["G1"]
    results.pytest_runtest_logreport(report("a", "failed", "setup"))
    assert results.of("G1") == "failed"


def test_an_unknown_situation_on_the_command_line_is_rejected(tool, capsys):
    assert tool.main(["G99"]) == 2
    assert "there are G1 to G75" in capsys.readouterr().err
