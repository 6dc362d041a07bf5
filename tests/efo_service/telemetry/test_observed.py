"""Observable instruments of the service: exact, and without a memory, however many shards come and go."""

from __future__ import annotations

import gc

import pytest
from opentelemetry.metrics import Observation
from opentelemetry.sdk.metrics import (
    Counter,
    MeterProvider,
    ObservableCounter,
    ObservableGauge,
    ObservableUpDownCounter,
)
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    MetricExporter,
    MetricExportResult,
    Sum,
)
from prometheus_client import CollectorRegistry, generate_latest

from efo.telemetry.observer import OtelObserver
from efo_service.telemetry.observed import (
    SERIES,
    Observed,
    ObservedMeterProvider,
    ObservedPeriodicReader,
    ObservedPrometheusReader,
)
from tests.growth import items_held, life_of

DELTA, CUMULATIVE = AggregationTemporality.DELTA, AggregationTemporality.CUMULATIVE


class Exporter(MetricExporter):
    """Keeps the last export: the values by name and shard."""

    def __init__(self, temporality):
        super().__init__(preferred_temporality=temporality)
        self.data = {}
        self.scopes = []

    def export(self, metrics_data, timeout_millis=10_000, **_options):
        [resource] = metrics_data.resource_metrics
        self.scopes = [scope.scope.name for scope in resource.scope_metrics]
        self.data = {metric.name: metric.data for scope in resource.scope_metrics for metric in scope.metrics}
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis=10_000):
        return True

    def shutdown(self, timeout_millis=30_000, **_options):
        pass

    def values(self, name):
        points = self.data[name].data_points if name in self.data else ()
        return {point.attributes.get("shard", ""): point.value for point in points}


class Sdk:
    """A provider with both readers."""

    def __init__(self, temporality=CUMULATIVE):
        self.observed, self.registry = Observed(), CollectorRegistry()
        kinds = (Counter, ObservableCounter, ObservableUpDownCounter, ObservableGauge)
        self.exporter = Exporter(dict.fromkeys(kinds, temporality))
        self.reader = ObservedPeriodicReader(self.observed, self.exporter)
        readers = [self.reader, ObservedPrometheusReader(self.observed, self.registry)]
        self._inner = MeterProvider(metric_readers=readers, shutdown_on_exit=False)
        self.provider = ObservedMeterProvider(self._inner, self.observed)
        self.meter = self.provider.get_meter("test")
        self.reported = {}

    def reported_by(self, create):
        create("n", [lambda _: [Observation(value, {"shard": shard}) for shard, value in self.reported.items()]])

    def export(self):
        self.reader.collect()
        return self.exporter

    def text(self):
        return generate_latest(self.registry).decode()

    def close(self):
        self._inner.shutdown()


@pytest.fixture
def sdk():
    sdk = Sdk()
    yield sdk
    sdk.close()


@pytest.mark.parametrize(
    ("create", "kind", "is_monotonic"),
    [
        ("create_observable_gauge", Gauge, None),
        ("create_observable_counter", Sum, True),
        ("create_observable_up_down_counter", Sum, False),
    ],
)
def test_each_kind_is_exported_as_what_it_is_until_it_is_no_longer_reported(sdk, create, kind, is_monotonic):
    sdk.reported_by(getattr(sdk.meter, create))
    sdk.reported = {"s-0": 3, "s-1": 4}
    exported = sdk.export()
    assert exported.values("n") == {"s-0": 3, "s-1": 4}
    assert isinstance(exported.data["n"], kind)
    assert getattr(exported.data["n"], "is_monotonic", None) is is_monotonic
    assert 'shard="s-0"' in sdk.text()
    sdk.reported = {"s-1": 5}
    assert sdk.export().values("n") == {"s-1": 5}
    assert 'shard="s-0"' not in sdk.text()
    sdk.reported = {}
    assert "n" not in sdk.export().data


