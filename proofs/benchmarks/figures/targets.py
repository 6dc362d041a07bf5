"""The figures of `make bench`, with their targets. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Figure:
    """`group`: what is measured together. `target`: None for a figure that is only reported. `aim`: better than it.

    `more`: whether more is better.
    """

    name: str
    group: str
    title: str
    unit: str
    target: float | None = None
    aim: float | None = None
    more: bool = False

    def is_met_by(self, value: float) -> bool | None:
        """Return whether a value reaches the target; None without a target."""
        if self.target is None:
            return None
        return value >= self.target if self.more else value <= self.target


def _figures() -> Iterator[Figure]:
    group = "data-path"
    yield Figure("data_path_1kb_mb_per_cpu_s", group, "records of 1 KB", "MB/CPU-s", 140, 165, more=True)
    yield Figure(
        "data_path_200b_k_records_per_cpu_s", group, "records of 200 B", "k records/CPU-s", 420, 460, more=True
    )
    title = "KPL aggregates of 100 records of 100 B"
    yield Figure("data_path_kpl_k_records_per_cpu_s", group, title, "k records/CPU-s", 700, 1000, more=True)

    group = "relay"
    title = "efo run into the log, as a share of the consumer's rate"
    yield Figure("relay_log_200b_share", group, f"{title}, 200 B", "", 0.6, more=True)
    yield Figure("relay_log_1kb_share", group, f"{title}, 1 KB", "", 0.6, more=True)
    title = "efo run into Kafka, exactly once, 200 B; librdkafka's mock cluster"
    yield Figure("relay_kafka_200b_k_records_per_cpu_s", group, title, "k records/CPU-s", 100, more=True)

    group = "cores"
    yield Figure("cores_2_speedup", group, "records per second, 2 processes to 1", "", 1.8, more=True)
    yield Figure("cores_4_speedup", group, "records per second, 4 processes to 1", "", more=True)
    yield Figure("cores_2_cpu_per_record", group, "CPU time per record, 2 processes to 1", "")

    group = "small-events"
    yield Figure("event_cpu_ms", group, "CPU time per event of one record", "ms", 0.2)
    title = "put to handler, 1,000 records/s over 50 shards"
    yield Figure("latency_p50_ms", group, f"{title}, p50", "ms", 3)
    yield Figure("latency_p99_ms", group, f"{title}, p99", "ms", 15)

    group = "telemetry"
    title = "CPU time per record with metrics, {} and CloudWatch's metrics, to none; {}"
    for sampler, spans in (("sampled", "spans of one batch of 100"), ("always_on", "spans of all batches")):
        for shape, size in (("1kb", "1 KB"), ("200b", "200 B")):
            yield Figure(f"telemetry_{shape}_{sampler}", group, title.format(spans, size), "", 1.03)
    yield Figure("telemetry_one_record_sampled", group, title.format("spans of one of 100", "events of one record"), "")

    group = "idle"
    yield Figure("idle_1000_cpu_percent", group, "1,000 idle shards", "% of a core", 6)
    yield Figure("idle_1000_kb_per_shard", group, "1,000 idle shards", "KB per shard", 50)
    yield Figure("idle_4000_cpu_percent", group, "4,000 idle shards", "% of a core", 25)
    yield Figure("stop_1000_s", group, "stop with 1,000 shards", "s", 1)

    group = "start"
    yield Figure("import_ms", group, "import efo", "ms", 50)
    yield Figure("first_record_cold_s", group, "first record of 4 shards, no lease table", "s", 0.5)
    yield Figure("first_record_warm_s", group, "first record of 4 shards, leases exist", "s", 0.5)
    yield Figure("restart_after_kill_s", group, "from SIGKILL until a new process has read 4 shards", "s", 1)
    yield Figure("all_100_shards_s", group, "all of 100 shards, leases exist", "s", 1.5)

    group = "linearity"
    title = "CPU time per record, {} shards to 1"
    yield Figure("linearity_100_shards", group, title.format("100"), "", 1.15)
    yield Figure("linearity_1000_shards", group, title.format("1,000"), "", 1.15)


FIGURES: Final = tuple(_figures())
GROUPS: Final = tuple(dict.fromkeys(figure.group for figure in FIGURES))
