"""What the proof has shown: panels with data, alerts that fired in their faults, and false alarms. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from proofs.dashboards.prometheus import Firing


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a job's fault must bring about, and what else it may. Without a fault, both are empty."""

    job: str
    must: frozenset[str]
    may: frozenset[str]


def false_alarms(
    before: AbstractSet[Firing], after: AbstractSet[Firing], expectations: Iterable[Expectation]
) -> list[str]:
    """Return the alerts that no fault explains. `before`, `after`: what fired before and after the faults began."""
    allowed = {expectation.job: expectation.must | expectation.may for expectation in expectations}
    early = {f"{firing.alert} in {firing.job or 'no job'}, before any fault" for firing in before}
    wrong = {
        f"{firing.alert} in {firing.job or 'no job'}"
        for firing in after - before
        if firing.alert not in allowed.get(firing.job, frozenset())
    }
    return sorted(early | wrong)


def not_fired(fired: AbstractSet[Firing], expectations: Iterable[Expectation]) -> list[str]:
    """Return the alerts that did not fire in their faults."""
    return sorted(
        f"{alert} in {expectation.job}"
        for expectation in expectations
        for alert in expectation.must
        if Firing(alert, expectation.job) not in fired
    )


def different_labels(
    scraped: Mapping[str, AbstractSet[str]], by_otlp: Mapping[str, AbstractSet[str]], only_scraped: Iterable[str]
) -> list[str]:
    """Return the metrics of /metrics that OTLP and the Collector name or label differently, or do not have.

    `only_scraped`: prefixes of metrics that are no instruments of OpenTelemetry. The labels of a target differ always.
    """
    of_target = {"job", "instance", "worker"}
    return [
        name
        for name, labels in sorted(scraped.items())
        if not name.startswith(tuple(only_scraped)) and by_otlp.get(name, set()) - of_target != labels - of_target
    ]


def summary(
    *,
    panels: Mapping[str, str],
    healthy: str,
    alerts: Iterable[str],
    fired: AbstractSet[Firing],
    expectations: Iterable[Expectation],
    failed_rules: list[str],
    alarms: list[str],
    labels: list[str],
    not_by_otlp: list[str],
    seconds: float,
    faster: int,
) -> dict[str, Any]:
    """Return the line of JSON. `panels`: of each query the job for which it has data; empty if none.

    `healthy`: the job without a fault.
    """
    expectations = list(expectations)
    missing = not_fired(fired, expectations)
    tried = {alert for expectation in expectations for alert in expectation.must}
    proven = {alert for e in expectations for alert in e.must if Firing(alert, e.job) in fired}
    empty = sorted(panel for panel, job in panels.items() if not job)
    fed = {panel: job for panel, job in sorted(panels.items()) if job and job != healthy}
    names = set(alerts)
    passed = not (empty or missing or failed_rules or alarms or labels or not_by_otlp or names - tried)
    return {
        "dashboards": "passed" if passed else "failed",
        "panels": len({panel.partition(" (")[0] for panel in panels}),
        "queries": len(panels),
        "with_data": len(panels) - len(empty),
        "without_data": empty,
        "only_in_a_fault": fed,
        "alerts": len(names),
        "fired": len(names & proven),
        "not_fired": missing + sorted(f"{name}: no fault" for name in names - tried),
        "failed_rules": failed_rules,
        "false_alarms": len(alarms),
        "false": alarms,
        "different_by_otlp": labels,
        "panels_without_data_by_otlp": not_by_otlp,
        "faster": faster,
        "seconds": round(seconds),
    }
