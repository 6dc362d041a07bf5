"""The recording and alert rules for Prometheus, written from the data below.

They are in config/prometheus/rules.yml, and as a resource of the Prometheus operator in config/kubernetes.

`python tools/prometheus_rules.py --write` writes both; a test fails while one is outdated. docs/runbook.md has one
section for each alert; `--runbook URL` says where whoever is paged finds it.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent
from typing import Final, Literal

RULES: Final = Path(__file__).parent.parent / "config" / "prometheus" / "rules.yml"
KUBERNETES: Final = RULES.parent.parent / "kubernetes" / "components" / "monitoring" / "prometheusrule.yaml"
RUNBOOK: Final = "https://docs.example.com/efo/runbook.html"
"""Where the page docs/runbook.md is, unless `--runbook` says it: of the site that `make docs` builds."""

_STREAM: Final = "job, messaging_consumer_group_name, messaging_destination_name"
"""The labels of an application on a stream. The level `stream:` of a recording rule has them."""
_OF_STREAM: Final = "{{ $labels.messaging_consumer_group_name }} on {{ $labels.messaging_destination_name }}"
_MINUTES: Final = re.compile(r"\b(\d+)m\b")
"""A window or a waiting time. All are in minutes, and no name of a metric contains one alone."""
_JOB: Final = 'job=~"efo.*"'
"""The scrape jobs of efo. `up` has no other label that tells efo from other programs."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording rule. `name`: level:metric:operations, as Prometheus advises."""

    name: str
    expr: str


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert rule. `wait`: how long the expression must be true. `description`: what is wrong, and the remedy."""

    name: str
    severity: Literal["critical", "warning"]
    wait: str
    expr: str
    summary: str
    description: str

    def annotations(self, runbook_url: str = RUNBOOK) -> dict[str, str]:
        """Return the annotations, with Prometheus' templates."""
        runbook = f"{runbook_url}#{self.name.lower()}"
        return {"summary": self.summary, "description": self.description, "runbook_url": runbook}


def _failure_ratio(counter: str, success: str) -> str:
    """Return the share of failures. `success`: the values of error_type that are none; "" is also a missing label."""
    all_ = f"sum by ({_STREAM}) (rate({counter}[5m]))"
    failed = f'sum by ({_STREAM}) (rate({counter}{{error_type!~"{success}"}}[5m]))'
    return f"(\n  {failed}\n  or 0 * {all_}\n)\n/ {all_}"


def _p99(histogram: str) -> str:
    return f"histogram_quantile(0.99, sum by (le, {_STREAM}) (rate({histogram}_bucket[5m])))"


def increase(counter: str, window: str, labels: str) -> str:
    """Return how much a counter increased, also if its series began in the window.

    `increase` misses the first step of a series, from nothing to 1. For a failure that is often the only one. After a
    restart of the counter, its value counts.
    """
    return f"sum by ({labels}) (\n  ({counter} - {counter} offset {window} >= 0)\n  or {counter}\n)"


def _shards(condition: str, window: str) -> str:
    """Return whether shards were in a condition within a window: they may be in others in between, while efo tries.

    A window of two minutes bridges a scrape that fails, at Prometheus' interval of one minute. It is not longer than
    the alert waits: otherwise one sample would do.
    """
    return f'max_over_time(stream:efo_shard_status:sum{{efo_shard_condition="{condition}"}}[{window}]) > 0'


