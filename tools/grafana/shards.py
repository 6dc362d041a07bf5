"""The page about shards: which one lags, and how its subscription does."""

from __future__ import annotations

from typing import Final

from tools.grafana.model import Dashboard, Panel, Query, Row, of_job, of_stream, quantile, rate
from tools.prometheus_rules import increase

_SHARD: Final = "{{messaging_destination_partition_id}}"
_BY_SHARD: Final = "messaging_destination_partition_id"

SHARDS: Final = Dashboard(
    "efo-shards",
    "efo / Shards and lag",
    "Each shard: how late it is, what it delivers, and how its subscription does. At most 20 shards in a panel.",
    (
        Row(
            "Lag",
            (
                Panel(
                    title="Lag of each shard",
                    about="Time since what was read of the shard was known to be current. The 20 highest.",
                    unit="s",
                    queries=(
                        Query(f"topk(20, max by ({_BY_SHARD}) ({of_stream('efo_consumer_lag_seconds')}))", _SHARD),
                        Query(f"max({of_stream('efo_consumer_read_lag_seconds')})", "of reading, the highest"),
                    ),
                    alerts=("EfoLagHigh", "EfoLagCritical", "EfoRetentionAtRisk"),
                    steps=(60, 900),
                ),
                Panel(
                    title="Last event of each shard",
                    about="Time since the last event. An idle shard gets one about every 5 s. The 20 highest.",
                    unit="s",
                    queries=(
                        Query(
                            f"topk(20, max by ({_BY_SHARD}) ({of_stream('efo_subscription_event_age_seconds')}))",
                            _SHARD,
                        ),
                    ),
                    alerts=("EfoShardsFrozen",),
                    steps=(10, 35),
                ),
                Panel(
                    title="Shards that are not current",
                    about="Each shard that is not read as it should be, with its condition and its subscription.",
                    kind="table",
                    queries=(Query(of_stream("efo_shard_status", 'efo_shard_condition!="current"'), _SHARD),),
                    alerts=("EfoShardsFrozen", "EfoShardsDisconnected", "EfoShardsUnread", "EfoShardsUncommitted"),
                ),
                Panel(
                    title="Waiting for the handler or sink",
                    about="Share of the time that events of a shard wait. Near 1, the handler or sink is the limit.",
                    unit="percentunit",
                    queries=(
                        Query(
                            f"topk(20, max by ({_BY_SHARD})"
                            f" ({rate(of_stream('efo_backpressure_time_seconds_total'))}))",
                            _SHARD,
                        ),
                    ),
                    alerts=("EfoBackpressure", "EfoShardsUnread"),
                    steps=(0.5, 0.9),
                ),
            ),
        ),
        Row(
            "Traffic",
            (
                Panel(
                    title="Records of each shard",
                    about="Records that were processed. The 20 highest: one that stands out has a hot key.",
                    unit="cps",
                    queries=(
                        Query(
                            f"topk(20, sum by ({_BY_SHARD})"
                            f" ({rate(of_stream('messaging_client_consumed_messages_total'))}))",
                            _SHARD,
                        ),
                    ),
                ),
                Panel(
                    title="Bytes of each shard",
                    about="Bytes of events on the wire. A shard delivers at most 2 MiB/s. The 20 highest.",
                    unit="Bps",
                    queries=(
                        Query(
                            f"topk(20, sum by ({_BY_SHARD}) ({rate(of_stream('efo_subscription_io_bytes_total'))}))",
                            _SHARD,
                        ),
                    ),
                ),
                Panel(
                    title="Records in flight",
                    about="Records that were delivered and are not acked. The 20 highest.",
                    queries=(Query(f"topk(20, sum by ({_BY_SHARD}) ({of_stream('efo_record_inflight')}))", _SHARD),),
                ),
                Panel(
                    title="Time between events, p99",
                    about="Of each shard the highest, once a second or less. 5 s is an idle stream.",
                    unit="s",
                    queries=(
                        Query(quantile(0.99, of_stream("efo_subscription_event_interval_seconds_bucket")), "p99"),
                        Query(quantile(0.5, of_stream("efo_subscription_event_interval_seconds_bucket")), "p50"),
                    ),
                ),
            ),
        ),
        Row(
            "Subscriptions",
            (
                Panel(
                    title="Open subscriptions",
                    about="One for each shard that is read; two for a moment while one is renewed.",
                    queries=(Query(f"sum({of_stream('efo_subscription_active')})", "open"),),
                    alerts=("EfoShardsDisconnected",),
                ),
                Panel(
                    title="Calls of SubscribeToShard",
                    about="By result. A shard is subscribed again about every four and a half minutes.",
                    unit="cps",
                    queries=(
                        Query(
                            f"sum by (error_type) ({rate(of_stream('efo_subscription_attempts_total'))})",
                            "{{error_type}}",
                        ),
                    ),
                    alerts=("EfoSubscriptionsFailing", "EfoSubscriptionsThrottled"),
                ),
                Panel(
                    title="Failed calls",
                    about="Share of the calls of SubscribeToShard that failed, over five minutes.",
                    unit="percentunit",
                    queries=(
                        Query(
                            of_stream("stream:efo_subscription_attempts:failure_ratio_rate5m"),
                            "{{messaging_consumer_group_name}} on {{messaging_destination_name}}",
                        ),
                    ),
                    alerts=("EfoSubscriptionsFailing",),
                    steps=(0.1, 0.5),
                ),
                Panel(
                    title="Time until a response, p99",
                    about="From the call of SubscribeToShard until its response.",
                    unit="s",
                    queries=(
                        Query(
                            quantile(
                                0.99,
                                of_stream(
                                    "messaging_client_operation_duration_seconds_bucket",
                                    'messaging_operation_name="subscribe"',
                                ),
                            ),
                            "p99",
                        ),
                    ),
                ),
                Panel(
                    title="Wait for the subscribe budget, p99",
                    about="Time that a call waited, so that Kinesis does not throttle it (rule R6).",
                    unit="s",
                    queries=(Query(quantile(0.99, of_stream("efo_subscription_wait_duration_seconds_bucket")), "p99"),),
                    alerts=("EfoShardsDisconnected",),
                ),
                Panel(
                    title="Ends of subscriptions",
                    about="By reason. renewed, expired and shard_end are planned.",
                    unit="cps",
                    queries=(
                        Query(
                            "sum by (efo_subscription_end_reason)"
                            f" ({rate(of_stream('efo_subscription_duration_seconds_count'))})",
                            "{{efo_subscription_end_reason}}",
                        ),
                    ),
                    alerts=("EfoShardsFrozen", "EfoShardsDisconnected"),
                ),
                Panel(
                    title="HTTP/2 connections",
                    about="Open connections to Kinesis, and streams that it reset, by error code.",
                    queries=(
                        Query(f"sum({of_job('efo_http2_connection_active')})", "open"),
                        Query(
                            increase(of_job("efo_http2_resets_total"), "5m", "efo_http2_error_code"),
                            "reset: {{efo_http2_error_code}}",
                        ),
                    ),
                ),
                Panel(
                    title="Damaged events and aggregates",
                    about="Events, or KPL aggregates, that could not be decoded, in 15 minutes.",
                    queries=(
                        Query(
                            increase(of_stream("efo_decode_errors_total"), "15m", "error_type"),
                            "{{error_type}}",
                        ),
                    ),
                    alerts=("EfoDecodeErrors",),
                ),
                Panel(
                    title="User records filtered out of aggregates",
                    about="By shard and [consumer] aggregates, in 15 minutes. With deduplicate they are duplicates.",
                    queries=(
                        Query(
                            increase(
                                of_stream("efo_record_filtered_total"),
                                "15m",
                                "messaging_destination_partition_id, efo_aggregate_mode",
                            ),
                            "{{messaging_destination_partition_id}}: {{efo_aggregate_mode}}",
                        ),
                    ),
                    alerts=("EfoRecordsFiltered",),
                ),
            ),
        ),
    ),
)
