"""What a dashboard shows: its panels, with their queries. Plain values, which the proof and the tests read too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["stat", "timeseries", "table"]

_JOB: Final = 'job=~"$job"'
_OF_STREAM: Final = f'{_JOB}, messaging_consumer_group_name=~"$application", messaging_destination_name=~"$stream"'
_OF_INSTANCE: Final = f'{_JOB}, instance=~"$instance"'

_ANY: Final = "efo_lease_operations_total|efo_pipeline_rows_total|efo_worker_up"
"""Metrics of which every program with efo has one: a consumer, a pipeline, a supervisor."""

_STREAMS: Final = f'efo_lease_operations_total{{{_JOB}, messaging_consumer_group_name=~"$application"}}'

VARIABLES: Final = {
    "job": ("Job", f'label_values({{__name__=~"{_ANY}"}}, job)'),
    "application": (
        "Application",
        f"label_values(efo_lease_operations_total{{{_JOB}}}, messaging_consumer_group_name)",
    ),
    "stream": ("Stream", f"label_values({_STREAMS}, messaging_destination_name)"),
    "instance": ("Instance", f'label_values({{__name__=~"{_ANY}", {_JOB}}}, instance)'),
}
"""The variables of every dashboard, with their labels and the query of their values."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query of Prometheus. `legend`: Grafana's template for the name of a series."""

    expr: str
    legend: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A panel. `unit`: an id of Grafana's units. `about`: its description; `alerts`: those that it explains.

    `steps`: the values from which the panel is orange and red. `stacked`: whether the series add up.
    """

    title: str
    about: str
    queries: tuple[Query, ...]
    unit: str = "short"
    kind: Kind = "timeseries"
    alerts: tuple[str, ...] = ()
    steps: tuple[float, float] | None = None
    stacked: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """Panels below a heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A dashboard. `uid`: its stable id, which is in the addresses of links, and the name of its file."""

    uid: str
    title: str
    about: str
    rows: tuple[Row, ...]

    @property
    def panels(self) -> tuple[Panel, ...]:
        """All panels, in their order."""
        return tuple(panel for row in self.rows for panel in row.panels)


def of_stream(metric: str, labels: str = "") -> str:
    """Return the series of a metric that has an application and a stream. `labels`: more matchers."""
    return _series(metric, _OF_STREAM, labels)


def of_instance(metric: str, labels: str = "") -> str:
    """Return the series of a metric of a process."""
    return _series(metric, _OF_INSTANCE, labels)


def of_job(metric: str, labels: str = "") -> str:
    """Return the series of a metric that has neither, such as those of a topic."""
    return _series(metric, _JOB, labels)


def _series(metric: str, scope: str, labels: str) -> str:
    return f"{metric}{{{scope}{', ' if labels else ''}{labels}}}"


def rate(series: str) -> str:
    """Return the rate per second, over a window that fits the scrape interval and the resolution of the panel."""
    return f"rate({series}[$__rate_interval])"


def quantile(share: float, histogram: str, by: str = "") -> str:
    """Return a quantile of a histogram. `histogram`: the series of its buckets. `by`: labels to keep."""
    return f"histogram_quantile({share:g}, sum by (le{', ' if by else ''}{by}) ({rate(histogram)}))"


def fill(expr: str, *, rate_interval: str, **values: str) -> str:
    """Return the query that Grafana sends: with values for its variables. The others match everything."""
    for name in VARIABLES:
        expr = expr.replace(f"${name}", values.get(name, ".*"))
    return expr.replace("$__rate_interval", rate_interval)