RECORDINGS: Final = (
    Recording("stream:efo_consumer_lag_seconds:max", f"max by ({_STREAM}) (efo_consumer_lag_seconds)"),
    Recording("stream:efo_record_unacked_age_seconds:max", f"max by ({_STREAM}) (efo_record_unacked_age_seconds)"),
    Recording("stream:efo_checkpoint_age_seconds:max", f"max by ({_STREAM}) (efo_checkpoint_age_seconds)"),
    Recording("stream:efo_shard_status:sum", f"sum by ({_STREAM}, efo_shard_condition) (efo_shard_status)"),
    Recording(
        "stream:messaging_client_consumed_messages:rate5m",
        f"sum by ({_STREAM}) (rate(messaging_client_consumed_messages_total[5m]))",
    ),
    Recording(
        "stream:efo_subscription_io_bytes:rate5m", f"sum by ({_STREAM}) (rate(efo_subscription_io_bytes_total[5m]))"
    ),
    Recording("stream:efo_record_age_seconds:p99_5m", _p99("efo_record_age_seconds")),
    Recording("stream:messaging_process_duration_seconds:p99_5m", _p99("messaging_process_duration_seconds")),
    Recording(
        "stream:efo_backpressure_time_seconds:max_rate5m",
        f"max by ({_STREAM}) (rate(efo_backpressure_time_seconds_total[5m]))",
    ),
    Recording(
        "stream:efo_lease_operations:failure_ratio_rate5m", _failure_ratio("efo_lease_operations_total", "|lease_lost")
    ),
    Recording(
        "stream:efo_subscription_attempts:failure_ratio_rate5m",
        _failure_ratio("efo_subscription_attempts_total", ""),
    ),
    Recording(
        "topic:messaging_client_sent_messages:rate5m",
        "sum by (job, messaging_destination_name) (\n"
        '  rate(messaging_client_sent_messages_total{error_type=""}[5m])\n)',
    ),
    Recording(
        "query:efo_pipeline_lag:seconds",
        "sum by (job, efo_pipeline_query) (efo_pipeline_lag)\n"
        "/ sum by (job, efo_pipeline_query) (rate(efo_pipeline_rows_total[15m]))",
    ),
)

