"""Spark's progress reports, each once, as ours: what the pipeline tells, counts and measures."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from service.spark.offsets import from_json, lag

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

Progress = dict[str, Any]


@dataclass
class PipelineResult:
    """What a run did, per query. `stopped`: it was told to stop, and did not just come to an end."""

    batches: dict[str, int] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    late_rows: int = 0
    stopped: bool = False


class Watch:
    """Turns Spark's progress reports into ours, each once."""

    def __init__(self, result: PipelineResult, on_progress: Callable[[Progress], None]) -> None:
        self._result = result
        self._on_progress = on_progress
        self._seen: dict[str, int] = {}

    def look(self, queries: list[StreamingQuery]) -> None:
        """Report the micro-batches that have ended since the last look."""
        for query in queries:
            for report in _finished_batches(query, after=self._seen.get(str(query.id), -1)):
                self._seen[str(query.id)] = report["batchId"]
                self._tell(report)

    def _tell(self, report: dict[str, Any]) -> None:
        name, rows = report["name"], report["numInputRows"]
        late = sum(state["numRowsDroppedByWatermark"] for state in report["stateOperators"])
        result = self._result
        result.batches[name] = result.batches.get(name, 0) + 1
        result.rows[name] = result.rows.get(name, 0) + rows
        result.late_rows += late
        self._on_progress(
            {
                "query": name,
                "batch_id": report["batchId"],
                "rows": rows,
                "rows_total": result.rows[name],
                "late_rows": late,
                "lag": _lag(report["sources"]),
                "watermark": report.get("eventTime", {}).get("watermark"),
                "seconds": report["durationMs"].get("triggerExecution", 0) / 1000,
                "milliseconds": dict(report["durationMs"]),
            }
        )


def _lag(sources: list[dict[str, Any]]) -> int | None:
    """Return how many records a query has still before it, by its sources' latest offsets; None if they do not tell."""
    lags = []
    for source in sources:
        end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
        if end is None or latest is None:
            return None
        lags.append(lag(from_json(end), from_json(latest)))
    return sum(lags)


def _offsets(value: object) -> Mapping[str, Mapping[str, int]] | None:
    """Return offsets as both sources report them: JSON, or text of it."""
    try:
        value = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _finished_batches(query: StreamingQuery, *, after: int) -> Iterator[dict[str, Any]]:
    """Yield the reports of batches that did something: an idle query repeats its last batch's number."""
    for progress in query.recentProgress:
        report = json.loads(progress.json)
        if report["batchId"] > after and "addBatch" in report["durationMs"]:
            yield report