def test_several_values_of_one_series_are_added_in_a_sum_and_the_last_one_of_a_gauge(sdk):
    def tell(_options):
        return [Observation(1, {"shard": "s"}), Observation(2, {"shard": "s"})]

    sdk.meter.create_observable_up_down_counter("sum", [tell])
    sdk.meter.create_observable_gauge("gauge", [tell])
    exported = sdk.export()
    assert (exported.values("sum"), exported.values("gauge")) == ({"s": 3}, {"s": 2})


def test_an_instrument_that_is_created_again_has_the_callbacks_of_both(sdk):
    for shard in ("s-0", "s-1"):
        sdk.meter.create_observable_gauge("gauge", [lambda _, shard=shard: [Observation(1, {"shard": shard})]])
    assert sdk.export().values("gauge") == {"s-0": 1, "s-1": 1}


def test_a_callback_that_fails_or_tells_no_number_does_not_keep_the_others_from_being_exported(sdk, caplog):
    def fail(_options):
        raise ValueError("a defect")

    sdk.meter.create_observable_gauge("broken", [fail])
    sdk.meter.create_observable_gauge("odd", [lambda _: [Observation(float("nan"))]])
    sdk.reported_by(sdk.meter.create_observable_gauge)
    sdk.reported = {"s": 1}
    assert sdk.export().values("n") == {"s": 1}
    assert not {"broken", "odd"} & sdk.exporter.data.keys()
    assert "the callback of broken failed" in caplog.text


def test_all_other_instruments_are_those_of_the_sdk_and_share_its_scopes(sdk):
    sdk.meter.create_counter("counter").add(2)
    sdk.meter.create_up_down_counter("up_down").add(-1)
    sdk.meter.create_histogram("histogram", explicit_bucket_boundaries_advisory=(1, 2)).record(1.5)
    sdk.meter.create_gauge("set").set(4)
    sdk.reported_by(sdk.meter.create_observable_gauge)
    sdk.reported = {"s": 1}
    exported = sdk.export()
    assert {"counter", "up_down", "histogram", "set", "n", SERIES} <= exported.data.keys()
    assert len(exported.scopes) == len(set(exported.scopes))
    assert sdk.provider.get_meter("test") is sdk.meter


def test_a_reader_that_wants_differences_gets_those_of_counters_alone():
    sdk = Sdk(DELTA)
    sdk.reported_by(sdk.meter.create_observable_counter)
    sdk.meter.create_observable_gauge("gauge", [lambda _: [Observation(7, {"shard": "s-0"})]])
    seen = []
    for sdk.reported in ({"s-0": 10}, {"s-0": 15, "s-1": 1}, {"s-1": 1}, {"s-0": 2, "s-1": 4}):
        seen.append(sdk.export().values("n"))
        assert sdk.exporter.values("gauge") == {"s-0": 7}
    # s-0 was forgotten, so what it has counted since is reported.
    assert seen == [{"s-0": 10}, {"s-0": 5, "s-1": 1}, {"s-1": 0}, {"s-0": 2, "s-1": 3}]
    assert sdk.exporter.data["n"].aggregation_temporality is DELTA
    sdk.close()


@pytest.mark.parametrize("temporality", [CUMULATIVE, DELTA])
def test_neither_reader_grows_while_thousands_of_shards_come_and_go(temporality):
    """More than the 2,000 sets of attributes that the SDK would keep, and tell apart."""
    sdk, now = Sdk(temporality), 0.0
    observe = OtelObserver(stream="s", application="a", meter_provider=sdk.provider, max_shards=None, clock=lambda: now)
    held = []
    for number in range(2481):
        now += 30
        shard = f"shardId-{number:012}"
        for event in life_of(shard):
            observe(event)
        if number % 20 == 0:
            sdk.export()
            sdk.text()
        if number in (500, 2480):
            gc.collect()
            sdk.export()
            held.append((items_held(observe, sdk), sdk.observed.series, sdk.text().count("\n")))
    (items, series, lines), (items_now, series_now, lines_now) = held
    assert items_now <= items + 5
    assert (series_now, lines_now) == (series, lines)
    # And the last shard is reported by its own name.
    assert f'messaging_destination_partition_id="{shard}"' in sdk.text()
    sdk.close()
