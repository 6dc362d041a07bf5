import pytest

from proofs.benchmarks import __main__ as bench
from proofs.benchmarks.__main__ import MEASURES, PAGE, kept_results, measure, parse, save
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
    "python": "3.13.18",
    "compiler": "GCC 16.2.0",
    "openssl": "3.6.5",
    "step": "python",
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
    runs = {"python": {"figures": figures_as_json(VALUES), "machine": MACHINE}}
    page = with_table(f"# Title\n\n{START}\nold\n{END}\n\nText\n", runs)
    assert page == f"# Title\n\n{START}\n\n{document(runs)}\n\n{END}\n\nText\n"
    assert "| cores: records per second, 2 processes to 1 | at least 1.8 | - |  | not measured: needs 3 cores |" in page
    assert with_table(page, runs) == page


def test_what_was_measured_with_efo_native_stands_beside_the_rest():
    native = {"latency_p99_ms": Measured(9.0, 8.0, 10.0), "event_cpu_ms": Measured(0.19, 0.18, 0.2)}
    runs = {
        "python": {"figures": figures_as_json(VALUES), "machine": MACHINE},
        "native": {"figures": figures_as_json(native), "machine": MACHINE | {"step": "native"}},
    }
    lines = document(runs).splitlines()
    assert lines[0].startswith("Python alone: 2026-01-31, efo abc1234; 2 cores (AMD EPYC), Python 3.13.18 (GCC 16.2.0,")
    assert lines[2].startswith("with efo-native: 2026-01-31")
    title = "put to handler, 1,000 records/s over 50 shards, p99, ms"
    assert f"| small-events: {title} | at most 15 | 20 | 10 to 30 | no | 9 | 8 to 10 | yes |" in lines
    title = "CPU time per event of one record, ms"
    assert f"| small-events: {title} | at most 0.2 | - |  |  | 0.19 | 0.18 to 0.2 | yes |" in lines


@pytest.mark.parametrize("step", ["python", "native"])
def test_results_are_kept_by_step_and_what_was_not_measured_stays(tmp_path, monkeypatch, step):
    monkeypatch.setattr(bench, "RESULTS", {each: tmp_path / f"{each}.json" for each in ("python", "native")})
    monkeypatch.setattr(bench, "PAGE", tmp_path / "page.md")
    (tmp_path / "page.md").write_text(f"{START}{END}")
    for value in (Measured(9.0, 8.0, 10.0), Measured(7.0, 6.0, 8.0)):
        save({"figures": figures_as_json({"latency_p99_ms": value}), "machine": MACHINE | {"step": step}})
    save({"figures": figures_as_json({"event_cpu_ms": Measured(0.3, 0.2, 0.4)}), "machine": MACHINE | {"step": step}})
    assert {each: list(run["figures"]) for each, run in kept_results().items()} == {
        step: ["event_cpu_ms", "latency_p99_ms"]
    }
    assert kept_results()[step]["figures"]["latency_p99_ms"]["value"] == 7.0
    assert "| 7 | 6 to 8 | yes |" in (tmp_path / "page.md").read_text()


def test_a_page_without_markers_is_an_error():
    with pytest.raises(ValueError, match="no lines"):
        with_table("# Title\n", {})


def test_the_page_shows_the_kept_results():
    page = PAGE.read_text()
    assert with_table(page, kept_results()) == page


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
