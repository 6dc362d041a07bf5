# ruff: noqa: N802 - the names are those of PySpark's listener
"""Hears what Spark reports of its queries, and keeps it for the thread that asks: Spark calls from one of its own."""

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

END_SECONDS: Final = 10.0
"""How long to wait for the last reports of queries that have ended: they come through a queue of Spark's."""


class Reports(StreamingQueryListener):
    """What was heard. Spark's reports come in order; a query's end comes after its last micro-batch."""

    def __init__(self) -> None:
        self._news = threading.Condition()
        self._heard: list[dict[str, Any]] = []
        self._ended: set[str] = set()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: who starts a query knows it."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Keep a report."""
        report = json.loads(event.progress.json)
        with self._news:
            self._heard.append(report)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Note that a run is over."""
        with self._news:
            self._ended.add(str(event.runId))
            self._news.notify_all()

    def take(self) -> list[dict[str, Any]]:
        """Return what was heard since the last time."""
        with self._news:
            heard, self._heard = self._heard, []
        return heard

    def wait_for_end(self, runs: Collection[str]) -> None:
        """Wait until the ends of these runs were heard, and with them all that was before; `END_SECONDS` at most."""
        with self._news:
            if not self._news.wait_for(lambda: self._ended.issuperset(runs), END_SECONDS):
                logger.warning("Spark's last reports did not come in %g s: the totals may be too small", END_SECONDS)


@contextmanager
def listening(spark: SparkSession) -> Iterator[Reports]:
    """Hear the queries of a session."""
    reports = Reports()
    spark.streams.addListener(reports)
    try:
        yield reports
    finally:
        spark.streams.removeListener(reports)
