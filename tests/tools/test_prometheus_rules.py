"""The rules of Prometheus: their form, metrics and runbook, and with promtool, when each alert fires."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass, field

import pytest
from prometheus_client import Counter, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from efo.telemetry.observer import OtelObserver
from efo_service.log.maintenance import MaintenanceReport
from efo_service.log.retention import RetentionRules
from efo_service.log.state import Disk, LogState
from efo_service.relay.errors import SinkFullError
from efo_service.relay.measured import SinkMeter
from efo_service.spark.pipeline.metrics import PipelineMetrics
from efo_service.telemetry.sdk import telemetry
from efo_service.web.health import WorkerReadiness, measure_readiness
from efo_service.web.probe import ServiceAddress
from efo_service.web.process_problems import ProcessProblems
from efo_service.workers.endpoints import WorkerEndpoints
from tests.efo.telemetry.test_observer import EVERY_EVENT
from tests.paths import ROOT
from tools.prometheus_rules import ALERTS, KUBERNETES, RECORDINGS, RULES, render, render_for_kubernetes

RUNBOOK = (ROOT / "docs/runbook.md").read_text()
PROGRESS = {"query": "records", "batch_id": 0, "rows": 1, "rows_written": 1, "late_rows": 0, "seconds": 0.1, "lag": 0}


@pytest.fixture
def scrape() -> str:
    """Everything that a worker, a supervisor and a pipeline serve, in Prometheus' text format."""
    with telemetry("w-1") as sdk:
        observe = OtelObserver(stream="s", application="a", consumer="c", meter_provider=sdk.meter_provider)
        for event in EVERY_EVENT:
            observe(event)
        measure_readiness(lambda: [WorkerReadiness("s", "a", is_ready=True)], sdk.meter_provider)
        PipelineMetrics(sdk.meter_provider)(PROGRESS)
        meter = SinkMeter("efo", "s", sdk.meter_provider)
        meter.retried(SinkFullError("no space"))
        with meter.commit(2):
            pass
        ProcessProblems().measure(sdk.meter_provider)
        log = LogState("log/s", "s", RetentionRules(size=1))
        log.measure(sdk.meter_provider)
        log.found(MaintenanceReport(0, 0, 0, 0, 1, 1, 1, 0.0, {"audit": 1}, {"audit": 1}, {"audit": 0.0}), 0.0)
        for at, free in ((0.0, 9), (60.0, 8)):
            log.measured(Disk(free, 10), at)
        sdk.registry.register(WorkerEndpoints(ServiceAddress("127.0.0.1", 8080), lambda: {"w-1-1": None}))
        restarts = Counter("efo_worker_restarts", "Restarts of workers that ended.", ["worker"], registry=sdk.registry)
        restarts.labels("w-1-1").inc()
        return generate_latest(sdk.registry).decode()


# --- without promtool ------------------------------------------------------------------------------------------------


def metrics_in(expr: str) -> set[str]:
    """The names of the metrics in an expression: what is neither a label, a function nor a keyword."""
    expr = re.sub(r"\{[^}]*\}|\[[^]]*\]|(by|on) \([^)]*\)", " ", expr)
    words = re.findall(r"(?<![\w:.])([a-zA-Z_:][\w:]*)(?!\s*\()(?![\w:])", expr)
    return set(words) - {"and", "or", "unless", "offset", "by", "on"}


def labels_in(expr: str) -> set[str]:
    matchers = re.findall(r'(\w+)\s*(?:=~|!~|!=|=)\s*"', expr)
    groups = [label.strip() for group in re.findall(r"(?:by|on) \(([^)]*)\)", expr) for label in group.split(",")]
    return {*matchers, *groups} - {""}


def test_metrics_and_labels_of_an_expression_are_found():
    expr = 'sum by (job, a) (rate(b_total{c!~"|x"}[5m])) > 0 and on () level:d:max offset 5m == 1'
    assert metrics_in(expr) == {"b_total", "level:d:max"}
    assert labels_in(expr) == {"job", "a", "c"}


def test_the_file_is_what_the_script_writes():
    assert RULES.read_text() == render(), "run: python tools/prometheus_rules.py --write"
    assert KUBERNETES.read_text() == render_for_kubernetes(), "run: python tools/prometheus_rules.py --write"


