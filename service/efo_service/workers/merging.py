"""The metrics, the status and the page of all workers together. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from prometheus_client import Metric

from efo_service.web.live.recent import KEPT
from efo_service.web.live.snapshot import Snapshot, StreamView, WorkerView


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

    Each shard and error has the id of its worker, and each problem begins with it. The lease table is that of the
    first worker that knows it. If the workers have several streams, each of them is merged so.
    """
    if any("streams" in status for status in statuses.values()):
        return _merge_streams(statuses)
    known = [status for status in statuses.values() if status.get("lease_table") == "known"]
    table = known[0] if known else {}
    reported = next(iter(statuses.values()), {})
    return {
        **{key: reported[key] for key in _NAMES if key in reported},  # SIGHUP may have changed them
        "problems": list(_problems(statuses)),
        "last_errors": _by_worker(statuses, "last_errors"),
        "advice": list(_problems(statuses, "advice")),
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
    streams = [{"name": name, **merge_status(found)} for name, found in by_stream.items()]
    of_processes = {"problems": list(_problems(statuses)), "last_errors": _by_worker(statuses, "last_errors")}
    return {**of_processes, "streams": streams}


def merge_snapshots(snapshots: Mapping[str, Snapshot | None]) -> Snapshot:
    """Return what the pages of all workers show, as one page. `snapshots`: None of a worker that does not answer."""
    answers = {worker: snapshot for worker, snapshot in snapshots.items() if snapshot is not None}
    silent = [worker for worker in snapshots if worker not in answers]
    by_stream: dict[str, dict[str, StreamView]] = {}
    for worker, snapshot in answers.items():
        for view in snapshot.streams:
            by_stream.setdefault(view.stream, {})[worker] = view
    return Snapshot(tuple(_merge_views(views, silent) for views in by_stream.values()))


def _merge_views(views: Mapping[str, StreamView], silent: Sequence[str]) -> StreamView:
    """Merge the views of one stream. The worker that knows most places goes first; a reader knows its shards best."""
    by_knowledge = sorted(views.values(), key=lambda view: len(view.places), reverse=True)
    most = by_knowledge[0]
    places = {place.id: place for view in reversed(by_knowledge) for place in view.places}
    known = {shard.id: shard for view in reversed(by_knowledge) for shard in view.live}
    read = {shard.id: shard for view in views.values() for shard in view.live if shard.subscription is not None}
    workers = {worker.id: worker for worker in most.workers}
    workers = {worker: WorkerView(worker, 0) for worker in (*views, *silent)} | workers
    events = sorted((event for view in views.values() for event in view.events), key=lambda event: event.at)
    return msgspec.structs.replace(
        most,
        worker_id="",
        draining=all(view.draining for view in views.values()),
        lease_table="known" if any(view.lease_table == "known" for view in views.values()) else "unknown",
        problems=tuple(f"{worker}: {problem}" for worker, view in views.items() for problem in view.problems),
        workers=tuple(
            msgspec.structs.replace(worker, answers=worker.id in views) for _, worker in sorted(workers.items())
        ),
        events=tuple(events[-KEPT:]),
        places=tuple(places.values()),
        live=tuple(read.get(shard_id, known[shard_id]) for shard_id in places),
    )


def _problems(statuses: Mapping[str, Mapping[str, Any]], name: str = "problems") -> Iterator[str]:
    for worker, status in statuses.items():
        for problem in status.get(name, ()):
            yield f"{worker}: {problem}"


def _by_shard(statuses: Mapping[str, Mapping[str, Any]], name: str) -> Sequence[Mapping[str, Any]]:
    return sorted(_by_worker(statuses, name), key=lambda row: str(row.get("shard_id")))


def _by_worker(statuses: Mapping[str, Mapping[str, Any]], name: str) -> Sequence[Mapping[str, Any]]:
    return [{"worker_id": worker, **row} for worker, status in statuses.items() for row in status.get(name, ())]
