"""What a topic holds, as metrics and as problems."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from efo_service.log.files import SizedSegment
from efo_service.log.maintenance import MaintenanceReport
from efo_service.log.retention import Candidate, Retention, RetentionRules
from efo_service.log.segments import Segment
from efo_service.log.state import Disk, LogState, disk_of

MIB, HOUR = 1024 * 1024, 3600.0
REPORT = MaintenanceReport(
    0, 0, 0, 0, 190 * MIB, 200 * MIB,
    segments=7, oldest_commit=1000.0, held_by={"audit": 190 * MIB, "billing": MIB},
    lags={"audit": 9000, "billing": 10, "live": 0}, committed={"audit": 500.0, "billing": 900.0, "live": 1990.0},
)  # fmt: skip


def state(**rules) -> LogState:
    return LogState("/srv/log/orders", "orders", RetentionRules(**rules))


def test_the_reader_that_holds_the_log_above_its_limits_is_named() -> None:
    held = state(size=10 * MIB)
    held.found(REPORT, 2000.0)
    [problem] = held.problems()
    assert problem == (
        "the log /srv/log/orders has 20.0 times what its retention allows, since the reader audit has not read 190 MiB"
        " of it (it committed last at 1970-01-01T00:08:20+00:00): start that reader, or forget it with"
        " `efo log readers remove audit --topic orders`"
    )
    old = state(seconds=100.0)
    old.found(REPORT, 2000.0)
    assert "has 10.0 times what" in next(old.problems())


def test_a_log_within_its_limits_or_without_them_or_a_reader_is_no_problem() -> None:
    for rules, report in (
        ({"size": 150 * MIB}, REPORT),
        ({}, REPORT),
        ({"size": 10 * MIB}, replace(REPORT, held_by={})),
    ):
        held = state(**rules)
        held.found(report, 2000.0)
        assert list(held.problems()) == []


def test_a_disk_that_is_nearly_full_or_soon_will_be_is_a_problem() -> None:
    filling = state()
    filling.measured(Disk(500 * MIB, 1000 * MIB), 0.0)
    assert (filling.seconds_until_full, list(filling.problems())) == (None, [])
    filling.measured(Disk(400 * MIB, 1000 * MIB), HOUR)
    assert filling.seconds_until_full == 4 * HOUR
    assert list(filling.problems()) == []
    filling.measured(Disk(200 * MIB, 1000 * MIB), HOUR + 600)  # 200 MiB in ten minutes: what was before an hour is over
    assert "200 of 1,000 MiB free, and is full in 10 min at the rate of the last hour" in next(filling.problems())
    roomy = state()
    roomy.measured(Disk(900 * MIB, 1000 * MIB), 0.0)
    roomy.measured(Disk(500 * MIB, 1000 * MIB), 600.0)  # at this rate full in 12 minutes, which is a burst
    assert list(roomy.problems()) == []
    full = state()
    full.measured(Disk(20 * MIB, 1000 * MIB), 0.0)
    assert "20 of 1,000 MiB free: free some space" in next(full.problems())
    assert disk_of(Path("/")).total > disk_of(Path("/")).free > 0


def test_the_state_is_measured_and_what_is_unknown_has_no_series() -> None:
    reader = InMemoryMetricReader()
    measured = state(size=10 * MIB)
    measured.measure(MeterProvider([reader]))
    assert reader.get_metrics_data() is None or not values(reader)
    measured.found(REPORT, 2000.0)
    measured.measured(Disk(5, 10), 2000.0)
    assert values(reader) == {
        ("efo.log.size", None): 200 * MIB,
        ("efo.log.segments", None): 7,
        ("efo.log.oldest.age", None): 1000.0,
        ("efo.log.held_back", "audit"): 190 * MIB,
        ("efo.log.held_back", "billing"): MIB,
        ("efo.log.held_back", "live"): 0,
        ("efo.log.reader.lag", "audit"): 9000,
        ("efo.log.reader.lag", "billing"): 10,
        ("efo.log.reader.lag", "live"): 0,
        ("efo.log.disk.free", None): 5,
        ("efo.log.disk.size", None): 10,
    }


def values(reader: InMemoryMetricReader) -> dict:
    data = reader.get_metrics_data()
    return {
        (metric.name, point.attributes.get("efo.reader")): point.value
        for resource in (data.resource_metrics if data else ())
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    }


def test_each_reader_holds_what_it_has_not_read() -> None:
    waiting = tuple(Candidate(0, SizedSegment(Segment(base, base + 10, 0, Path()), 100), 0.0) for base in (0, 10, 20))
    held = Retention((), waiting).held_by({"slow": {0: 5}, "half": {0: 20}, "new": {}, "done": {0: 30}})
    assert held == {"slow": 300, "half": 100, "new": 300}


@pytest.mark.parametrize(
    ("size", "oldest", "factor"),
    [
        (200 * MIB, None, "2.0"),
        (200 * MIB - 1, None, None),
        (250 * MIB, 1950.0, "2.5"),
        (1, 1700.0, "3.0"),
        (1, 1801.0, None),
    ],
)
def test_a_log_is_too_large_or_too_old_at_twice_what_its_retention_allows(size, oldest, factor) -> None:
    held = state(size=100 * MIB, seconds=100.0)
    held.found(replace(REPORT, size=size, oldest_commit=oldest), 2000.0)
    assert [problem.split(" has ")[1].split(" times ")[0] for problem in held.problems()] == (
        [factor] if factor else []
    )


def test_of_readers_that_hold_the_same_the_last_by_name_is_named_with_what_is_known_of_it() -> None:
    held = state(size=10 * MIB)
    held.found(replace(REPORT, held_by={"b": MIB - 1, "a": MIB - 1}, committed={}), 2000.0)
    assert "the reader b has not read 1,048,575 bytes of it (its file is invalid)" in next(held.problems())
    held.found(replace(REPORT, held_by={"b": 1, "a": MIB}), 2000.0)
    assert "the reader a has not read 1 MiB of it" in next(held.problems())


def filled(*measurements: tuple[int, float], total: int = 1000) -> LogState:
    """Return the state after measurements of what is free, and when."""
    found = state()
    for free, at in measurements:
        found.measured(Disk(free * MIB, total * MIB), at)
    return found


@pytest.mark.parametrize(
    ("measurements", "seconds"),
    [
        ([], None),
        ([(500, 0.0)], None),
        ([(500, 0.0), (400, 59.9)], None),
        ([(500, 0.0), (400, 60.0)], 240.0),
        ([(500, 0.0), (400, 30.0), (300, 60.0)], 90.0),
        ([(500, 0.0), (500, 60.0)], None),
        ([(400, 0.0), (500, 60.0)], None),
        ([(500, 0.0), (300, HOUR)], 1.5 * HOUR),
        ([(500, 0.0), (400, 1.0), (300, HOUR + 1)], 3.0 * HOUR),  # the first one is older than an hour
        ([(500, 0.0), (400, 100.0), (300, 100.0)], 150.0),  # of one time, the last one counts
    ],
)
def test_the_disk_is_full_at_the_rate_of_the_last_hour_if_that_is_known_for_a_minute(measurements, seconds) -> None:
    assert filled(*measurements).seconds_until_full == seconds


@pytest.mark.parametrize(
    ("measurements", "is_filling"),
    [
        ([(49, 0.0)], True),
        ([(50, 0.0)], False),
        ([(499, 0.0), (399, 100.0)], True),
        ([(500, 0.0), (400, 100.0)], False),
        ([(201, 0.0), (200, 72.0)], False),  # full in exactly four hours
        ([(201, 0.0), (200, 71.0)], True),
    ],
)
def test_a_disk_is_filling_below_a_share_that_is_free_or_if_it_is_full_within_four_hours(
    measurements, is_filling
) -> None:
    assert filled(*measurements).is_filling is is_filling
    assert not state().is_filling
    assert filled((0, 0.0), total=0).is_filling


@pytest.mark.parametrize(("seconds", "text"), [(5400, "1.5 h"), (5399, "90 min"), (120, "2 min")])
def test_the_time_until_the_disk_is_full_is_told_in_hours_or_minutes(seconds, text) -> None:
    filling = filled((300, 0.0), (200, seconds / 2))
    assert f"is full in {text} at the rate" in next(filling.problems())


def test_the_time_until_the_disk_is_full_and_an_age_of_the_future_are_measured() -> None:
    reader = InMemoryMetricReader()
    measured = filled((200, 0.0), (100, 60.0))
    measured.measure(MeterProvider([reader]))
    measured.found(REPORT, 999.0)  # its clock is behind
    assert values(reader)["efo.log.disk.full_in", None] == 60.0
    assert values(reader)["efo.log.oldest.age", None] == 0.0
    measured.measured(Disk(5, 10), 1600.0)
    assert values(reader)["efo.log.oldest.age", None] == 600.0


def test_of_several_measurements_of_the_disk_the_last_one_alone_is_exported() -> None:
    measured = filled((200, 0.0), (100, 60.0))
    assert ([*measured._free()], [*measured._total()]) == ([(100 * MIB, "")], [(1000 * MIB, "")])
