"""The metrics in order, and the tables that show them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from proofs.peers.statistics import Rounds, ratio, summarize


@dataclass(frozen=True, slots=True)
class Metric:
    """`name`: the key in the results. `title`: with unit. `more`: whether more is better."""

    name: str
    title: str
    more: bool = False


def _throughput(shape: str, title: str) -> Iterator[Metric]:
    name = f"throughput/{shape}"
    yield Metric(f"{name}/per_cpu", f"{title}: user records per client CPU second", more=True)
    yield Metric(f"{name}/per_wall", f"{title}: user records per second", more=True)
    yield Metric(f"{name}/cores", f"{title}: cores that the client took")
    yield Metric(f"{name}/rss_mb", f"{title}: resident memory, MB")


def _shards(shards: int) -> Iterator[Metric]:
    yield Metric(f"start/{shards}/first_s", f"{shards} shards: process start to first record, s")
    yield Metric(f"start/{shards}/all_s", f"{shards} shards: process start to a record of each shard, s")
    yield Metric(f"start/{shards}/stop_s", f"{shards} shards: SIGTERM to exit, s")
    yield Metric(f"idle/{shards}/rss_mb", f"{shards} idle shards: resident memory, MB")
    yield Metric(f"idle/{shards}/cpu_percent", f"{shards} idle shards: CPU, % of one core")


def _correctness(kind: str, title: str) -> Iterator[Metric]:
    for name, what in (("lost", "lost"), ("repeated", "repeated"), ("out_of_order", "out of order per key")):
        yield Metric(f"correctness/{kind}/{name}", f"{title}: records {what}, of 20,000")


METRICS: Final = (
    *_throughput("1000B", "1,000 B"),
    *_throughput("200B", "200 B"),
    *_throughput("kpl", "KPL 100 x 100 B"),
    *_shards(4),
    *_shards(100),
    *_shards(1000),
    Metric("latency/p50_ms", "put to handler, p50, ms"),
    Metric("latency/p99_ms", "put to handler, p99, ms"),
    *_correctness("live", "live"),
    *_correctness("backlog", "from a backlog"),
)


def figure(value: float) -> str:
    """Format a value with three significant digits, and thousands with commas."""
    if value == 0:
        return "0"
    if abs(value) >= 100:  # noqa: PLR2004 - three digits before the point
        return f"{value:,.0f}"
    return f"{value:.3g}"


def lines_of(results: Mapping[str, Rounds], base: str) -> Iterator[str]:
    """Yield one table per metric: each peer's median, its spread over the rounds, and the base's ratio to it."""
    for metric in METRICS:
        rows = [(peer, rounds[metric.name]) for peer, rounds in results.items() if rounds.get(metric.name)]
        if not rows:
            continue
        yield f"{metric.title} ({'more' if metric.more else 'less'} is better)"
        for peer, values in rows:
            yield _row(peer, values, None if peer == base else results.get(base, {}).get(metric.name), base)
        yield ""


def _row(peer: str, values: Sequence[float], mine: Sequence[float] | None, base: str) -> str:
    summary = summarize(values)
    spread = f"{figure(summary.low)} to {figure(summary.high)}" if summary.rounds > 1 else "one round"
    compared = ratio(mine, values) if mine else None
    text = f"  {peer:<16} {figure(summary.median):>12}   {spread:<24}"
    return (text if compared is None else f"{text} {base} / {peer} = {compared:.2f}").rstrip()
