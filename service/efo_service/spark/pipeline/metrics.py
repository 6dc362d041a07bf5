"""The pipeline's progress as metrics: micro-batches, rows, lag, late rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from efo.telemetry.instruments import SCHEMA_URL

BUCKETS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Histogram buckets for the duration of a micro-batch, in seconds."""


class PipelineMetrics:
    """Turns the pipeline's progress reports (efo_service.spark.pipeline.progress) into metrics."""

    def __init__(self, provider: MeterProvider) -> None:
        meter = provider.get_meter("efo.pipeline", schema_url=SCHEMA_URL)
        self._rows = meter.create_counter("efo.pipeline.rows", "{row}", "Rows that the query has read.")
        self._written = meter.create_counter("efo.pipeline.rows_written", "{row}", "Rows that the query has written.")
        self._late = meter.create_counter(
            "efo.pipeline.late_rows", "{row}", "Rows dropped because they were older than the watermark."
        )
        self._seconds = meter.create_histogram(
            "efo.pipeline.batch.duration",
            "s",
            "Duration of a micro-batch.",
            explicit_bucket_boundaries_advisory=list(BUCKETS),
        )
        self._lags: dict[str, int] = {}
        meter.create_observable_gauge(
            "efo.pipeline.lag", [self._observe_lag], "{record}", "Records that the query has not yet read."
        )

    def __call__(self, progress: dict[str, Any]) -> None:
        """Record one report. Reports that do not describe a micro-batch are ignored."""
        if "batch_id" not in progress:
            return
        attributes = {"efo.pipeline.query": progress["query"]}
        self._rows.add(progress["rows"], attributes)
        self._written.add(progress["rows_written"], attributes)
        self._late.add(progress["late_rows"], attributes)
        self._seconds.record(progress["seconds"], attributes)
        if progress["lag"] is not None:
            self._lags[progress["query"]] = progress["lag"]

    def _observe_lag(self, _options: CallbackOptions) -> Iterable[Observation]:
        return [Observation(lag, {"efo.pipeline.query": query}) for query, lag in self._lags.items()]
