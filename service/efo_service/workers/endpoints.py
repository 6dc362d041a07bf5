"""The HTTP endpoints of all workers, asked at the same time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from efo_service.errors import UnavailableError
from efo_service.web.probe import http_get
from efo_service.workers.merging import merge_metrics

T = TypeVar("T")


class WorkerEndpoints(Collector):
    """Asks all workers. `ports`: returns the port of each worker, None while its process does not run.

    As a Collector of Prometheus' client, it has the metrics of all workers.
    """

    def __init__(self, host: str, ports: Callable[[], Mapping[str, int | None]]) -> None:
        self._host = host
        self._ports = ports

    def statuses(self) -> dict[str, Mapping[str, Any]]:
        """Return the status of each worker that responds. Blocks for a few seconds at most."""
        return {worker: status for worker, status in self._ask("/status", json.loads) if isinstance(status, dict)}

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

    def _ask(self, path: str, parse: Callable[[str], T]) -> list[tuple[str, T | None]]:
        """Return the response of each worker, parsed; None if there is none, or another program's."""

        def ask(port: int | None) -> T | None:
            if port is None:
                return None
            try:
                status, body = http_get(self._host, port, path)
                return parse(body) if status == 200 else None  # noqa: PLR2004 - HTTP status
            except (UnavailableError, ValueError):
                return None

        ports = self._ports()
        with ThreadPoolExecutor(max(1, len(ports))) as threads:
            return list(zip(ports, threads.map(ask, ports.values()), strict=True))
