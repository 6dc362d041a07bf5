"""The HTTP endpoints of all workers, asked at the same time, and what they tell together."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, TypeVar

import msgspec
from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from efo_service.errors import UnavailableError
from efo_service.web.live.actions import Action, ActionRefusedError
from efo_service.web.live.source import KEPT, Snapshot, StreamView, WorkerView
from efo_service.web.probe import ServiceAddress

T = TypeVar("T")

_SECONDS: Final = 1.5
"""Less than a client of the supervisor waits: a worker that is stopped must not cost it the answers of the others."""


class WorkerEndpoints(Collector):
    """Asks all workers. As a Collector of Prometheus' client, it has the metrics of all workers.

    `service`: the address of the supervisor. `ports`: returns the port of each worker, None while its process does not
    run.
    """

    def __init__(self, service: ServiceAddress, ports: Callable[[], Mapping[str, int | None]]) -> None:
        self._service = service._replace(seconds=_SECONDS)
        self._ports = ports

    def use(self, service: ServiceAddress) -> None:
        """Use another address of the supervisor, with another token."""
        self._service = service._replace(seconds=_SECONDS)

    def set_level(self, level: str) -> None:
        """Let all workers that answer log from another level on. Blocks as `snapshot` does."""
        for port in filter(None, self._ports().values()):
            with suppress(UnavailableError):
                self._service._replace(port=port).post("/log-level", msgspec.json.encode({"level": level}))

    def statuses(self) -> dict[str, Mapping[str, Any]]:
        """Return the status of each worker that responds. Blocks for a few seconds at most."""
        return {worker: status for worker, status in self._ask("/status", json.loads) if isinstance(status, dict)}

    def snapshot(self) -> Snapshot:
        """Return what the pages of all workers show. Blocks for a few seconds at most."""
        return merge_snapshots(dict(self._ask("/map", lambda text: msgspec.json.decode(text, type=Snapshot))))

    def act(self, action: Action) -> None:
        """Let the worker perform an action that reads the shard. Blocks as `snapshot` does. Raises ActionRefusedError.

        All workers are asked which of them that is: shards move, and maybe nobody looks at the page. If it changes
        meanwhile, the worker itself refuses what it does not read.
        """
        port = self._ports().get(self._reader_of(action))
        if port is None:
            raise ActionRefusedError(f"none of these workers reads {action.shard_id[:200]} now")
        try:
            status, body = self._service._replace(port=port).post("/actions", msgspec.json.encode(action))
        except UnavailableError as error:
            raise ActionRefusedError(str(error)) from error
        if status != 200:  # noqa: PLR2004 - HTTP status
            raise ActionRefusedError(_reason(body))

    def describe(self) -> Iterator[Metric]:
        """Return nothing: asked when this is registered, before any worker runs."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of all workers, and which of them responded. Blocks as `statuses` does."""
        up = GaugeMetricFamily("efo_worker_up", "Whether the worker responded with its metrics.", labels=["worker"])
        found = {}
        for worker, metrics in self._ask("/metrics", lambda text: list(text_string_to_metric_families(text))):
            up.add_metric([worker], metrics is not None)
            if metrics is not None:
                found[worker] = metrics
        yield up
        yield from merge_metrics(found)

    def _reader_of(self, action: Action) -> str:
        """Return the id of the worker that reads the shard; empty if none does. Raises ActionRefusedError."""
        found = {
            view.stream: shard.worker or ""
            for view in self.snapshot().streams
            for shard in view.live
            if shard.id == action.shard_id and shard.subscription is not None and action.stream in {"", view.stream}
        }
        if len(found) > 1:
            raise ActionRefusedError(
                f"several streams have a shard {action.shard_id[:200]}: name one of them as stream"
            )
        return next(iter(found.values()), "")

    def _ask(self, path: str, parse: Callable[[str], T]) -> list[tuple[str, T | None]]:
        """Return the response of each worker, parsed; None if there is none, or another program's."""

        def ask(port: int | None) -> T | None:
            if port is None:
                return None
            try:
                status, body = self._service._replace(port=port).get(path)
                return parse(body) if status == 200 else None  # noqa: PLR2004 - HTTP status
            except (UnavailableError, ValueError, RecursionError):
                return None

        ports = self._ports()
        with ThreadPoolExecutor(max(1, len(ports))) as threads:
            return list(zip(ports, threads.map(ask, ports.values()), strict=True))


def _reason(body: str) -> str:
    """Return why a worker refused an action: a JSON object, or the text of an HTTP error."""
    try:
        return str(json.loads(body)["reason"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return body[:1000]


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
