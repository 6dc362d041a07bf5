from random import Random

import pytest

from proofs.soak.slopes import ALLOWANCES, PARTS, Allowance, growth

HOUR = range(0, 3600, 3)
NARROW = Allowance("MB", 0.0, 1.0)


def series(value):
    return [(float(at), float(value(at))) for at in HOUR]


def test_what_does_not_change_is_flat():
    fitted = growth(series(lambda _: 100), NARROW)
    assert (fitted.grown, fitted.per_hour, fitted.is_flat) == (0.0, 0.0, True)
    assert (fitted.start[0], fitted.end[0]) == (1200.0, 3597.0)


def test_growth_is_what_the_line_rises_by_after_the_warm_up():
    fitted = growth(series(lambda at: 100 + 6 * at / 3600), NARROW)
    assert fitted.per_hour == pytest.approx(6)
    assert fitted.grown == pytest.approx(6 * 2397 / 3600)
    assert not fitted.is_flat


def test_the_warm_up_does_not_count():
    assert growth(series(lambda at: min(200, at)), NARROW).grown == 0.0


def test_peaks_that_pass_do_not_count():
    random = Random(1)
    fitted = growth(series(lambda _: 100 + random.choice([0, 0, 0, 50, 200])), NARROW)
    assert fitted.grown == pytest.approx(0)


def test_peaks_do_not_hide_a_leak():
    random = Random(1)
    fitted = growth(series(lambda at: 100 + at / 600 + random.choice([0, 0, 0, 50, 200])), NARROW)
    assert fitted.per_hour == pytest.approx(6, rel=0.2)
    assert not fitted.is_flat


def test_a_quarter_of_outlying_troughs_does_not_move_the_line():
    """A shard that is silent for several minutes, such as by faults in succession, does so to the lag."""
    part = 2400 / PARTS
    fitted = growth(series(lambda at: 40 if 1200 + part <= at < 1200 + 4 * part else 1), NARROW)
    assert fitted.grown == pytest.approx(0)


def test_what_shrinks_is_flat():
    assert growth(series(lambda at: 5000 - at), NARROW).is_flat


def test_steps_that_stay_are_growth():
    """One descriptor is left open by each of many reshards."""
    assert not growth(series(lambda at: 30 + at // 120), ALLOWANCES["descriptors"]).is_flat


@pytest.mark.parametrize(
    ("name", "leak"), [("rss", 80), ("blocks", 25_000), ("tasks", 30), ("descriptors", 12), ("threads", 6), ("lag", 6)]
)
def test_each_measurement_reveals_a_leak_within_an_hour(name, leak):
    """`leak`: growth per hour, over what a service of the default load uses."""
    base = {"rss": 170, "blocks": 300_000, "tasks": 48, "descriptors": 24, "threads": 9, "lag": 0}[name]
    random = Random(2)
    leaking = series(lambda at: base + leak * at / 3600 + random.random() * base / 50)
    still = series(lambda _: base + random.random() * base / 50)
    assert not growth(leaking, ALLOWANCES[name]).is_flat
    assert growth(still, ALLOWANCES[name]).is_flat


@pytest.mark.parametrize("samples", [[(0.0, 1.0)], [(0.0, 1.0), (3.0, 1.0)]])
def test_too_few_samples_give_an_error_and_no_verdict(samples):
    with pytest.raises(ValueError, match="too few for a slope"):
        growth(samples, NARROW)
