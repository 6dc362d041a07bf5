"""The first page: is everything read, how late, how much, and what is wrong."""

from __future__ import annotations

from typing import Final

from tools.grafana.model import Dashboard, Panel, Query, Row, of_instance, of_job, of_stream
from tools.prometheus_rules import increase

_STREAM: Final = "{{messaging_consumer_group_name}} on {{messaging_destination_name}}"
_LABELS: Final = "messaging_consumer_group_name, messaging_destination_name"
_LAG: Final = "stream:efo_consumer_lag_seconds:max"
_READ: Final = "stream:messaging_client_consumed_messages:rate5m"

OVERVIEW: Final = Dashboard(
    "efo-overview",
    "efo / Overview",
    "Whether every shard is read, how late, and what is wrong.",
    (
        Row(
            "Now",
            (
                Panel(
                    title="Ready workers",
                    about="Workers that read all of their shards, as /readyz says.",
                    kind="stat",
                    queries=(Query(f"sum({of_stream('efo_worker_ready')})", "ready"),),
                    alerts=("EfoNotReady", "EfoMetricsAbsent"),
                ),
                Panel(
                    title="Not ready",
                    about="Workers whose /readyz is 503. /status says why, and what to do.",
                    kind="stat",
                    queries=(Query(f"count({of_stream('efo_worker_ready')} == 0) or vector(0)", "not ready"),),
                    alerts=("EfoNotReady",),
                    steps=(1, 2),
                ),
                Panel(
                    title="Highest lag",
                    about="Time since what the slowest shard has read and committed was known to be current.",
                    kind="stat",
                    unit="s",
                    queries=(Query(f"max({of_stream(_LAG)})", "lag"),),
                    alerts=("EfoLagHigh", "EfoLagCritical", "EfoRetentionAtRisk"),
                    steps=(60, 900),
                ),
                Panel(
                    title="Oldest unsaved record",
                    about="Time since records were delivered that no saved checkpoint includes.",
                    kind="stat",
                    unit="s",
                    queries=(Query(f"max({of_stream('stream:efo_checkpoint_age_seconds:max')})", "age"),),
                    alerts=("EfoCheckpointAgeHigh",),
                    steps=(30, 60),
                ),
                Panel(
                    title="Records per second",
                    about="Records that the handler or the relay has processed, over five minutes.",
                    kind="stat",
                    unit="cps",
                    queries=(Query(f"sum({of_stream(_READ)})", "records"),),
                ),
                Panel(
                    title="Firing alerts",
                    about="Alerts of efo that fire now. Each has its page in the runbook.",
                    kind="stat",
                    queries=(
                        Query(
                            f"""count({of_job("ALERTS", 'alertname=~"Efo.*", alertstate="firing"')}) or vector(0)""",
                            "firing",
                        ),
                    ),
                    steps=(1, 1),
                ),
            ),
        ),
        Row(
            "Reading",
            (
                Panel(
                    title="Lag",
                    about="The highest lag of a shard, for each application and stream.",
                    unit="s",
                    queries=(Query(of_stream(_LAG), _STREAM),),
                    alerts=("EfoLagHigh", "EfoLagCritical", "EfoRetentionAtRisk"),
                    steps=(60, 900),
                ),
                Panel(
                    title="Shards by condition",
                    about="current and paused are healthy. docs/monitoring.md explains the others.",
                    queries=(
                        Query(
                            f"sum by (efo_shard_condition) ({of_stream('stream:efo_shard_status:sum')})",
                            "{{efo_shard_condition}}",
                        ),
                    ),
                    alerts=(
                        "EfoShardsFrozen",
                        "EfoShardsDisconnected",
                        "EfoShardsUnread",
                        "EfoShardsUncommitted",
                        "EfoShardsWithoutLease",
                        "EfoShardsIsolated",
                    ),
                    stacked=True,
                ),
                Panel(
                    title="Shards by how they are read",
                    about="With read_mode = auto, polling means that fan-out is not possible: /status says why.",
                    queries=(
                        Query(
                            f"sum by (efo_shard_read_mode) ({of_stream('efo_shard_status')})",
                            "{{efo_shard_read_mode}}",
                        ),
                    ),
                    stacked=True,
                ),
                Panel(
                    title="Records read and sent",
                    about="Records that were read of each stream, and committed to each topic, over five minutes.",
                    unit="cps",
                    queries=(
                        Query(of_stream(_READ), f"read: {_STREAM}"),
                        Query(
                            of_job("topic:messaging_client_sent_messages:rate5m"),
                            "sent: {{messaging_destination_name}}",
                        ),
                    ),
                ),
                Panel(
                    title="Bytes from Kinesis",
                    about="Bytes of events on the wire, with framing. A shard delivers at most 2 MiB/s.",
                    unit="Bps",
                    queries=(Query(of_stream("stream:efo_subscription_io_bytes:rate5m"), _STREAM),),
                ),
                Panel(
                    title="Age of records, p99",
                    about="Time from a record's arrival in Kinesis until it was processed.",
                    unit="s",
                    queries=(Query(of_stream("stream:efo_record_age_seconds:p99_5m"), _STREAM),),
                    alerts=("EfoLagHigh",),
                ),
                Panel(
                    title="Records that were not handled",
                    about="Records that were skipped or dead-lettered, or dropped by a limit of age, in 15 minutes.",
                    queries=(
                        Query(
                            increase(of_stream("efo_record_failures_total"), "15m", "efo_failure_action"),
                            "{{efo_failure_action}}",
                        ),
                        Query(
                            increase(of_stream("efo_record_dropped_total"), "15m", "efo_drop_reason"),
                            "{{efo_drop_reason}}",
                        ),
                    ),
                    alerts=("EfoRecordsSkipped", "EfoRecordsDeadLettered"),
                ),
                Panel(
                    title="Time that expired or was skipped unread",
                    about="How much time's records may have expired, or skip_when_behind_seconds has skipped,"
                    " in 15 minutes.",
                    unit="s",
                    queries=(
                        Query(increase(of_stream("efo_record_expired_time_seconds_total"), "15m", _LABELS), _STREAM),
                        Query(
                            increase(of_stream("efo_record_skipped_time_seconds_total"), "15m", _LABELS),
                            f"skipped: {_STREAM}",
                        ),
                    ),
                    alerts=("EfoRecordsExpired",),
                ),
            ),
        ),
        Row(
            "What is wrong",
            (
                Panel(
                    title="Alerts",
                    about="Alerts of efo that fire or wait. docs/runbook.md has one page for each.",
                    kind="table",
                    queries=(Query(of_job("ALERTS", 'alertname=~"Efo.*"'), "{{alertname}}"),),
                ),
                Panel(
                    title="Targets",
                    about="1 for each target of Prometheus that answers.",
                    queries=(Query(of_instance("up"), "{{instance}}"),),
                    alerts=("EfoTargetDown",),
                ),
            ),
        ),
    ),
)
