"""When the proof of the dashboards passes, and what it reports if it does not."""

from __future__ import annotations

from proofs.dashboards.cases import CASES
from proofs.dashboards.prometheus import Firing
from proofs.dashboards.run import EXPECTATIONS
from proofs.dashboards.verdict import Expectation, different_labels, false_alarms, not_fired, summary
from tools.prometheus_rules import ALERTS

STUCK = Expectation("efo-stuck", frozenset({"EfoShardsUnread"}), frozenset({"EfoLagHigh"}))
FIRED = {Firing("EfoShardsUnread", "efo-stuck")}


def result(**changes):
    arguments = {
        "panels": {"efo-overview: Lag": "efo-healthy", "efo-overview: Lag (1)": "efo-stuck"},
        "healthy": "efo-healthy",
        "alerts": ["EfoShardsUnread"],
        "fired": FIRED,
        "expectations": [STUCK],
        "failed_rules": [],
        "alarms": [],
        "labels": [],
        "not_by_otlp": [],
        "seconds": 1.2,
        "faster": 10,
    }
    return summary(**{**arguments, **changes})


def test_every_alert_has_a_fault():
    assert set().union(*(one.must for one in EXPECTATIONS)) == {alert.name for alert in ALERTS}
    assert {case.expectation for case in CASES} <= set(EXPECTATIONS)


def test_what_a_fault_explains_is_no_false_alarm():
    assert false_alarms(set(), FIRED | {Firing("EfoLagHigh", "efo-stuck")}, [STUCK]) == []


def test_an_alert_of_a_job_without_its_fault_is_a_false_alarm():
    wrong = {
        Firing("EfoLagHigh", "efo-healthy"),
        Firing("EfoBackpressure", "efo-stuck"),
        Firing("EfoMetricsAbsent", ""),
    }
    assert false_alarms(set(), wrong, [STUCK]) == [
        "EfoBackpressure in efo-stuck", "EfoLagHigh in efo-healthy", "EfoMetricsAbsent in no job",
    ]  # fmt: skip


def test_an_alert_before_its_fault_is_a_false_alarm():
    assert false_alarms(FIRED, FIRED, [STUCK]) == ["EfoShardsUnread in efo-stuck, before any fault"]


def test_an_alert_must_fire_in_its_own_job():
    assert not_fired({Firing("EfoShardsUnread", "efo-other")}, [STUCK]) == ["EfoShardsUnread in efo-stuck"]
    assert not_fired(FIRED, [STUCK]) == []


def test_labels_agree_apart_from_those_of_the_target():
    scraped = {"efo_a": {"x", "instance", "job", "worker"}, "efo_b": {"x"}, "efo_c": {"x"}, "process_d": set()}
    by_otlp = {"efo_a": {"x", "instance", "job"}, "efo_b": {"x", "scope"}}
    assert different_labels(scraped, by_otlp, ["process_"]) == ["efo_b", "efo_c"]


def test_it_passes_if_all_panels_have_data_and_all_alerts_fired_and_no_others():
    passed = result()
    assert passed["dashboards"] == "passed"
    assert (passed["panels"], passed["queries"], passed["with_data"]) == (1, 2, 2)
    assert passed["only_in_a_fault"] == {"efo-overview: Lag (1)": "efo-stuck"}
    assert (passed["alerts"], passed["fired"], passed["false_alarms"]) == (1, 1, 0)


def test_each_shortcoming_fails_it():
    for changes in (
        {"panels": {"efo-overview: Lag": ""}},
        {"fired": set()},
        {"alerts": ["EfoShardsUnread", "EfoNew"]},
        {"alarms": ["EfoLagHigh in efo-healthy"]},
        {"failed_rules": ["EfoLagHigh: many-to-many matching"]},
        {"labels": ["efo_a"]},
        {"not_by_otlp": ["efo-overview: Lag"]},
    ):
        assert result(**changes)["dashboards"] == "failed", changes


def test_an_alert_without_a_fault_is_named():
    assert result(alerts=["EfoShardsUnread", "EfoNew"])["not_fired"] == ["EfoNew: no fault"]
