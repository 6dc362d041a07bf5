import json

import pytest

from proofs.benchmarks.figures.baseline import Comparison, Ratio, compare, lines_of, ratio_of, ratios_from
from proofs.benchmarks.figures.throughput import SHAPES
from proofs.benchmarks.quick import BASELINE, CLIENTS

THEN = Ratio(0.6, 0.5, 0.7)


def now(median):
    return Ratio(median, median, median)


def test_values_are_divided_by_those_of_the_same_round():
    assert ratio_of([1.0, 20.0, 300.0], [2.0, 40.0, 600.0]) == Ratio(0.5, 0.5, 0.5)


def test_one_bad_round_moves_neither_median_nor_quartiles():
    assert ratio_of([5.0, 5.0, 5.0, 5.0, 1.0], [10.0] * 5) == Ratio(0.5, 0.5, 0.5)


def test_one_round_has_no_spread():
    assert ratio_of([3.0], [4.0]) == Ratio(0.75, 0.75, 0.75)


def test_rounds_without_a_partner_are_an_error():
    with pytest.raises(ValueError, match="shorter"):
        ratio_of([1.0, 2.0], [1.0])


@pytest.mark.parametrize(("median", "lost"), [(0.44, True), (0.46, False), (0.6, False), (0.9, False)])
def test_a_ratio_is_lost_when_it_is_a_tenth_below_the_spread_of_the_baseline(median, lost):
    assert Comparison("1kb/naive", now(median), THEN).is_lost is lost


def test_a_ratio_that_one_of_both_runs_lacks_is_not_lost():
    comparisons = compare({"1kb/naive": now(0.1)}, {"200b/naive": THEN})
    assert [(found.name, found.is_lost) for found in comparisons] == [("200b/naive", False), ("1kb/naive", False)]


def test_the_table_names_what_is_lost():
    lines = list(lines_of(compare({"a": now(0.4), "b": now(0.6)}, {"a": THEN, "b": THEN})))
    assert [line.endswith("LOST") for line in lines] == [False, True, False]
    assert "0.40 (0.40 to 0.40)" in lines[1]
    assert "0.60 (0.50 to 0.70)" in lines[1]


def test_the_kept_baseline_has_every_shape_and_client():
    kept = ratios_from(json.loads(BASELINE.read_text()))
    assert set(kept) == {f"{shape}/{client}" for shape in SHAPES for client in CLIENTS if client != "efo"}
    assert all(0 < ratio.low <= ratio.median <= ratio.high for ratio in kept.values())