def test_every_metric_and_label_of_an_expression_is_one_that_efo_serves(scrape):
    samples = [sample for family in text_string_to_metric_families(scrape) for sample in family.samples]
    names = {sample.name for sample in samples} | {"up"}
    labels = {label for sample in samples for label in sample.labels} | {"job", "instance", "le"}
    recorded = {recording.name for recording in RECORDINGS}
    for recording in RECORDINGS:
        assert metrics_in(recording.expr) <= names, recording
        assert labels_in(recording.expr) <= labels, recording
    for alert in ALERTS:
        assert metrics_in(alert.expr) <= names | recorded, alert
        assert metrics_in(alert.expr), alert
        templates = set(re.findall(r"\$labels\.(\w+)", alert.summary + alert.description))
        assert labels_in(alert.expr) | templates <= labels, alert


def test_an_alert_waits_and_has_a_severity_a_summary_and_a_remedy():
    for alert in ALERTS:
        assert re.fullmatch(r"[1-9]\d*m", alert.wait), alert
        assert alert.severity in {"critical", "warning"}
        assert alert.summary
        assert not alert.summary.endswith(".")
        assert alert.description.endswith(".")


def test_the_runbook_has_one_section_for_each_alert_in_their_order():
    sections = re.split(r"^## ", RUNBOOK, flags=re.MULTILINE)[1:]
    assert [section.splitlines()[0] for section in sections] == [alert.name for alert in ALERTS]
    for section in sections:
        assert all(part in section for part in ("- **Meaning.**", "- **Look at**", "- **Do")), section.splitlines()[0]
    for alert in ALERTS:
        assert (
            alert.annotations("https://x/y")["runbook_url"] == f"https://x/y#{alert.name.lower()}"
        )  # as Sphinx makes anchors


def test_what_the_runbook_links_to_exists():
    anchors = {f"#{alert.name.lower()}" for alert in ALERTS}
    assert set(re.findall(r"\]\((#[^)]*)\)", RUNBOOK)) <= anchors


# --- with promtool ---------------------------------------------------------------------------------------------------


