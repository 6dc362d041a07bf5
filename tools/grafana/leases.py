"""The page about workers and their leases: who reads what, and how the lease store does."""

from __future__ import annotations

from typing import Final

from tools.grafana.model import Dashboard, Panel, Query, Row, of_instance, of_stream, quantile, rate
from tools.prometheus_rules import increase

LEASES: Final = Dashboard(
    "efo-leases",
    "efo / Leases and workers",
    "Who reads what, and how the lease store does.",
    (
        Row(
            "Workers",
            (
                Panel(
                    title="Workers with leases",
                    about="As the lease table says. Absent while it is unknown.",
                    queries=(Query(f"max({of_stream('efo_workers')})", "workers"),),
                ),
                Panel(
                    title="Workers that are ready",
                    about="1 if the worker reads all of its shards, otherwise 0.",
                    queries=(Query(of_stream("efo_worker_ready", 'instance=~"$instance"'), "{{instance}} {{worker}}"),),
                    alerts=("EfoNotReady",),
                ),
                Panel(
                    title="Workers that answer their supervisor",
                    about="With `efo run --workers N`: 1 if the worker's metrics can be read, otherwise 0.",
                    queries=(Query(of_instance("efo_worker_up"), "{{instance}} {{worker}}"),),
                    alerts=("EfoWorkerDown", "EfoNoWorkerUp"),
                ),
                Panel(
                    title="Restarts of workers",
                    about="Workers that ended and were started again, in 30 minutes. Only after the first end.",
                    queries=(
                        Query(
                            increase(of_instance("efo_worker_restarts_total"), "30m", "instance, worker"),
                            "{{instance}} {{worker}}",
                        ),
                    ),
                    alerts=("EfoWorkerRestarts",),
                ),
            ),
        ),
        Row(
            "Shards and leases",
            (
                Panel(
                    title="Shards by state",
                    about="As the lease table says. Absent while it is unknown.",
                    queries=(Query(f"max by (efo_shard_state) ({of_stream('efo_shards')})", "{{efo_shard_state}}"),),
                    stacked=True,
                ),
                Panel(
                    title="Leases by state",
                    about="As the lease table says. Absent while it is unknown.",
                    queries=(Query(f"max by (efo_lease_state) ({of_stream('efo_leases')})", "{{efo_lease_state}}"),),
                    stacked=True,
                ),
                Panel(
                    title="Lost leases",
                    about="By reason, in 10 minutes. released and handed_over are planned.",
                    queries=(
                        Query(
                            increase(of_stream("efo_lease_losses_total"), "10m", "efo_lease_loss_reason"),
                            "{{efo_lease_loss_reason}}",
                        ),
                    ),
                    alerts=("EfoLeasesFlapping", "EfoShardsWithoutLease"),
                ),
                Panel(
                    title="Isolated shards",
                    about="Shards that failed and were isolated (rule R11), by error, in 15 minutes.",
                    queries=(
                        Query(
                            increase(of_stream("efo_shard_isolations_total"), "15m", "error_type"),
                            "{{error_type}}",
                        ),
                    ),
                    alerts=("EfoShardsIsolated",),
                ),
            ),
        ),
        Row(
            "Lease store",
            (
                Panel(
                    title="Operations",
                    about="Leases that were read or written, by operation.",
                    unit="ops",
                    queries=(
                        Query(
                            f"sum by (efo_lease_operation) ({rate(of_stream('efo_lease_operations_total'))})",
                            "{{efo_lease_operation}}",
                        ),
                    ),
                ),
                Panel(
                    title="Failed operations",
                    about="Share of the operations that failed. A lost race for a lease is no failure.",
                    unit="percentunit",
                    queries=(
                        Query(
                            of_stream("stream:efo_lease_operations:failure_ratio_rate5m"),
                            "{{messaging_consumer_group_name}} on {{messaging_destination_name}}",
                        ),
                    ),
                    alerts=("EfoLeaseStoreFailing",),
                    steps=(0.01, 0.1),
                ),
                Panel(
                    title="Duration of operations, p99",
                    about="By operation.",
                    unit="s",
                    queries=(
                        Query(
                            quantile(
                                0.99, of_stream("efo_lease_operation_duration_seconds_bucket"), "efo_lease_operation"
                            ),
                            "{{efo_lease_operation}}",
                        ),
                    ),
                ),
                Panel(
                    title="Age of checkpoints",
                    about="Time since records were delivered that no saved checkpoint includes. The 20 highest shards.",
                    unit="s",
                    queries=(
                        Query(
                            "topk(20, max by (messaging_destination_partition_id)"
                            f" ({of_stream('efo_checkpoint_age_seconds')}))",
                            "{{messaging_destination_partition_id}}",
                        ),
                    ),
                    alerts=("EfoCheckpointAgeHigh",),
                    steps=(30, 60),
                ),
            ),
        ),
    ),
)
