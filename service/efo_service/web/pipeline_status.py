"""What /status of `efo pipeline` shows: its queries, what is wrong, and its last errors."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from efo_service.version import VERSION
from efo_service.web.problems import LastError, continued

_LOG: Final = "log"
_SPARK: Final = "spark"
_REMEDIES: Final = {
    _LOG: "make the store of the log reachable from this process",
    _SPARK: "give Spark more cores, or [pipeline] master fewer: Python workers start too slowly",
}
_SHOWN: Final = ("batch_id", "rows_total", "rows_written_total", "lag", "watermark")


class PipelineStatus:
    """Takes the pipeline's progress reports, in one thread; another one asks. `clock`: seconds since the epoch."""

    def __init__(self, names: Mapping[str, str], clock: Callable[[], float] = time.time) -> None:
        self._names = {"version": VERSION, **names}
        self._clock = clock
        self._waiting = ""
        self._queries: dict[str, dict[str, Any]] = {}
        self._errors: dict[str, LastError] = {}

    def __call__(self, progress: Mapping[str, Any]) -> None:
        """Take a report (efo_service.spark.pipeline.progress)."""
        match progress:
            case {"waiting_for": topic, "log": log, "because": because}:
                self._waiting = f"waiting for the topic {topic} in {log}: {because or 'start efo run, which makes it'}"
                if because:
                    self._failed(_LOG, "log_unavailable", because)
                else:
                    self._works(_LOG)
            case {"started_again": query, "because": because}:
                self._failed(_SPARK, "worker_timeout", f"the query {query} was started again: {because}")
            case {"query": query, "batch_id": _}:
                shown = {name: progress.get(name) for name in _SHOWN}
                self._queries = {**self._queries, query: {**shown, "ended_at": round(self._clock(), 3)}}
                self._waiting = ""
                for part in tuple(self._errors):
                    self._works(part)

    def status(self) -> dict[str, Any]:
        """Return the content of /status, as JSON values."""
        errors = tuple(self._errors.values())
        ongoing = [f"{error.text}: {error.remedy}" for error in errors if not error.is_over]
        return {
            **self._names,
            "problems": [*([self._waiting] if self._waiting else []), *ongoing],
            "last_errors": [msgspec.to_builtins(error) for error in errors],
            "queries": self._queries,
        }

    def _failed(self, part: str, error_type: str, text: str) -> None:
        error = LastError("pipeline", error_type, text, round(self._clock(), 3), 1, _REMEDIES[part], is_over=False)
        self._errors = {**self._errors, part: continued(error, self._errors.get(part))}  # the other thread reads it

    def _works(self, part: str) -> None:
        if part in self._errors:
            self._errors = {**self._errors, part: msgspec.structs.replace(self._errors[part], is_over=True)}