@pytest.fixture
def promtool():
    """Run promtool with arguments and stdin; return what it wrote. A failure fails the test."""
    path = shutil.which("promtool")
    if path is None:
        pytest.skip("promtool is not installed: run apt-get install prometheus")

    def run(*arguments: str, stdin: str = "") -> str:
        done = subprocess.run([path, *arguments], input=stdin, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


STREAM = {"job": "efo", "messaging_consumer_group_name": "a", "messaging_destination_name": "s"}
TARGET = {"job": "efo", "instance": "h:8080"}


def series(name: str, values: str, /, **labels: str) -> dict[str, str]:
    text = ", ".join(f'{label}="{value}"' for label, value in (STREAM | {"instance": "h:8080"} | labels).items())
    return {"series": f"{name}{{{text}}}", "values": values}


@dataclass(frozen=True)
class Case:
    """Series, one value a minute, with which an alert fires at `minute`, and others with which it does not.

    `pending`: the last minute at which the alert only waits, as its condition has not been true for long enough.
    `labels`: of the alert, besides its severity. `value`: as the description shows it.
    """

    alert: str
    fires: list[dict[str, str]]
    quiet: list[dict[str, str]]
    pending: int
    value: str = ""
    labels: dict[str, str] = field(default_factory=lambda: STREAM)
    minute: int = 40


def status(condition: str, values: str = "1x60") -> list[dict[str, str]]:
    return [series("efo_shard_status", values, efo_shard_condition=condition, efo_subscription_state="live")]


def lag(values: str) -> list[dict[str, str]]:
    return [series("efo_consumer_lag_seconds", values, messaging_destination_partition_id="s-0")]


def failures(action: str, values: str) -> list[dict[str, str]]:
    return [series("efo_record_failures_total", values, efo_failure_action=action, error_type="ValueError")]


def operations(failed: str, error: str = "lease_store_unavailable") -> list[dict[str, str]]:
    return [
        series("efo_lease_operations_total", "0+80x60", efo_lease_operation="renew"),
        series("efo_lease_operations_total", failed, efo_lease_operation="renew", error_type=error),
    ]


def attempts(failed: str, error: str) -> list[dict[str, str]]:
    return [
        series("efo_subscription_attempts_total", "0+10x60"),
        series("efo_subscription_attempts_total", failed, error_type=error),
    ]


def pipeline(**values: str) -> list[dict[str, str]]:
    return [series(f"efo_pipeline_{name}", value, efo_pipeline_query="records") for name, value in values.items()]


def sent(values: str) -> list[dict[str, str]]:
    return [series("messaging_client_sent_messages_total", values)]


QUERY = {"job": "efo", "efo_pipeline_query": "records"}
SKIPPED_ONCE = "_x34 1x25"
"""A series that begins in minute 34, with the first failure of the worker."""


def conditions(*alerts: tuple[str, str, int]) -> list[Case]:
    return [
        Case(
            alert,
            status(condition),
            [*status("current"), *status(condition, "0x36 _ _ _ 1 _x20")],
            pending=pending,
            value="1",
            labels=STREAM | {"efo_shard_condition": condition},
        )
        for alert, condition, pending in alerts
    ]


CASES = [
    Case("EfoMetricsAbsent", [], [series("efo_worker_ready", "1x60")], labels={}, pending=4),
    Case("EfoTargetDown", [series("up", "0x60")], [series("up", "1x60"), series("up", "0x60", job="other")],
         labels=STREAM | TARGET, pending=1),
    Case("EfoWorkerDown", [series("efo_worker_up", "1x30 0x30", worker="w-2")],
         [series("efo_worker_up", "1x38 0 1x20", worker="w-2")], labels=STREAM | TARGET | {"worker": "w-2"},
         pending=32),
    Case("EfoNoWorkerUp", [series("efo_worker_up", "0x60", worker=worker) for worker in ("w-1", "w-2")],
         [series("efo_worker_up", "0x60", worker="w-1"), series("efo_worker_up", "1x60", worker="w-2")],
         labels=TARGET, pending=0),
    Case("EfoNotReady", [series("efo_worker_ready", "1x30 0x30")], [series("efo_worker_ready", "1x36 0x30")],
         labels=STREAM | TARGET, pending=35),
    Case("EfoWorkerRestarts", [series("efo_worker_restarts_total", "_x20 1 1 2 3x60", worker="w-1")],
         [series("efo_worker_restarts_total", "5x20 6 7x60", worker="w-1")], labels=TARGET, value="3", pending=23),
    Case("EfoLagHigh", lag("0x25 61x35"), lag("600-10x60"), pending=30),
    Case("EfoLagCritical", lag("0x20 901x40"), lag("0x20 899x40"), pending=25),
    Case("EfoRetentionAtRisk", lag("50000-60x60"), lag("43000-60x60"), value="13h 13m 20s", pending=4),
    *conditions(("EfoShardsFrozen", "frozen", 1), ("EfoShardsDisconnected", "disconnected", 4),
                ("EfoShardsUnread", "unread", 1), ("EfoShardsUncommitted", "uncommitted", 0)),
    Case("EfoUnackedAgeHigh", [series("efo_record_unacked_age_seconds", "0x30 61+60x30")],
         [series("efo_record_unacked_age_seconds", "59x60")], labels=STREAM, value="10m 1s", pending=32),
    Case("EfoSinkRetries", [series("efo_sink_retries_total", "_x34 3+1x25")],
         [series("efo_sink_retries_total", "_x34 2x26")],
         labels={"job": "efo", "messaging_destination_name": "s"}, value="5", pending=34),
    *conditions(("EfoShardsWithoutLease", "no_lease", 1), ("EfoShardsIsolated", "isolated", 0)),
    Case("EfoRecordsExpired", [series("efo_record_expired_time_seconds_total", "_x34 3600x25")],
         [series("efo_record_expired_time_seconds_total", "3600x60"),
          series("efo_record_failures_total", SKIPPED_ONCE)], value="1h 0m 0s", pending=34),
    Case("EfoRecordsSkipped", failures("skip", SKIPPED_ONCE),
         [*failures("skip", "7x60"), *failures("dead_letter", SKIPPED_ONCE)], value="1", pending=34),
    Case("EfoRecordsDeadLettered", failures("dead_letter", "2x34 5x25"),
         [*failures("dead_letter", "_x10 1x50"), *failures("skip", SKIPPED_ONCE)], value="3", pending=0),
    Case("EfoRecordsFiltered", [series("efo_record_filtered_total", SKIPPED_ONCE, efo_aggregate_mode="filter")],
         [series("efo_record_filtered_total", "7x60", efo_aggregate_mode="drop"),
          series("efo_record_filtered_total", SKIPPED_ONCE, efo_aggregate_mode="deduplicate")], value="1", pending=34),
    Case("EfoDecodeErrors", [series("efo_decode_errors_total", SKIPPED_ONCE, error_type="aggregation")],
         [series("efo_decode_errors_total", "3x60", error_type="aggregation")], value="1", pending=34),
    Case("EfoCheckpointAgeHigh", [series("efo_checkpoint_age_seconds", "61x60")],
         [series("efo_checkpoint_age_seconds", "59x60")], value="1m 1s", pending=4),
    Case("EfoBackpressure", [series("efo_backpressure_time_seconds_total", "0+36x60")],
         [series("efo_backpressure_time_seconds_total", "0+24x60")], value="60%", pending=19),
    Case("EfoLogDiskFilling", [series("efo_log_disk_full_in_seconds", "20000x20 10000x40"),
                               series("efo_log_disk_free_bytes", "39x60"), series("efo_log_disk_size_bytes", "100x60")],
         [series("efo_log_disk_full_in_seconds", "10000x60"),
          series("efo_log_disk_free_bytes", "41x60"), series("efo_log_disk_size_bytes", "100x60")],
         labels=STREAM | TARGET, pending=22),
    Case("EfoLogHeldByReader",
         [series(name, values, worker=worker, **labels) for worker in ("w-1", "w-2")
          for name, values, labels in (("efo_log_held_back_bytes", "60x60", {"efo_reader": "audit"}),
                                       ("efo_log_size_bytes", "100x60", {}))],
         [series("efo_log_held_back_bytes", "40x60", efo_reader="audit"), series("efo_log_size_bytes", "100x60")],
         labels={"job": "efo", "messaging_destination_name": "s", "efo_reader": "audit"}, value="60%", pending=9),
    Case("EfoProcessProblem", [series("efo_process_problem", "0x10 1x50", efo_problem="reload_refused")],
         [series("efo_process_problem", "0x60", efo_problem="reload_refused")],
         labels=TARGET | {"efo_problem": "reload_refused"}, pending=12),
    Case("EfoLeaseStoreFailing", operations("0+20x60"), [*operations("0+5x60"), *operations("0+60x60", "lease_lost")],
         value="20%", pending=2),
    Case("EfoLeasesFlapping", [series("efo_lease_losses_total", "0+1x60", efo_lease_loss_reason="expired")],
         [series("efo_lease_losses_total", "_x30 64x30", efo_lease_loss_reason="store"),
          series("efo_lease_losses_total", "0+1x60", efo_lease_loss_reason="handed_over")], value="10", minute=50,
         pending=30),
    Case("EfoSubscriptionsFailing", attempts("0+30x60", "AccessDeniedException"),
         attempts("0+10x60", "AccessDeniedException"), value="75%", pending=15),
    Case("EfoSubscriptionsThrottled", attempts("0+1x60", "throttled"),
         [*attempts("0+1x30 30x30", "throttled"), *attempts("0+1x60", "ResourceInUseException")], pending=15),
    Case("EfoPipelineLagHigh", pipeline(lag="120000x60", rows_total="0+6000x60"),
         pipeline(lag="0x60", rows_total="7x60"), labels=QUERY, value="20m 0s", pending=15),
    Case("EfoPipelineStalled", [*pipeline(batch_duration_seconds_count="7x60"), *sent("0+60x60")],
         [*pipeline(batch_duration_seconds_count="7x60"), *sent("60x60")], labels=QUERY, pending=10),
]  # fmt: skip
SHOWN = {"EfoLagHigh": "1m 1s", "EfoLagCritical": "15m 1s"}

# A worker whose stream is idle: an event about every 5 s, a renewal every 5 minutes, no record.
IDLE = [
    series("up", "1x180"),
    series("efo_worker_ready", "1x180"),
    series("efo_worker_up", "1x180", worker="w-1"),
    series("efo_worker_restarts_total", "_x180", worker="w-1"),
    series("efo_consumer_lag_seconds", "0x180", messaging_destination_partition_id="s-0"),
    series("efo_checkpoint_age_seconds", "0x180", messaging_destination_partition_id="s-0"),
    series("efo_shard_status", "1x180", efo_shard_condition="current", efo_subscription_state="live"),
    series("messaging_client_consumed_messages_total", "0x180"),
    series("messaging_client_sent_messages_total", "0x180"),
    series("efo_subscription_io_bytes_total", "0+1200x180"),
    series("efo_backpressure_time_seconds_total", "0x180"),
    series("efo_lease_operations_total", "0+18x180", efo_lease_operation="renew"),
    series("efo_subscription_attempts_total", "1x4 2x5 3x5 4x5 5x160"),
    series("efo_record_age_seconds_bucket", "0x180", le="+Inf"),
    series("messaging_process_duration_seconds_bucket", "0x180", le="+Inf"),
    *pipeline(lag="0x180", rows_total="0x180", batch_duration_seconds_count="1x180"),
]


def shown(text: str, case: Case) -> str:
    """Return an annotation as Prometheus fills it in."""
    text = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda match: case.labels[match[1]], text)
    return re.sub(r"\{\{ \$value[^}]*\}\}", SHOWN.get(case.alert, case.value), text)


