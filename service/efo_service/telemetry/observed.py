"""Observable instruments without a memory: what their callbacks no longer tell has no series, and takes no space.

OpenTelemetry's SDK keeps every set of attributes that an instrument ever had, for as long as the process lives, and has
at most 2,000 of them: all others are one series, whose gauge has the last value of any. A worker meets more shards than
that, at once in a large stream or one after the other in months of reshards. So its observable instruments, which alone
have the shard as an attribute, are asked here when a reader collects, and their points join those of the SDK.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any, Final

from opentelemetry import metrics as api
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider, ObservableCounter, ObservableGauge, ObservableUpDownCounter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Metric,
    MetricExporter,
    MetricsData,
    NumberDataPoint,
    PeriodicExportingMetricReader,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import CollectorRegistry

SERIES: Final = "efo.telemetry.series"
_LOGGER: Final = logging.getLogger(__name__)

Callback = Callable[[CallbackOptions], Iterable[Observation]]
Key = frozenset[tuple[str, Any]]
Totals = dict[tuple[str, str], dict[Key, float]]
"""The last values of counters, by scope and name, for a reader that wants differences."""


@dataclass(frozen=True, slots=True)
class _Instrument:
    """An observable instrument. `kind`: its class in the SDK. `callbacks`: grows if it is created again."""

    kind: type
    name: str
    unit: str
    description: str
    callbacks: list[Callback] = field(default_factory=list)

    def observe(self) -> dict[Key, tuple[Mapping[str, Any], float]]:
        """Ask the callbacks; return the value for each set of attributes. Several values of a sum are added."""
        found: dict[Key, tuple[Mapping[str, Any], float]] = {}
        for callback in list(self.callbacks):
            try:
                for observation in callback(CallbackOptions()):
                    attributes, value = observation.attributes or {}, observation.value
                    if isfinite(value):
                        key = frozenset(attributes.items())
                        if self.kind is not ObservableGauge and key in found:
                            value += found[key][1]
                        found[key] = attributes, value
            except Exception:
                _LOGGER.exception("the callback of %s failed", self.name)
        return found


class Observed:
    """The observable instruments of a provider. Any thread may ask them."""

    def __init__(self) -> None:
        self._instruments: dict[InstrumentationScope, dict[str, _Instrument]] = {}
        self._started_at = time.time_ns()
        self.series = 0
        """How many series the last collection had."""

    def add(self, scope: InstrumentationScope, instrument: _Instrument, callbacks: Sequence[Callback]) -> None:
        """Add an instrument, or more callbacks of one that exists."""
        of_scope = self._instruments.setdefault(scope, {})
        of_scope.setdefault(instrument.name, instrument).callbacks.extend(callbacks)

    def joined(
        self, data: MetricsData, temporality: Mapping[type, AggregationTemporality], totals: Totals
    ) -> MetricsData:
        """Return what the SDK has collected, with the points of these instruments.

        `temporality`: of the reader, by kind of instrument. `totals`: the reader's values of the last collection.
        """
        points = {scope: list(self._metrics(scope, temporality, totals)) for scope in list(self._instruments)}
        self.series = sum(len(metric.data.data_points) for found in points.values() for metric in found)
        [resource] = data.resource_metrics
        scopes = [
            replace(each, metrics=[*each.metrics, *points.pop(each.scope, ())]) for each in resource.scope_metrics
        ]
        scopes += [ScopeMetrics(scope, found, scope.schema_url or "") for scope, found in points.items() if found]
        return MetricsData([replace(resource, scope_metrics=scopes)])

    def _metrics(
        self, scope: InstrumentationScope, temporality: Mapping[type, AggregationTemporality], totals: Totals
    ) -> Iterator[Metric]:
        now = time.time_ns()
        for instrument in list(self._instruments[scope].values()):
            found = instrument.observe()
            wanted = temporality.get(instrument.kind, AggregationTemporality.CUMULATIVE)
            start = self._started_at
            if instrument.kind is not ObservableGauge and wanted is AggregationTemporality.DELTA:
                before = totals.get((scope.name, instrument.name), {})
                # Only what is reported now is kept. A counter that began again is reported from 0.
                totals[scope.name, instrument.name] = {key: value for key, (_, value) in found.items()}
                found = {
                    key: (attributes, value - last if value >= (last := before.get(key, 0)) else value)
                    for key, (attributes, value) in found.items()
                }
            numbers = [NumberDataPoint(attributes, start, now, value) for attributes, value in found.values()]
            if numbers:
                yield Metric(
                    instrument.name, instrument.description, instrument.unit, _data(instrument, numbers, wanted)
                )


def _data(instrument: _Instrument, points: list[NumberDataPoint], temporality: AggregationTemporality) -> Gauge | Sum:
    if instrument.kind is ObservableGauge:
        return Gauge(points)
    return Sum(points, temporality, is_monotonic=instrument.kind is ObservableCounter)


class ObservedMeterProvider(api.MeterProvider):
    """A provider of the SDK, whose observable instruments are those of `observed`."""

    def __init__(self, provider: MeterProvider, observed: Observed) -> None:
        self._provider = provider
        self._observed = observed
        self._meters: dict[InstrumentationScope, api.Meter] = {}
        # A reader that finds no instrument in the SDK asks nobody: this one is always there.
        provider.get_meter("efo.service").create_observable_gauge(
            SERIES, [lambda _: [Observation(observed.series)]], "{series}", "Series of observable instruments."
        )

    def get_meter(
        self, name: str, version: str | None = None, schema_url: str | None = None, attributes: Any = None
    ) -> api.Meter:
        """Return the meter of a scope: the same object for all who ask."""
        scope = InstrumentationScope(name, version, schema_url, attributes)
        if (meter := self._meters.get(scope)) is None:
            inner = self._provider.get_meter(name, version, schema_url, attributes)
            meter = self._meters[scope] = _ObservedMeter(inner, scope, self._observed)
        return meter


class _ObservedMeter(api.Meter):
    def __init__(self, inner: api.Meter, scope: InstrumentationScope, observed: Observed) -> None:
        super().__init__(scope.name, scope.version, scope.schema_url)
        self._inner = inner
        self._scope = scope
        self._observed = observed

    def create_counter(self, name: str, unit: str = "", description: str = "") -> api.Counter:
        return self._inner.create_counter(name, unit, description)

    def create_up_down_counter(self, name: str, unit: str = "", description: str = "") -> api.UpDownCounter:
        return self._inner.create_up_down_counter(name, unit, description)

    def create_histogram(
        self,
        name: str,
        unit: str = "",
        description: str = "",
        *,
        explicit_bucket_boundaries_advisory: Sequence[float] | None = None,
    ) -> api.Histogram:
        return self._inner.create_histogram(
            name, unit, description, explicit_bucket_boundaries_advisory=explicit_bucket_boundaries_advisory
        )

    def create_observable_counter(
        self, name: str, callbacks: Any = None, unit: str = "", description: str = ""
    ) -> api.ObservableCounter:
        return self._observe(ObservableCounter, name, callbacks, unit, description)

    def create_observable_up_down_counter(
        self, name: str, callbacks: Any = None, unit: str = "", description: str = ""
    ) -> api.ObservableUpDownCounter:
        return self._observe(ObservableUpDownCounter, name, callbacks, unit, description)

    def create_observable_gauge(
        self, name: str, callbacks: Any = None, unit: str = "", description: str = ""
    ) -> api.ObservableGauge:
        return self._observe(ObservableGauge, name, callbacks, unit, description)

    def create_gauge(self, name: str, unit: str = "", description: str = "") -> Any:
        return self._inner.create_gauge(name, unit, description)

    def _observe(self, kind: type, name: str, callbacks: Any, unit: str, description: str) -> _Handle:
        self._observed.add(self._scope, _Instrument(kind, name, unit, description), callbacks or ())
        return _Handle()


class _Handle(api.ObservableCounter, api.ObservableUpDownCounter, api.ObservableGauge):
    """What a program gets that creates an observable instrument: it has no use but to be kept."""

    def __init__(self) -> None:
        """Make a handle."""


class ObservedPrometheusReader(PrometheusMetricReader):
    """The reader of /metrics."""

    def __init__(self, observed: Observed, registry: CollectorRegistry) -> None:
        # Scope info would add three labels to every series. Histograms must keep explicit buckets here, because an
        # exponential histogram breaks the whole scrape: choose it in the OTLP reader, never by a View.
        super().__init__(scope_info_enabled=False, registry=registry)
        self._observed = observed

    def _receive_metrics(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **options: Any) -> None:
        super()._receive_metrics(self._observed.joined(metrics_data, {}, {}), timeout_millis, **options)


class ObservedPeriodicReader(PeriodicExportingMetricReader):
    """A reader that exports at an interval."""

    def __init__(self, observed: Observed, exporter: MetricExporter) -> None:
        self._observed = observed
        self._temporality = exporter._preferred_temporality or {}  # noqa: SLF001 - as the SDK's readers ask it
        self._totals: Totals = {}
        super().__init__(exporter)

    def _receive_metrics(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **options: Any) -> None:
        joined = self._observed.joined(metrics_data, self._temporality, self._totals)
        super()._receive_metrics(joined, timeout_millis, **options)