ALERTS: Final = (
    Alert(
        "EfoMetricsAbsent",
        "critical",
        "5m",
        "absent(efo_worker_ready)",
        "No worker of efo has metrics",
        "Prometheus has no metrics of any worker. Start `efo run`, or correct the scrape configuration.",
    ),
    Alert(
        "EfoTargetDown",
        "critical",
        "2m",
        f"up{{{_JOB}}} == 0",
        "{{ $labels.instance }} of {{ $labels.job }} does not answer",
        "Prometheus cannot scrape /metrics. Look whether the process runs, at its exit code, and at the network.",
    ),
    Alert(
        "EfoWorkerDown",
        "warning",
        "2m",
        "efo_worker_up == 0",
        "Worker {{ $labels.worker }} of {{ $labels.instance }} does not answer",
        "The supervisor gets no metrics of this worker. Look in the log for worker_ended, and at its exit code.",
    ),
    Alert(
        "EfoNoWorkerUp",
        "critical",
        "1m",
        "sum by (job, instance) (efo_worker_up) == 0",
        "No worker of {{ $labels.instance }} answers",
        "The supervisor runs, but none of its workers answers. Look in the log for worker_ended, and correct "
        "the cause.",
    ),
    Alert(
        "EfoNotReady",
        "critical",
        "5m",
        "efo_worker_ready == 0",
        "A worker of {{ $labels.instance }} is not ready",
        "/readyz is 503: the worker does not read all of its shards. GET /status, and do what its problems say.",
    ),
    Alert(
        "EfoWorkerRestarts",
        "warning",
        "1m",
        increase("efo_worker_restarts_total", "30m", "job, instance") + " > 2",
        "Workers of {{ $labels.instance }} restart repeatedly",
        "Restarts in 30 minutes: {{ $value }}. Look in the log for worker_ended, and correct what its exit code says.",
    ),
    # A backlog that shrinks by a tenth of a second per second is being read. One that does not, grows or stays.
    Alert(
        "EfoLagHigh",
        "warning",
        "5m",
        "stream:efo_consumer_lag_seconds:max > 60\nand deriv(stream:efo_consumer_lag_seconds:max[10m]) > -0.1",
        f"{_OF_STREAM} lags",
        "A shard is {{ $value | humanizeDuration }} behind and does not catch up. GET /status: read its problems, and "
        "add workers if there are none.",
    ),
    Alert(
        "EfoLagCritical",
        "critical",
        "5m",
        "stream:efo_consumer_lag_seconds:max > 900\nand deriv(stream:efo_consumer_lag_seconds:max[10m]) > -0.1",
        f"{_OF_STREAM} lags far behind",
        "A shard is {{ $value | humanizeDuration }} behind and does not catch up. GET /status: read its problems, and "
        "add workers if there are none.",
    ),
    Alert(
        "EfoRetentionAtRisk",
        "critical",
        "5m",
        "stream:efo_consumer_lag_seconds:max > 43200",
        f"{_OF_STREAM} may lose records",
        "A shard is {{ $value | humanizeDuration }} behind. Kinesis deletes records after 24 hours by default: raise "
        "the stream's retention period now, then remove the cause of the lag.",
    ),
    Alert(
        "EfoShardsFrozen",
        "warning",
        "2m",
        _shards("frozen", "2m"),
        f"{_OF_STREAM}: shards are frozen",
        "Shards with an open subscription and no event: {{ $value }}. Look at the network to Kinesis and at the "
        "AWS Health Dashboard.",
    ),
    Alert(
        "EfoShardsDisconnected",
        "warning",
        "5m",
        _shards("disconnected", "2m"),
        f"{_OF_STREAM}: shards are disconnected",
        "Shards without a subscription: {{ $value }}. Look at the network, the credentials, and for another "
        "application with the same consumer.",
    ),
    Alert(
        "EfoShardsUnread",
        "warning",
        "2m",
        _shards("unread", "2m"),
        f"{_OF_STREAM}: the handler or sink takes nothing",
        "Shards of which events wait: {{ $value }}. Make the sink reachable; look in the log for sink_outage_began.",
    ),
    Alert(
        "EfoShardsUncommitted",
        "critical",
        "1m",
        _shards("uncommitted", "1m"),
        f"{_OF_STREAM}: records do not arrive at the sink",
        "Shards whose records are read and not committed: {{ $value }}. GET /status: its problems have the last error "
        "of the sink, and what to do.",
    ),
    Alert(
        "EfoUnackedAgeHigh",
        "critical",
        "2m",
        "stream:efo_record_unacked_age_seconds:max > 60",
        f"{_OF_STREAM}: records were read and are not acked",
        "The oldest was read {{ $value | humanizeDuration }} ago. GET /status: its problems have the last error of the "
        "sink. A child process of `efo kcl` checkpoints too rarely.",
    ),
    Alert(
        "EfoSinkRetries",
        "warning",
        "1m",
        increase("efo_sink_retries_total", "5m", "job, messaging_destination_name") + " > 2",
        "{{ $labels.messaging_destination_name }}: the sink fails",
        "Commits that failed and are tried again, in 5 minutes: {{ $value }}. Look in the log for sink_outage_began.",
    ),
    Alert(
        "EfoShardsWithoutLease",
        "critical",
        "2m",
        _shards("no_lease", "2m"),
        f"{_OF_STREAM}: shards lost their leases",
        "Shards that are not read, as their leases could not be renewed: {{ $value }}. Make the lease store reachable.",
    ),
    Alert(
        "EfoShardsIsolated",
        "critical",
        "1m",
        _shards("isolated", "1m"),
        f"{_OF_STREAM}: shards are isolated",
        "Shards that failed and are not read: {{ $value }}. Look in the log for shard_isolated, and remove the cause.",
    ),
    Alert(
        "EfoRecordsExpired",
        "critical",
        "1m",
        increase("efo_record_expired_time_seconds_total", "15m", _STREAM) + " > 0",
        f"{_OF_STREAM}: records expired unread",
        "Time in which records arrived that expired before they were read, if there were any, in 15 minutes: "
        "{{ $value | humanizeDuration }}. Look in the log for records_expired, and increase the stream's retention "
        "period.",
    ),
    Alert(
        "EfoRecordsSkipped",
        "critical",
        "1m",
        increase('efo_record_failures_total{efo_failure_action="skip"}', "15m", _STREAM) + " > 0",
        f"{_OF_STREAM}: records were skipped",
        "Records that were not handled, in 15 minutes: {{ $value }}. Look in the log for record_skipped; set [relay] "
        "dead_letters to keep such records.",
    ),
    Alert(
        "EfoRecordsDeadLettered",
        "warning",
        "1m",
        increase('efo_record_failures_total{efo_failure_action="dead_letter"}', "15m", _STREAM) + " > 0",
        f"{_OF_STREAM}: records were dead-lettered",
        "Records that were refused, in 15 minutes: {{ $value }}. Look in the dead-letter topic, and correct their "
        "producer or the sink.",
    ),
    Alert(
        "EfoRecordsFiltered",
        "warning",
        "1m",
        increase('efo_record_filtered_total{efo_aggregate_mode!="deduplicate"}', "15m", _STREAM) + " > 0",
        f"{_OF_STREAM}: user records of aggregates are filtered out",
        "User records of other shards' hash keys, in 15 minutes: {{ $value }}. Unless their producer puts them again, "
        'they are lost: set [consumer] aggregates = "deduplicate".',
    ),
    Alert(
        "EfoDecodeErrors",
        "warning",
        "1m",
        increase("efo_decode_errors_total", "15m", _STREAM) + " > 0",
        f"{_OF_STREAM}: events or KPL aggregates are damaged",
        "Errors in 15 minutes: {{ $value }}. Look in the log for aggregate_damaged and subscription_ended, and correct "
        "the producer.",
    ),
    Alert(
        "EfoCheckpointAgeHigh",
        "warning",
        "5m",
        "stream:efo_checkpoint_age_seconds:max > 60",
        f"{_OF_STREAM}: checkpoints are not saved",
        "Records of {{ $value | humanizeDuration }} ago are in no checkpoint. A worker that takes over reads them "
        "again. Look at the sink and the lease store.",
    ),
    Alert(
        "EfoBackpressure",
        "warning",
        "15m",
        "stream:efo_backpressure_time_seconds:max_rate5m > 0.5",
        f"{_OF_STREAM}: the handler or sink is too slow",
        "Events of a shard wait for the handler or sink {{ $value | humanizePercentage }} of the time. Make the sink "
        "faster, commit larger batches, or add workers.",
    ),
    Alert(
        "EfoLogDiskFilling",
        "critical",
        "2m",
        "(\n  efo_log_disk_full_in_seconds < 4 * 3600\n"
        "  and efo_log_disk_free_bytes / efo_log_disk_size_bytes < 0.4\n)\n"
        "or efo_log_disk_free_bytes / efo_log_disk_size_bytes < 0.05",
        "The disk of efo's log on {{ $labels.instance }} is nearly full, or will be within four hours",
        "When it is full, records wait in Kinesis. Free some space, lower [relay] retention_bytes or retention_hours, "
        "or look whether a reader holds the log back: efo log readers list.",
    ),
    Alert(
        "EfoLogHeldByReader",
        "warning",
        "10m",
        # Each worker of an instance tells of the whole log.
        "max by (job, messaging_destination_name, efo_reader) (\n"
        "  max by (job, instance, messaging_destination_name, efo_reader) (efo_log_held_back_bytes)\n"
        "  / on (job, instance, messaging_destination_name) group_left ()\n"
        "  max by (job, instance, messaging_destination_name) (efo_log_size_bytes)\n"
        ") > 0.5",
        "The reader {{ $labels.efo_reader }} holds the log of {{ $labels.messaging_destination_name }}",
        "Of the log's bytes, {{ $value | humanizePercentage }} have expired and wait for this reader. Start it, or "
        "forget it: efo log readers remove {{ $labels.efo_reader }}.",
    ),
    Alert(
        "EfoProcessProblem",
        "warning",
        "2m",
        "max by (job, instance, efo_problem) (efo_process_problem) > 0",
        "efo on {{ $labels.instance }}: {{ $labels.efo_problem }}",
        "A reload was refused, a certificate was not renewed, a changed setting waits for a restart, or the web server "
        "cannot accept connections. The service goes on with what it had: look at problems in /status.",
    ),
    Alert(
        "EfoLeaseStoreFailing",
        "critical",
        "2m",
        "stream:efo_lease_operations:failure_ratio_rate5m > 0.1",
        f"{_OF_STREAM}: the lease store fails",
        "{{ $value | humanizePercentage }} of the operations fail. Make the lease store reachable; look in the log for "
        "lease_store_outage_began.",
    ),
    # One outage costs each lease once, for ten minutes of this window. Flapping goes on.
    Alert(
        "EfoLeasesFlapping",
        "warning",
        "30m",
        increase('efo_lease_losses_total{efo_lease_loss_reason=~"taken|expired|store"}', "10m", _STREAM) + " > 0",
        f"{_OF_STREAM}: leases are lost repeatedly",
        "Leases lost in 10 minutes: {{ $value }}; others before, for half an hour. Workers stall or share a "
        "worker id: look at their CPU time, or raise [leases] failover_seconds.",
    ),
    Alert(
        "EfoSubscriptionsFailing",
        "warning",
        "15m",
        "stream:efo_subscription_attempts:failure_ratio_rate5m > 0.5",
        f"{_OF_STREAM}: SubscribeToShard fails",
        "{{ $value | humanizePercentage }} of the calls fail. Look in the log for kinesis_outage_began; correct the "
        "credentials, the policy or the network.",
    ),
    Alert(
        "EfoSubscriptionsThrottled",
        "warning",
        "15m",
        f'sum by ({_STREAM}) (rate(efo_subscription_attempts_total{{error_type="throttled"}}[5m])) > 0',
        f"{_OF_STREAM}: SubscribeToShard is throttled",
        "Kinesis throttles calls. Lower [consumer] subscribes_per_second, and look for other callers of the account.",
    ),
    Alert(
        "EfoPipelineLagHigh",
        "warning",
        "15m",
        "query:efo_pipeline_lag:seconds > 600",
        "The query {{ $labels.efo_pipeline_query }} of efo pipeline lags",
        "At its present speed it reads for {{ $value | humanizeDuration }} until it is current. Give Spark more cores, "
        "or look at its sink.",
    ),
    Alert(
        "EfoPipelineStalled",
        "critical",
        "10m",
        "sum by (job, efo_pipeline_query) (increase(efo_pipeline_batch_duration_seconds_count[5m])) == 0\n"
        "and on () sum(topic:messaging_client_sent_messages:rate5m) > 0",
        "The query {{ $labels.efo_pipeline_query }} of efo pipeline writes nothing",
        "No micro-batch has ended for 15 minutes, while records are relayed. Look at the log of `efo pipeline`, and "
        "restart it.",
    ),
)


