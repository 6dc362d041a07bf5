"""Translates Spark's progress reports into the pipeline's own, and counts batches and rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from efo_service.spark.source.offsets import from_json, lag

Progress = dict[str, Any]

WRITTEN: Final = "efo_written"
"""Name of the observation of what a query writes."""
ROWS: Final = "rows"
"""Its column: the number of rows."""


@dataclass
class PipelineResult:
    """What a run did.

    `batches`, `rows` (read), `rows_written`: per query. `late_rows`: dropped, older than the watermark.
    `stopped`: the run ended because of a request to stop.
    """

    batches: dict[str, int] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    rows_written: dict[str, int] = field(default_factory=dict)
    late_rows: int = 0
    stopped: bool = False


class ProgressReporter:
    """Translates Spark's progress reports, and adds them up in a PipelineResult."""

    def __init__(self, result: PipelineResult, on_progress: Callable[[Progress], None]) -> None:
        self._result = result
        self._on_progress = on_progress

    def report(self, report: dict[str, Any]) -> None:
        """Report a micro-batch that has ended. Reports of idle queries are ignored."""
        if "addBatch" not in report["durationMs"]:
            return
        name, rows = report["name"], report["numInputRows"]
        written = report.get("observedMetrics", {}).get(WRITTEN, {}).get(ROWS, 0)
        late = sum(state["numRowsDroppedByWatermark"] for state in report["stateOperators"])
        result = self._result
        result.batches[name] = result.batches.get(name, 0) + 1
        result.rows[name] = result.rows.get(name, 0) + rows
        result.rows_written[name] = result.rows_written.get(name, 0) + written
        result.late_rows += late
        self._on_progress(
            {
                "query": name,
                "batch_id": report["batchId"],
                "rows": rows,
                "rows_total": result.rows[name],
                "rows_written": written,
                "rows_written_total": result.rows_written[name],
                "late_rows": late,
                "lag": _lag(report["sources"]),
                **_behind(report["sources"]),
                "watermark": report.get("eventTime", {}).get("watermark"),
                "seconds": report["durationMs"].get("triggerExecution", 0) / 1000,
                "milliseconds": dict(report["durationMs"]),
            }
        )


def behind_latest(source: Mapping[str, Any]) -> dict[str, float]:
    """Return how far a source is behind, by the names that Spark's Kafka source has in `metrics`; empty if unknown.

    `source`: one of `sources` in a progress report. Python sources cannot report metrics of their own, so they are
    computed from its offsets: the fewest, the most and the average number of records that a partition has left.
    """
    end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
    if end is None or latest is None:
        return {}
    at = from_json(end)
    behind = [max(0, offset - at.get(tp, 0)) for tp, offset in from_json(latest).items()]
    if not behind:
        return {}
    return {
        "minOffsetsBehindLatest": min(behind),
        "maxOffsetsBehindLatest": max(behind),
        "avgOffsetsBehindLatest": sum(behind) / len(behind),
    }


def _behind(sources: list[dict[str, Any]]) -> dict[str, float]:
    """Return it of the only source of a query of the pipeline."""
    return behind_latest(sources[0]) if len(sources) == 1 else {}


def _lag(sources: list[dict[str, Any]]) -> int | None:
    """Return how many records a query has not yet read; None if a source reports no latest offset."""
    lags = []
    for source in sources:
        end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
        if end is None or latest is None:
            return None
        lags.append(lag(from_json(end), from_json(latest)))
    return sum(lags)


def _offsets(value: object) -> Mapping[str, Mapping[str, int]] | None:
    """Return a source's offsets, which are JSON text or parsed JSON."""
    try:
        value = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
