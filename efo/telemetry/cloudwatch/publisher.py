"""Publishes KCL's metrics to CloudWatch: an observer, and a task that sends what it gathered.

The observer only counts. The task alone waits for CloudWatch, so a slow or failed call delays no record. What cannot be
sent stays in a bounded buffer with its times; the oldest are dropped. An outage is reported when it begins and ends.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib import import_module
from typing import Final, Protocol, get_args

import trio

from efo.checks import check_text, shown
from efo.errors import ConfigurationError
from efo.events import Event, Observer
from efo.exception_groups import collapse_groups
from efo.telemetry.cloudwatch.kcl_metrics import CloudWatchLevel, Datum, KclMetrics
from efo.telemetry.log import log_outage
from efo.telemetry.outages import Outage, OutageBegan, OutageChange

INTERVAL: Final = 10.0
"""Seconds between two publications (KCL: metricsBufferTimeMillis)."""
MAX_BUFFERED: Final = 10_000
"""Metrics that wait for CloudWatch (KCL: metricsMaxQueueSize)."""
MAX_METRICS: Final = 1000
"""Metrics in a request (AWS: PutMetricData)."""
MAX_BYTES: Final = 900_000
"""Bytes of a request, as estimated. CloudWatch takes 1 MB."""
FLUSH_TIMEOUT: Final = 2.0
"""Seconds for the last publication, when the consumer has ended."""
_OVERHEAD: Final = 400
"""Bytes of a metric besides its name and its dimensions: more than any encoding of botocore needs."""

_KEY: Final = "put"


class _Client(Protocol):
    async def put(self, metrics: Sequence[Datum]) -> None: ...


class CloudWatchPublisher:
    """An observer that publishes while `run` runs. Made by `open_cloudwatch`.

    `dropped`: how many metrics were dropped, because CloudWatch refused them or could not be reached for too long.
    """

    def __init__(
        self,
        client: _Client,
        metrics: KclMetrics,
        *,
        refused: type[Exception],
        on_outage: Callable[[OutageChange], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.dropped = 0
        self._client = client
        self._metrics = metrics
        self._refused = refused
        self._on_outage = on_outage
        self._clock = clock
        self._dropped_before = 0  # when the outage began
        self._buffer: deque[Datum] = deque()
        self._outage = Outage("cloudwatch")

        # What combine_observers asks for.
        self.observes, self.observe_many, self.held_by = metrics.observes, metrics.observe_many, metrics.held_by

    def __call__(self, event: Event) -> None:
        """Count what an event says."""
        self._metrics(event)

    async def run(self) -> None:
        """Publish every INTERVAL seconds, until cancelled; then once more."""
        try:
            while True:
                await trio.sleep(INTERVAL)
                await self._publish()
        finally:
            with trio.move_on_after(FLUSH_TIMEOUT, shield=True):
                await self._publish()
            self._give_up()

    async def _publish(self) -> None:
        self._buffer.extend(self._metrics.take(self._clock()))
        while len(self._buffer) > MAX_BUFFERED:
            self._buffer.popleft()
            self.dropped += 1
        while self._buffer:
            request = next_request(self._buffer)
            try:
                await self._client.put(request)
            except self._refused as error:
                if not getattr(error, "is_final", False):
                    self._failed(error)
                    return
                self._refused_for_good(error, len(request))
            else:
                self._succeeded()
            for _ in request:
                self._buffer.popleft()

    def _failed(self, error: Exception) -> None:
        for change in self._outage.failed(_KEY, trio.current_time(), _error_type(error), str(error)):
            if isinstance(change, OutageBegan):
                self._dropped_before = self.dropped
            self._on_outage(change)

    def _refused_for_good(self, error: Exception, count: int) -> None:
        self.dropped += count
        for refusal in self._outage.refused(count, trio.current_time(), _error_type(error), str(error)):
            self._on_outage(refusal)

    def _succeeded(self) -> None:
        for ended in self._outage.succeeded(_KEY, trio.current_time()):
            self._on_outage(replace(ended, dropped=self.dropped - self._dropped_before))

    def _give_up(self) -> None:
        """Report what could not be sent by the end."""
        if not self._buffer:
            return
        now = trio.current_time()
        if not self._outage.is_on:  # the last call hangs
            self._dropped_before = self.dropped
            [*_] = self._outage.failed(_KEY, now, "no_response")
        self.dropped += len(self._buffer)
        self._buffer.clear()
        for given_up in self._outage.left(_KEY, now):
            self._on_outage(replace(given_up, dropped=self.dropped - self._dropped_before))


def _error_type(error: Exception) -> str:
    return str(getattr(error, "error_type", type(error).__name__))


def next_request(waiting: Sequence[Datum]) -> list[Datum]:
    """Return the first of the waiting metrics that one request may have. Pure."""
    request: list[Datum] = []
    size = 0
    for metric in waiting:
        size += _OVERHEAD + len(metric.name) + sum(len(name) + len(value) for name, value in metric.dimensions)
        if request and (size > MAX_BYTES or len(request) == MAX_METRICS):
            break
        request.append(metric)
    return request


@asynccontextmanager
async def open_cloudwatch(
    application: str,
    *,
    level: CloudWatchLevel = "detailed",
    namespace: str | None = None,
    worker_dimension: bool = False,
    region: str | None = None,
    endpoint_url: str | None = None,
    ca_file: str | None = None,
    profile: str | None = None,
    proxy_url: str | None = None,
) -> AsyncIterator[Observer]:
    """Yield an observer that publishes KCL's metrics to CloudWatch every 10 s: `observer=` of `consume`.

    Combine it with others by `combine_observers`. Leaving the context publishes the rest, within 2 s. When CloudWatch
    fails, and when it works again, a line is logged to the logger `efo`.

    `application`: also the `namespace` by default, as for KCL. `level`: "summary" or "detailed". `worker_dimension`:
    whether metrics of a worker have the dimension WorkerIdentifier; KCL's default is no. `region`, `endpoint_url`,
    `ca_file`, `profile`, `proxy_url`: of CloudWatch, as for `open_kinesis`. Raises ConfigurationError.
    """
    check_text("application", application, "a name for the group of workers that share the shards")
    if level not in get_args(CloudWatchLevel):
        raise ConfigurationError(f"level={shown(level)}: expected 'summary' or 'detailed'")
    where = {"region": region, "endpoint_url": endpoint_url, "ca_file": ca_file, "profile": profile}
    for name, value in {"namespace": namespace, **where}.items():
        if value is not None:
            check_text(name, value, "a text, or None")
    metrics = KclMetrics(level, worker_dimension=worker_dimension)
    where["proxy_url"] = proxy_url
    async with publishing(metrics, namespace or application, log_outage, **where) as publisher:
        yield publisher


@asynccontextmanager
async def publishing(
    metrics: KclMetrics, namespace: str, on_outage: Callable[[OutageChange], None], **where: str | None
) -> AsyncIterator[CloudWatchPublisher]:
    """Publish metrics while the context is open. `where`: the arguments of `client.open_client`.

    `on_outage`: called when CloudWatch begins to fail, and when it works again. Raises ConfigurationError.
    """
    # In a thread, because its import takes long.
    client_module = await trio.to_thread.run_sync(import_module, "efo.telemetry.cloudwatch.client")
    with collapse_groups():
        async with client_module.open_client(namespace, **where) as client, trio.open_nursery() as nursery:
            publisher = CloudWatchPublisher(client, metrics, refused=client_module.PutError, on_outage=on_outage)
            nursery.start_soon(publisher.run)
            try:
                yield publisher
            finally:
                nursery.cancel_scope.cancel()