def expected(case: Case) -> dict[str, object]:
    (alert,) = (alert for alert in ALERTS if alert.name == case.alert)
    return {
        "exp_labels": {"severity": alert.severity, **case.labels},
        "exp_annotations": {name: shown(text, case) for name, text in alert.annotations().items()},
    }


def unit_test(series: list[dict[str, str]], *checks: dict[str, object]) -> dict[str, object]:
    return {"interval": "1m", "input_series": series, "alert_rule_test": list(checks)}


def check(alert: str, minute: int, *alerts: dict[str, object]) -> dict[str, object]:
    return {"eval_time": f"{minute}m", "alertname": alert, "exp_alerts": list(alerts)}


def run_unit_tests(promtool, tmp_path, *tests: dict[str, object], interval: str = "1m") -> None:
    file = tmp_path / "tests.yml"
    order = ["efo-recordings", "efo-alerts"]  # otherwise random, and an alert may see its recording a minute late
    content = {"rule_files": [str(RULES)], "evaluation_interval": interval, "group_eval_order": order, "tests": tests}
    file.write_text(json.dumps(content))  # JSON is YAML
    promtool("test", "rules", str(file))


def test_every_alert_has_a_case():
    assert [case.alert for case in CASES] == [alert.name for alert in ALERTS]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_an_alert_fires_when_it_should_and_only_then(case, promtool, tmp_path):
    fires = unit_test(case.fires, check(case.alert, case.pending), check(case.alert, case.minute, expected(case)))
    quiet = unit_test(case.quiet, check(case.alert, case.minute))
    run_unit_tests(promtool, tmp_path, fires, quiet)


