"""The HTTP endpoints of all workers, asked at the same time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
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
from efo_service.web.live.snapshot import Snapshot
from efo_service.web.probe import ServiceAddress
from efo_service.workers.merging import merge_metrics, merge_snapshots

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
