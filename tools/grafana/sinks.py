"""The page about where records go: handler or relay, sink, and the Spark pipeline."""

from __future__ import annotations

from typing import Final

from tools.grafana.model import Dashboard, Panel, Query, Row, of_job, of_stream, quantile, rate
from tools.prometheus_rules import increase

_QUERY: Final = "{{efo_pipeline_query}}"
_BY_SHARD: Final = "messaging_destination_partition_id"

SINKS: Final = Dashboard(
    "efo-sinks",
    "efo / Sink and pipeline",
    "Where records go: the handler or relay, the log, Kafka or JSON lines, and Spark.",
    (
        Row(
            "Handler and relay",
            (
                Panel(
                    title="Records sent to each topic",
                    about="Records that the relay committed to its sink, over five minutes.",
                    unit="cps",
                    queries=(
                        Query(of_job("topic:messaging_client_sent_messages:rate5m"), "{{messaging_destination_name}}"),
                    ),
                    alerts=("EfoShardsUncommitted", "EfoShardsUnread"),
                ),
                Panel(
                    title="Oldest record that is not committed",
                    about="Time since the oldest record was read that the sink has not committed, of each shard.",
                    unit="s",
                    queries=(
                        Query(f"max({of_stream('stream:efo_record_unacked_age_seconds:max')})", "oldest"),
                        Query(
                            f"topk(20, max by ({_BY_SHARD}) ({of_stream('efo_record_unacked_age_seconds')}))",
                            "{{messaging_destination_partition_id}}",
                        ),
                    ),
                    alerts=("EfoShardsUncommitted", "EfoUnackedAgeHigh"),
                    steps=(10, 60),
                ),
                Panel(
                    title="Commits that failed",
                    about="Commits and openings of the sink that failed, by error. They are tried again.",
                    unit="cps",
                    queries=(
                        Query(
                            f"sum by (messaging_system, error_type) ({rate(of_job('efo_sink_retries_total'))})",
                            "{{messaging_system}}: {{error_type}}",
                        ),
                    ),
                    alerts=("EfoSinkRetries", "EfoShardsUncommitted"),
                ),
                Panel(
                    title="Time of the handler for a batch",
                    about="For the relay: the time to write the batch to the buffer, and to wait until it has space.",
                    unit="s",
                    queries=(
                        Query(of_stream("stream:messaging_process_duration_seconds:p99_5m"), "p99"),
                        Query(quantile(0.5, of_stream("messaging_process_duration_seconds_bucket")), "p50"),
                    ),
                    alerts=("EfoBackpressure",),
                ),
                Panel(
                    title="Waiting for the handler or sink",
                    about="The shard that waits most, over five minutes. Near 1, the handler or sink is the limit.",
                    unit="percentunit",
                    queries=(
                        Query(
                            of_stream("stream:efo_backpressure_time_seconds:max_rate5m"),
                            "{{messaging_consumer_group_name}} on {{messaging_destination_name}}",
                        ),
                    ),
                    alerts=("EfoBackpressure",),
                    steps=(0.5, 0.9),
                ),
                Panel(
                    title="Time to save a checkpoint, p99",
                    about="In the lease store. The log and Kafka have positions of their own.",
                    unit="s",
                    queries=(
                        Query(
                            quantile(
                                0.99,
                                of_stream(
                                    "messaging_client_operation_duration_seconds_bucket",
                                    'messaging_operation_name="checkpoint"',
                                ),
                            ),
                            "p99",
                        ),
                    ),
                    alerts=("EfoCheckpointAgeHigh",),
                ),
                Panel(
                    title="Records that were refused",
                    about="By what happened to them, and why, in 15 minutes.",
                    queries=(
                        Query(
                            increase(of_stream("efo_record_failures_total"), "15m", "efo_failure_action, error_type"),
                            "{{efo_failure_action}}: {{error_type}}",
                        ),
                    ),
                    alerts=("EfoRecordsSkipped", "EfoRecordsDeadLettered"),
                ),
            ),
        ),
        Row(
            "Log",
            (
                Panel(
                    title="Size of the log",
                    about="Bytes of each topic, and those that have expired and wait for a reader.",
                    unit="bytes",
                    queries=(
                        Query(of_job("efo_log_size_bytes"), "{{messaging_destination_name}}"),
                        Query(of_job("efo_log_held_back_bytes"), "{{messaging_destination_name}}: for {{efo_reader}}"),
                    ),
                    alerts=("EfoLogHeldByReader", "EfoLogDiskFilling"),
                ),
                Panel(
                    title="Records that readers have not read",
                    about="By the named readers of the log, such as Spark queries.",
                    queries=(Query(of_job("efo_log_reader_lag"), "{{messaging_destination_name}}: {{efo_reader}}"),),
                    alerts=("EfoLogHeldByReader",),
                ),
                Panel(
                    title="Age of the oldest record",
                    about="Since its commit. With retention_hours, it stays near that, unless a reader holds it.",
                    unit="s",
                    queries=(Query(of_job("efo_log_oldest_age_seconds"), "{{messaging_destination_name}}"),),
                    alerts=("EfoLogHeldByReader",),
                ),
                Panel(
                    title="Segments",
                    about="Files of each topic, without superseded ones. Compaction keeps them few.",
                    queries=(Query(of_job("efo_log_segments"), "{{messaging_destination_name}}"),),
                ),
                Panel(
                    title="Free space of the log's disk",
                    about="Of its file system.",
                    unit="percentunit",
                    queries=(
                        Query(
                            f"{of_job('efo_log_disk_free_bytes')} / {of_job('efo_log_disk_size_bytes')}", "{{instance}}"
                        ),
                    ),
                    alerts=("EfoLogDiskFilling",),
                ),
                Panel(
                    title="Time until the log's disk is full",
                    about="At the rate of the last hour. Nothing is shown while it does not fill.",
                    unit="s",
                    queries=(Query(of_job("efo_log_disk_full_in_seconds"), "{{instance}}"),),
                    alerts=("EfoLogDiskFilling",),
                ),
            ),
        ),
        Row(
            "Spark pipeline",
            (
                Panel(
                    title="Rows read and written",
                    about="By query of `efo pipeline`.",
                    unit="cps",
                    queries=(
                        Query(
                            f"sum by (efo_pipeline_query) ({rate(of_job('efo_pipeline_rows_total'))})",
                            f"read: {_QUERY}",
                        ),
                        Query(
                            f"sum by (efo_pipeline_query) ({rate(of_job('efo_pipeline_rows_written_total'))})",
                            f"written: {_QUERY}",
                        ),
                    ),
                    alerts=("EfoPipelineStalled",),
                ),
                Panel(
                    title="Unread records",
                    about="Records in the log or topic that the query has not read.",
                    queries=(Query(f"sum by (efo_pipeline_query) ({of_job('efo_pipeline_lag')})", _QUERY),),
                    alerts=("EfoPipelineLagHigh",),
                ),
                Panel(
                    title="Time until the query is current",
                    about="At the speed of the last 15 minutes.",
                    unit="s",
                    queries=(Query(of_job("query:efo_pipeline_lag:seconds"), _QUERY),),
                    alerts=("EfoPipelineLagHigh",),
                    steps=(60, 600),
                ),
                Panel(
                    title="Duration of a micro-batch",
                    about="Longer than the trigger interval, the query falls behind.",
                    unit="s",
                    queries=(
                        Query(
                            quantile(0.99, of_job("efo_pipeline_batch_duration_seconds_bucket"), "efo_pipeline_query"),
                            f"p99: {_QUERY}",
                        ),
                    ),
                    alerts=("EfoPipelineStalled",),
                ),
                Panel(
                    title="Late rows",
                    about="Rows that were dropped because they were older than the watermark.",
                    unit="cps",
                    queries=(
                        Query(f"sum by (efo_pipeline_query) ({rate(of_job('efo_pipeline_late_rows_total'))})", _QUERY),
                    ),
                ),
            ),
        ),
    ),
)