def _shorter(text: str, faster: int) -> str:
    """Return an expression or a duration with its minutes divided: `5m` is `30s`, ten times as fast."""
    return text if faster == 1 else _MINUTES.sub(lambda found: f"{int(found[1]) * 60 // faster}s", text)


def _lines(faster: int, runbook: str) -> Iterator[str]:
    yield "# Rules of Prometheus for efo. Generated by `python tools/prometheus_rules.py --write`: change that file."
    yield "# The name of the scrape job must begin with efo. docs/runbook.md has one section for each alert."
    yield "groups:"
    yield "  - name: efo-recordings"
    yield "    rules:"
    for recording in RECORDINGS:
        yield f"      - record: {recording.name}"
        yield from _expr(_shorter(recording.expr, faster))
    yield "  - name: efo-alerts"
    yield "    rules:"
    for alert in ALERTS:
        yield f"      - alert: {alert.name}"
        yield from _expr(_shorter(alert.expr, faster))
        yield f"        for: {_shorter(alert.wait, faster)}"
        yield f"        labels: {{severity: {alert.severity}}}"
        yield "        annotations:"
        for name, text in alert.annotations(runbook).items():
            yield f"          {name}: {json.dumps(text)}"  # a string of JSON is one of YAML


def _expr(expr: str) -> Iterator[str]:
    yield "        expr: |-"
    yield indent(expr, " " * 10)


