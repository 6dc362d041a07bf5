# ruff: noqa: N802 - the names are those of PySpark's listener
"""Collects Spark's reports about its queries. Spark calls from its own thread; another thread takes the reports."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

logger = logging.getLogger(__name__)

END_TIMEOUT_SECONDS: Final = 10.0
"""How long to wait for the last reports of ended queries: Spark delivers them through a queue."""


class ReportListener(StreamingQueryListener):
    """Keeps Spark's reports. They arrive in order: the end of a query after its last micro-batch."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._reports: list[dict[str, Any]] = []
        self._ended_runs: set[str] = set()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: the caller that starts a query knows it."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Add a report."""
        report = json.loads(event.progress.json)
        with self._changed:
            self._reports.append(report)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Record that a run has ended."""
        with self._changed:
            self._ended_runs.add(str(event.runId))
            self._changed.notify_all()

    def take(self) -> list[dict[str, Any]]:
        """Return the reports since the last call."""
        with self._changed:
            reports, self._reports = self._reports, []
        return reports

    def wait_for_end(self, runs: Collection[str]) -> None:
        """Wait until Spark has reported that these runs ended, at most `END_TIMEOUT_SECONDS`."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._ended_runs.issuperset(runs), END_TIMEOUT_SECONDS):
                logger.warning(
                    "Spark's last reports did not arrive within %g s: the totals may be too small", END_TIMEOUT_SECONDS
                )


@contextmanager
def listening(spark: SparkSession) -> Iterator[ReportListener]:
    """Listen to the queries of a session."""
    listener = ReportListener()
    spark.streams.addListener(listener)
    try:
        yield listener
    finally:
        spark.streams.removeListener(listener)
