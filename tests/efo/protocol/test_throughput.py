"""The smoothed throughput of a shard."""

import pytest

from efo.protocol.assignment.balance import SMOOTHING, Throughput


def test_the_first_measurement_has_no_result():
    throughput = Throughput()
    assert throughput.measure(10**9, 5.0) is None
    assert throughput.measure(10**9 + 20_000, 10.0) == pytest.approx(4.0)


def test_a_change_is_smoothed():
    throughput = Throughput()
    throughput.measure(0, 0.0)
    assert throughput.measure(100_000, 1.0) == pytest.approx(100.0)
    after = throughput.measure(100_000, 1.0 + SMOOTHING)
    assert after == pytest.approx(36.8, abs=0.1)
    assert throughput.measure(100_000, 1.0 + 20 * SMOOTHING) < 1


def test_the_throughput_of_an_idle_shard_becomes_exactly_zero():
    """It does not decrease forever: DynamoDB stores no number below 1E-130."""
    throughput = Throughput()
    throughput.measure(0, 0.0)
    throughput.measure(10**9, 1.0)
    figures = [throughput.measure(10**9, 1.0 + 3 * scan) for scan in range(10_000)]
    assert figures[-1] == 0.0
    assert min(figure for figure in figures if figure) >= 1e-6


def test_the_result_does_not_depend_on_the_number_of_measurements():
    often, seldom = Throughput(), Throughput()
    for throughput in (often, seldom):
        throughput.measure(0, 0.0)
        throughput.measure(50_000, 1.0)
    for second in range(2, 31):
        figure = often.measure(50_000 + 10_000 * (second - 1), float(second))
    assert seldom.measure(50_000 + 10_000 * 29, 30.0) == pytest.approx(figure)


def test_a_second_measurement_at_the_same_time_has_no_result():
    throughput = Throughput()
    throughput.measure(0, 1.0)
    assert throughput.measure(500, 1.0) is None