def render(faster: int = 1, runbook: str = RUNBOOK) -> str:
    """Return the content of rules.yml.

    `faster`: divides all windows and waiting times, for proofs; no threshold. `runbook`: the URL of docs/runbook.md.
    """
    return "\n".join(_lines(faster, runbook)) + "\n"


def render_for_kubernetes(runbook: str = RUNBOOK) -> str:
    """Return the content of prometheusrule.yaml: the same rules, as a resource of the Prometheus operator."""
    comments, groups = render(runbook=runbook).split("groups:\n")
    head = "apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\n"
    head += "metadata:\n  name: efo\n  labels: {app.kubernetes.io/name: efo}\nspec:\n"
    return f"{comments}{head}  groups:\n{indent(groups, '  ')}"


def main() -> int:
    """Write the rules to their files, or to stdout."""
    parser = argparse.ArgumentParser(description="Rules of Prometheus for efo.")
    parser.add_argument("--write", action="store_true", help=f"write {RULES.name} and {KUBERNETES.name}")
    parser.add_argument(
        "--runbook", metavar="URL", default=RUNBOOK, help="where docs/runbook.md is for whoever is paged"
    )
    options = parser.parse_args()
    if not options.runbook.startswith(("https://", "http://")):
        parser.error(f"--runbook {options.runbook}: give an absolute URL, since an alert is read without a checkout")
    if options.write:
        RULES.parent.mkdir(exist_ok=True)
        RULES.write_text(render(runbook=options.runbook))
        KUBERNETES.write_text(render_for_kubernetes(options.runbook))
    else:
        print(render(runbook=options.runbook), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
