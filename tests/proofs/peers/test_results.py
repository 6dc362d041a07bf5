from __future__ import annotations

import json
from xml.etree import ElementTree as ET

import pytest

from proofs.peers.chart import PANELS, draw
from proofs.peers.results import Results
from proofs.peers.table import METRICS, figure, lines_of

CPU = "throughput/1000B/per_cpu"


def results():
    found = Results(versions={"efo": "this checkout", "k<l": "KCL 3"})
    for mine, theirs in ((40_000.0, 20_000.0), (50_000.0, 20_000.0), (60_000.0, 10_000.0)):
        found.add("efo", {CPU: mine, "correctness/live/lost": 0.0})
        found.add("k<l", {CPU: theirs})
    found.failed["k<l"] = {"latency": "exited with 1"}
    found.cannot["k<l"] = {"idle/1000": "one process for each shard"}
    found.skipped["harlow"] = "not found: go"
    return found


def test_the_table_shows_medians_spread_and_ratios():
    table = [line.split() for line in lines_of(results().rounds, "efo")]
    assert ["efo", "50,000", "40,000", "to", "60,000"] in table
    assert ["k<l", "20,000", "10,000", "to", "20,000", "efo", "/", "k<l", "=", "2.50"] in table
    assert ["efo", "0", "0", "to", "0"] in table


def test_the_remarks_name_what_is_missing_with_its_cause():
    assert results().remarks() == [
        "harlow: left out, not found: go",
        "k<l, latency: failed: exited with 1",
        "k<l, idle/1000: not measured: one process for each shard",
    ]


def test_a_failed_part_is_known():
    assert results().has_failed("k<l", "latency")
    assert not results().has_failed("k<l", CPU)
    assert not results().has_failed("efo", "latency")


def test_the_json_has_versions_spread_and_ratios():
    found = results().as_json("efo", {"cores": 2})
    assert found["peers"]["k<l"]["version"] == "KCL 3"
    assert found["peers"]["k<l"]["efo_ratio"] == {CPU: 2.5}
    assert found["peers"]["efo"]["metrics"][CPU] == {
        "median": 50_000.0,
        "low": 40_000.0,
        "high": 60_000.0,
        "rounds": 3,
        "values": [40_000.0, 50_000.0, 60_000.0],
    }
    assert found["skipped"] == {"harlow": "not found: go"}


def test_later_figures_are_added_to_those_of_an_earlier_run():
    kept = Results.of(json.loads(json.dumps(results().as_json("efo", {}))))
    assert kept.rounds == results().rounds
    assert kept.versions == results().versions
    assert kept.cannot == results().cannot
    assert kept.failed == {}  # measured again
    kept.add("efo", {"idle/1000/rss_mb": 100.0})
    assert kept.as_json("efo", {})["peers"]["efo"]["metrics"].keys() > results().rounds["efo"].keys()


def test_the_chart_has_a_bar_for_each_peer_with_its_median():
    svg = draw(results().as_json("efo", {})["peers"], "efo")
    root = ET.fromstring(svg)  # noqa: S314 - made here
    texts = [element.text for element in root if element.tag.endswith("text")]
    assert texts == ["records of 1,000 B per CPU second", "efo", "50,000", "k<l", "20,000"]
    _background, *rectangles = [element for element in root if element.tag.endswith("rect")]
    bars = [float(element.get("width")) for element in rectangles]
    assert bars[0] / bars[1] == pytest.approx(2.5, abs=0.01)


def test_a_chart_without_results_is_empty():
    assert len(ET.fromstring(draw({}, "efo"))) == 1  # noqa: S314 - made here


def test_metrics_are_unique_and_the_chart_shows_known_ones():
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    assert {metric for metric, _ in PANELS} <= set(names)


def test_figures_have_three_digits():
    assert [figure(value) for value in (0, 0.01234, 2.5, 99.96, 123.4, 1_234_567)] == [
        "0",
        "0.0123",
        "2.5",
        "100",
        "123",
        "1,234,567",
    ]