def test_no_alert_fires_on_an_idle_stream(promtool, tmp_path):
    checks = [check(alert.name, minute) for alert in ALERTS for minute in (1, 10, 45, 180)]
    run_unit_tests(promtool, tmp_path, unit_test(IDLE, *checks))


def test_promtool_accepts_the_rules(promtool):
    assert f"{len(RECORDINGS) + len(ALERTS)} rules found" in promtool("check", "rules", str(RULES))


def test_promtool_finds_nothing_to_complain_about_in_the_metrics(promtool, scrape):
    assert promtool("check", "metrics", stdin=scrape) == ""


def test_faster_rules_have_shorter_times_and_the_same_thresholds(promtool, tmp_path):
    faster = render(10)
    assert re.findall(r"\b\d+m\b", re.sub(r'(description|summary): ".*"', "", faster)) == []
    assert "rate(efo_record_age_seconds_bucket[30s])" in faster
    assert "offset 180s" in faster
    assert "stream:efo_consumer_lag_seconds:max > 900" in faster
    file = tmp_path / "faster.yml"
    file.write_text(faster)
    assert f"{len(RECORDINGS) + len(ALERTS)} rules found" in promtool("check", "rules", str(file))


def test_frozen_shards_reach_their_pager_although_they_are_disconnected_every_other_half_minute(promtool, tmp_path):
    conditions = {"frozen": "1 _ " * 20, "disconnected": "_ 1 " * 20}
    test = {
        "interval": "30s",
        "input_series": [
            series("efo_shard_status", values, efo_shard_condition=condition, efo_subscription_state=condition)
            for condition, values in conditions.items()
        ],
        "promql_expr_test": [
            {
                "expr": 'count(ALERTS{alertname="EfoShardsFrozen", alertstate="firing"})',
                "eval_time": "4m",
                "exp_samples": [{"labels": "{}", "value": 1}],
            }
        ],
    }
    run_unit_tests(promtool, tmp_path, test, interval="30s")
