"""The proof: first nothing fails, then each service has its fault; which alerts fire, and what panels show."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

import trio

from efo.exception_groups import collapse_groups
from efo.testing import FakeKinesis, FakeSettings
from proofs.dashboards.bench import BY_OTLP, HEALTHY, NOTHING, Bench, Clock
from proofs.dashboards.cases import CASES
from proofs.dashboards.pipelines import EXPECTATIONS as OF_PIPELINES, PIPELINE, SLOW_PIPELINE
from proofs.dashboards.prometheus import FASTER, RATE_INTERVAL, Firing
from proofs.dashboards.verdict import Expectation, different_labels, false_alarms, not_fired, summary
from tools.grafana.model import fill
from tools.grafana_dashboards import DASHBOARDS
from tools.prometheus_rules import ALERTS

EXPECTATIONS: Final = (
    *(case.expectation for case in CASES),
    *OF_PIPELINES,
    Expectation(NOTHING, frozenset({"EfoTargetDown", "EfoMetricsAbsent"}), frozenset()),
)
_FAULTY_FROM_THE_START: Final = {case.job for case in CASES if case.is_faulty_from_the_start} | {NOTHING, SLOW_PIPELINE}
_WITHOUT_FAULT: Final = f"{HEALTHY}|{PIPELINE}"
_QUERIES: Final = {
    f"{dashboard.uid}: {panel.title}{f' ({number})' if number else ''}": query.expr
    for dashboard in DASHBOARDS
    for panel in dashboard.panels
    for number, query in enumerate(panel.queries)
}
"""The queries of all panels, by dashboard, title, and number from the second on."""
_ONLY_SCRAPED: Final = ("process_", "up", "scrape_", "efo_worker_up", "efo_worker_restarts", "target_info")
"""What only /metrics has, by prefix: the process, the supervisor, and what Prometheus says about a target."""
_NOT_BY_OTLP: Final = re.compile(
    r"\b(ALERTS|process_\w+|up|scrape_\w+|efo_worker_up|efo_worker_restarts_total|\w*pipeline\w*[\w:]*)\{"
)
_SETTINGS: Final = FakeSettings(throttle=False, subscription_life=40.0)
"""Subscriptions that end early, so that some begin in the time without faults."""
_HEALTHY_SECONDS: Final = 60.0
_LONGEST_FAULT_SECONDS: Final = 300.0
_SETTLE_SECONDS: Final = 10.0

Report = Callable[[str], None]


async def run(directory: Path, report: Report, only: Collection[str] = ()) -> dict[str, Any]:
    """Do the proof; return its line of JSON. `only`: these jobs' faults, and no panels. Raises ProgramError."""
    began = time.monotonic()
    clock = Clock()
    with collapse_groups():
        async with FakeKinesis(settings=_SETTINGS, clock=clock) as fake, fake.serve() as address:
            bench = Bench(directory, fake, address, clock, only)
            try:
                async with trio.open_nursery() as nursery:
                    await bench.start(nursery)
                    result = await _Observation(bench, report, only).run(nursery)
                    nursery.cancel_scope.cancel()
            finally:
                with trio.CancelScope(shield=True):  # bounded: killed processes end
                    await bench.end()
    return summary(**result, seconds=time.monotonic() - began, faster=FASTER)


class _Observation:
    """What is seen of the running programs. `report`: prints progress. `only`: the jobs whose faults are tried."""

    def __init__(self, bench: Bench, report: Report, only: Collection[str]) -> None:
        self._bench = bench
        self._report = report
        self._only = only
        self._expectations = [one for one in EXPECTATIONS if not only or one.job in only]
        self._alerts = [alert.name for alert in ALERTS]
        if only:
            self._alerts = sorted(set().union(*(one.must for one in self._expectations)))
        self._fired: set[Firing] = set()

    async def run(self, nursery: trio.Nursery) -> dict[str, Any]:
        """Watch without faults, then with them; return what `summary` takes. `nursery`: for the faults."""
        bench, started = self._bench, time.time()
        self._report(f"everything runs; {_HEALTHY_SECONDS:g} s without faults")
        await self._watch(_HEALTHY_SECONDS)
        early = {firing for firing in self._fired if firing.job not in _FAULTY_FROM_THE_START}
        healthy_until, healthy_failed = time.time(), await bench.prometheus.failed_rules()
        scraped, by_otlp = await bench.prometheus.labels(HEALTHY), await bench.prometheus.labels(BY_OTLP)
        panels = await self._with_data(_QUERIES, _WITHOUT_FAULT, started, healthy_until)
        sent = {name: expr for name, expr in _QUERIES.items() if panels[name] and not _NOT_BY_OTLP.search(expr)}
        found = await self._with_data(sent, BY_OTLP, started, healthy_until)
        self._report("the faults begin")
        for case, service in bench.services:
            nursery.start_soon(case.inject, service)
        bench.suspend_spark()
        await self._watch(_LONGEST_FAULT_SECONDS, until=lambda: not not_fired(self._fired, self._expectations))
        await self._watch(_SETTLE_SECONDS)
        for case, _ in bench.services:
            empty = {name: expr for name, expr in _QUERIES.items() if not panels[name]}
            panels |= await self._with_data(empty, case.job, started, time.time())
        return {
            "panels": {name: job for name, job in panels.items() if job or not self._only},
            "healthy": _WITHOUT_FAULT,
            "alerts": self._alerts,
            "fired": self._fired,
            "expectations": self._expectations,
            "failed_rules": sorted({*healthy_failed, *await bench.prometheus.failed_rules()}),
            "alarms": false_alarms(early, self._fired, EXPECTATIONS),
            "labels": different_labels(scraped, by_otlp, _ONLY_SCRAPED),
            "not_by_otlp": sorted(name for name, job in found.items() if not job),
        }

    async def _watch(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        """Note the alerts that fire, for so long, or until something holds."""
        began = time.monotonic()
        while time.monotonic() < began + seconds and not until():
            self._bench.healthy.program.check()
            new = await self._bench.prometheus.firing()
            # Alerts about what is absent have no labels; this Prometheus has one job.
            new |= {Firing(firing.alert, NOTHING) for firing in await self._bench.alone.firing()}
            for firing in sorted(new - self._fired, key=lambda firing: (firing.job, firing.alert)):
                self._report(f"{firing.alert} fires in {firing.job or 'no job'}")
            self._fired |= new
            await trio.sleep(1)

    async def _with_data(self, queries: Mapping[str, str], job: str, start: float, end: float) -> dict[str, str]:
        """Return for each query the job if it has data for it, otherwise an empty string."""
        has_data = self._bench.prometheus.has_data
        return {
            name: job if await has_data(fill(expr, rate_interval=RATE_INTERVAL, job=job), start, end) else ""
            for name, expr in queries.items()
        }
