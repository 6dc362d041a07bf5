import json

import pytest

from proofs.benchmarks.__main__ import MEASURES, PAGE, RESULTS, measure, parse
from proofs.benchmarks.figures.results import (
    END,
    START,
    Measured,
    NotMeasured,
    document,
    figures_as_json,
    measured,
    rounded,
    table,
    with_table,
)
from proofs.benchmarks.figures.targets import FIGURES, GROUPS, Figure
from proofs.benchmarks.readers.running import Timing

VALUES = {
    "latency_p99_ms": measured([20.0, 30.0, 10.0]),
    "data_path_1kb_mb_per_cpu_s": Measured(151.23, 140.0, 163.7),
    "cores_2_speedup": NotMeasured("needs 3 cores"),
    "cores_2_cpu_per_record": Measured(1.04, 1.0, 1.1),
}
MACHINE = {
    "cores": 2,
    "processor": "AMD EPYC",
    "python": "3.11.7",
    "date": "2026-01-31",
    "commit": "abc1234",
    "load_average": 0.5,
    "seconds": 5.0,
}


def test_each_figure_has_a_name_of_its_own_and_each_group_a_measurement():
    assert len({figure.name for figure in FIGURES}) == len(FIGURES)
    assert set(MEASURES) == set(GROUPS)


@pytest.mark.parametrize(
    ("more", "value", "met"), [(True, 140.0, True), (True, 139.9, False), (False, 140.0, True), (False, 140.1, False)]
)
def test_a_target_is_a_least_or_a_most(more, value, met):
    assert Figure("x", "x", "x", "x", target=140.0, more=more).is_met_by(value) is met


def test_a_figure_without_a_target_is_neither_met_nor_missed():
    assert Figure("x", "x", "x", "x").is_met_by(1.0) is None


def test_the_json_has_each_figure_beside_its_target_in_the_order_of_the_table():
    assert figures_as_json(VALUES) == {
        "data_path_1kb_mb_per_cpu_s": {
            "value": 151.0, "low": 140.0, "high": 164.0, "unit": "MB/CPU-s", "target": 140, "aim": 165, "met": True,
        },
        "cores_2_speedup": {"value": None, "unit": "", "target": 1.8, "met": None, "why": "needs 3 cores"},
        "cores_2_cpu_per_record": {
            "value": 1.04, "low": 1.0, "high": 1.1, "unit": "", "target": None, "met": None,
        },
        "latency_p99_ms": {"value": 20.0, "low": 10.0, "high": 30.0, "unit": "ms", "target": 15, "met": False},
    }  # fmt: skip
    assert list(figures_as_json(VALUES))[-1] == "latency_p99_ms"


def test_the_table_says_what_is_met_and_why_something_was_not_measured():
    lines = [line for line in table(figures_as_json(VALUES)) if line.startswith("  ")]
    assert [line.split()[-1] for line in lines] == ["yes", "cores", "1.1", "no"]
    assert "151" in lines[0]
    assert "at least 140, aim 165" in lines[0]
    assert "not measured: needs 3 cores" in lines[1]
    assert "at most 15" in lines[3]


def test_values_have_three_significant_digits():
    assert [rounded(value) for value in (0.012345, 1.2345, 123.45, 12345.6)] == [0.0123, 1.23, 123.0, 12346.0]


def test_the_table_of_a_page_is_replaced_between_its_markers():
    found = {"figures": figures_as_json(VALUES), "machine": MACHINE}
    page = with_table(f"# Title\n\n{START}\nold\n{END}\n\nText\n", found)
    assert page == f"# Title\n\n{START}\n\n{document(found)}\n\n{END}\n\nText\n"
    assert "| cores: records per second, 2 processes to 1 | - |  | at least 1.8 | not measured: needs 3 cores |" in page
    assert with_table(page, found) == page


def test_a_page_without_markers_is_an_error():
    with pytest.raises(ValueError, match="no lines"):
        with_table("# Title\n", {"figures": {}, "machine": MACHINE})


def test_the_page_shows_the_kept_results():
    page = PAGE.read_text()
    assert with_table(page, json.loads(RESULTS.read_text())) == page


def test_a_group_that_fails_says_why_for_each_of_its_figures(monkeypatch):
    def fail(_timing):
        raise OSError("no loopback\nhere")

    monkeypatch.setitem(MEASURES, "small-events", fail)
    names = {figure.name for figure in FIGURES if figure.group == "small-events"}
    assert measure("small-events", Timing()) == dict.fromkeys(names, NotMeasured("no loopback"))


def test_the_help_has_an_example_and_names_each_group(capsys):
    with pytest.raises(SystemExit):
        parse(["--help"])
    text = capsys.readouterr().out
    assert "make bench ARGS=" in text
    assert all(f"\n    {group} " in text for group in GROUPS)
