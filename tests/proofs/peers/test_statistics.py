from __future__ import annotations

from proofs.peers.statistics import Summary, percentile, ratio, ratios, summarize


def test_a_percentile_is_the_nearest_rank():
    values = [5.0, 1.0, 4.0, 2.0, 3.0]
    assert [percentile(values, percent) for percent in (0, 20, 50, 99, 100)] == [1, 1, 3, 5, 5]
    assert percentile(list(range(1, 101)), 99) == 99


def test_a_summary_has_median_and_spread():
    assert summarize([3.0, 1.0, 10.0]) == Summary(3.0, 1.0, 10.0, 3)
    assert summarize([2.0]) == Summary(2.0, 2.0, 2.0, 1)


def test_a_ratio_is_the_median_of_the_rounds_ratios():
    # The machine was slow in the second round: the values halve, the ratios do not.
    assert ratio([100.0, 50.0, 120.0], [50.0, 25.0, 40.0]) == 2.0


def test_a_ratio_uses_the_rounds_that_both_have():
    assert ratio([100.0, 50.0], [50.0]) == 2.0
    assert ratio([100.0], []) is None


def test_there_is_no_ratio_to_zero():
    assert ratio([1.0, 1.0], [1.0, 0.0]) is None


def test_ratios_are_by_peer_for_metrics_that_both_have():
    results = {"efo": {"a": [4.0], "b": [1.0]}, "kcl": {"a": [2.0], "c": [5.0]}}
    assert ratios(results, "efo") == {"kcl": {"a": 2.0}}
