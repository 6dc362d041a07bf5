"""Everything that runs: a service without a fault and one for each fault, pipelines, the Collector, Prometheus."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

import trio

from efo.testing import FakeKinesis
from efo.testing.server.listener import Address
from proofs.dashboards.cases import BACKLOG_HOURS, BACKLOG_RECORDS, CASES, Case
from proofs.dashboards.pipelines import PIPELINE, SLOW_PIPELINE, Pipeline
from proofs.dashboards.programs import collector
from proofs.dashboards.prometheus import FASTER, Prometheus, Target, configuration_of
from proofs.dashboards.service import Service
from proofs.ports import free_ports
from tools.prometheus_rules import render

HEALTHY: Final = "efo-healthy"
BY_OTLP: Final = "efo-otlp"
"""The job of the healthy service, as it arrives by OTLP."""
NOTHING: Final = "efo-nothing"
"""The job of a second Prometheus, whose only target is a port on which nobody listens."""
_COLLECTOR: Final = "efo-otel-collector"
_RATE: Final = 20.0
_RATES: Final = {HEALTHY: 200.0}
"""Records per second of a stream."""


class Clock:
    """The wall clock of the fake. `behind`: seconds, while a stream of the past is made."""

    behind = 0.0

    def __call__(self) -> float:
        """Return the time, in seconds since the epoch."""
        return time.time() - self.behind


class Bench:
    """The programs. `directory`: for their files. `only`: the jobs of the faults, without pipelines; empty for all."""

    def __init__(
        self, directory: Path, fake: FakeKinesis, address: Address, clock: Clock, only: Collection[str] = ()
    ) -> None:
        cases = [case for case in CASES if not only or case.job in only]
        self._directory = directory
        self._fake = fake
        self._address = address
        clock.behind = BACKLOG_HOURS * 3600  # first, since the fake's arrival times never go back
        old = {case.job: self._with_backlog(case) for case in cases if case.backlog}
        clock.behind = 0.0
        metrics, http, grpc = free_ports(3)
        self._collector = collector(directory, metrics=metrics, http=http, grpc=grpc)
        otlp = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{http}",
            "OTEL_METRIC_EXPORT_INTERVAL": "2000",
            "OTEL_SERVICE_NAME": BY_OTLP,
        }
        self.healthy = Service(HEALTHY, fake, address, directory, workers=2, environment=otlp, shards=4)
        self.services = [(case, old.get(case.job) or self._service(case)) for case in cases]
        self._pipelines = (
            []
            if only
            else [
                Pipeline(PIPELINE, self.healthy, directory),
                Pipeline(SLOW_PIPELINE, self.healthy, directory, max_records=5),
            ]
        )
        targets = [
            Target(HEALTHY, self.healthy.port),
            *(Target(case.job, service.port, case.seconds) for case, service in self.services),
            *(Target(pipeline.job, pipeline.port) for pipeline in self._pipelines),
            Target(_COLLECTOR, metrics, honor_labels=True),
        ]
        rules = render(FASTER)
        self.prometheus = Prometheus("prometheus", directory / "prometheus", configuration_of(targets), rules)
        (nobody,) = free_ports(1)
        self.alone = Prometheus(
            "prometheus-alone", directory / "prometheus-alone", configuration_of([Target(NOTHING, nobody)]), rules
        )

    async def start(self, nursery: trio.Nursery) -> None:
        """Start the programs, with their loads in the nursery. Raises ProgramError, and trio.TooSlowError.

        Spark comes first, as it needs longest, and waits for the log; Prometheus last, so that it finds everything.
        """
        await self._collector.start()
        for pipeline in self._pipelines:
            await pipeline.start()
        async with trio.open_nursery() as starting:
            for service in self._all():
                starting.start_soon(service.start)
        for service in self._all():
            nursery.start_soon(service.put, _RATES.get(service.job, _RATE))
            nursery.start_soon(service.read_output)
        for pipeline in self._pipelines:
            await pipeline.has_metrics()
        await self.prometheus.start()
        await self.alone.start()

    async def end(self) -> None:
        """End all programs."""
        for pipeline in self._pipelines:
            await pipeline.program.end()
        for one in (self._collector, self.prometheus, self.alone):
            await one.end()
        for service in self._all():
            await service.end()

    def suspend_spark(self) -> None:
        """Suspend the pipeline that keeps up."""
        for pipeline in self._pipelines:
            if pipeline.job == PIPELINE:
                pipeline.suspend_spark()

    def _all(self) -> Iterator[Service]:
        yield self.healthy
        yield from (service for _, service in self.services)

    def _service(self, case: Case) -> Service:
        return Service(
            case.job,
            self._fake,
            self._address,
            self._directory,
            workers=case.workers,
            environment=case.environment,
            pace=case.pace,
            output=case.output,
            command=case.command,
            files=case.files,
            disk_megabytes=case.disk_megabytes,
        )

    def _with_backlog(self, case: Case) -> Service:
        service = self._service(case)
        self._fake.put_many(service.stream, [(f"key-{n}", b"%0100d" % n) for n in range(BACKLOG_RECORDS)])
        return service
