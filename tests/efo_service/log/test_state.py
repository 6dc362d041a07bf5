"""What a topic holds, as metrics and as problems."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

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
