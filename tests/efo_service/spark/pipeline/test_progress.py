"""Spark's progress reports, in the format of Spark 4.3, without Spark."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from efo_service.spark.pipeline.metrics import PipelineMetrics
from efo_service.spark.pipeline.progress import PipelineResult, ProgressReporter


def report(batch: int, rows: int, *, end: object, latest: object, late: int = 0, **more: object) -> dict:
    return {
        "name": "records",
        "batchId": batch,
        "numInputRows": rows,
        "durationMs": {"addBatch": 5, "triggerExecution": 1250},
        "stateOperators": [{"numRowsDroppedByWatermark": late}],
        "sources": [{"endOffset": end, "latestOffset": latest}],
        **more,
    }


def reported(*reports: dict) -> list[dict]:
    seen: list[dict] = []
    reporter = ProgressReporter(PipelineResult(), seen.append)
    for one in reports:
        reporter.report(one)
    return seen


@pytest.mark.parametrize(
    ("end", "latest", "lag"),
    [
        ({"t": {"0": 5}}, {"t": {"0": 9, "1": 3}}, 7),
        ('{"t": {"0": 5}}', '{"t": {"0": 9, "1": 3}}', 7),
        ({"t": {"0": 5}}, {"t": {"0": 5}}, 0),
        ({}, {"t": {"0": 2}}, 2),
        ({"t": {"0": 5}}, None, None),
        (None, None, None),
        ("12", "13", None),
        ("?", "?", None),
    ],
)
def test_the_lag_is_computed_from_the_offsets_of_the_source(end, latest, lag) -> None:
    assert reported(report(0, 1, end=end, latest=latest))[0]["lag"] == lag


def test_each_micro_batch_is_reported_and_idle_queries_are_not() -> None:
    offsets = {"end": {}, "latest": {}}
    idle = report(1, 0, **offsets) | {"durationMs": {"latestOffset": 1}}
    first = report(0, 10, late=2, observedMetrics={"efo_written": {"rows": 8}}, **offsets)
    second = report(1, 5, observedMetrics={"efo_written": {"rows": 3}}, **offsets)
    seen: list[dict] = []
    result = PipelineResult()
    reporter = ProgressReporter(result, seen.append)
    for one in first, second, idle:
        reporter.report(one)
    assert [(one["batch_id"], one["rows"], one["rows_total"]) for one in seen] == [(0, 10, 10), (1, 5, 15)]
    assert [(one["rows_written"], one["rows_written_total"]) for one in seen] == [(8, 8), (3, 11)]
    assert result.rows_written == {"records": 11}
    assert (result.batches, result.rows, result.late_rows) == ({"records": 2}, {"records": 15}, 2)
    assert seen[0]["seconds"] == 1.25


def test_progress_becomes_metrics() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader], shutdown_on_exit=False)
    measure = PipelineMetrics(provider)
    written = {"observedMetrics": {"efo_written": {"rows": 8}}}
    first = report(0, 10, end={}, latest={"t": {"0": 4}}, late=2, **written)
    for one in reported(first, report(1, 5, end={}, latest={})):
        measure(one)
    measure({"waiting_for": "orders", "log": "log"})
    metrics = reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics
    points = {metric.name: metric.data.data_points[0] for metric in metrics}
    assert all(point.attributes == {"efo.pipeline.query": "records"} for point in points.values())
    assert points["efo.pipeline.rows"].value == 15
    assert points["efo.pipeline.rows_written"].value == 8
    assert points["efo.pipeline.late_rows"].value == 2
    assert points["efo.pipeline.lag"].value == 0
    assert (points["efo.pipeline.batch.duration"].count, points["efo.pipeline.batch.duration"].sum) == (2, 2.5)
    provider.shutdown()
