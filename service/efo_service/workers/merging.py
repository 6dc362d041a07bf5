"""The metrics and the status of all workers together. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from prometheus_client import Metric


def merge_metrics(metrics: Mapping[str, Iterable[Metric]]) -> list[Metric]:
    """Return the metrics of workers, each sample with the label `worker`. `metrics`: those of each worker.

    Nothing is added up: a sum of gauges may have no meaning, and a query can sum what has one.
    """
    merged: dict[str, Metric] = {}
    for worker, families in metrics.items():
        for family in families:
            metric = merged.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            for sample in family.samples:
                metric.samples.append(sample._replace(labels={**sample.labels, "worker": worker}))
    return list(merged.values())


def merge_status(statuses: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return what /status of one worker shows, for all of them. `statuses`: of each worker, what its /status shows.

    Each shard has the id of the worker that reads it, and each problem begins with it. The lease table is that of the
    first worker that knows it. If the workers have several streams, each of them is merged so.
    """
    if any("streams" in status for status in statuses.values()):
        return _merge_streams(statuses)
    known = [status for status in statuses.values() if status.get("lease_table") == "known"]
    table = known[0] if known else {}
    return {
        "problems": list(_problems(statuses)),
        "lease_table": "known" if known else "unknown",
        "shard_counts": table.get("shard_counts"),
        "lease_counts": table.get("lease_counts"),
        "shards": _by_shard(statuses, "shards"),
        "isolated": _by_shard(statuses, "isolated"),
    }


_NAMES: Final = ("stream", "application", "consumer", "topic")
"""The names of a stream in /status, the same for all workers."""


def _merge_streams(statuses: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    by_stream: dict[str, dict[str, Mapping[str, Any]]] = {}
    for worker, status in statuses.items():
        for stream in status.get("streams", ()):
            by_stream.setdefault(str(stream.get("name")), {})[worker] = stream
    streams = [
        {"name": name, **{key: value for key, value in _first(found).items() if key in _NAMES}, **merge_status(found)}
        for name, found in by_stream.items()
    ]
    return {"problems": list(_problems(statuses)), "streams": streams}


def _first(statuses: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    return next(iter(statuses.values()))


def _problems(statuses: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for worker, status in statuses.items():
        for problem in status.get("problems", ()):
            yield f"{worker}: {problem}"


def _by_shard(statuses: Mapping[str, Mapping[str, Any]], name: str) -> Sequence[Mapping[str, Any]]:
    found = [{"worker_id": worker, **row} for worker, status in statuses.items() for row in status.get(name, ())]
    return sorted(found, key=lambda row: str(row.get("shard_id")))
