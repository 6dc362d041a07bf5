"""The Structured Streaming pipeline: decodes the relay's records, writes them to a Spark sink and counts them.

It runs two or three queries (`queries`). Each has its own checkpoint, and Spark's file sink makes each exactly-once:

    records      in <output>/records/date=.../hour=... by arrival time
    quarantine   records that could not be decoded, in <output>/quarantine
    windows      counts per event-time window and key group, in <output>/windows

Read a file sink's directory through Spark, or through the list of files in its `_spark_metadata`. A killed batch leaves
uncommitted files beside the committed ones, and those are not in the list (docs/tables.md).

A key group is the CRC-32 of the partition key modulo the number of groups: the same on every machine, and evenly
distributed. A window is written once, when the watermark (the newest arrival so far minus `watermark_seconds`) has
passed its end. Records that arrive later are in `records` but not in `windows`; the progress reports how many.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from efo_service.log.catalog import read_catalog
from efo_service.log.files import LogFiles
from efo_service.log.topic import log_files
from efo_service.relay.errors import LogError, SinkError, TopicNotFoundError
from efo_service.spark.errors import SparkError, reason, spark_errors
from efo_service.spark.pipeline.progress import PipelineResult, Progress, ProgressReporter
from efo_service.spark.pipeline.queries import PARTITIONS, make_frames, start_query
from efo_service.spark.pipeline.settings import PipelineSettings
from efo_service.spark.pipeline.versions import check_versions
from efo_service.spark.pipeline.written_types import check_written_types
from efo_service.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLL_SECONDS: Final = 0.2
"""How often the queries are polled; a micro-batch takes longer."""
STORE_POLL_SECONDS: Final = 5.0
"""How often a topic on an object store is looked for: each look costs some requests."""
WORKER_TIMEOUT: Final = "Python worker failed to connect back"
"""Spark's error if a Python worker does not start within ten seconds, which cannot be set (PythonWorkerFactory)."""
MAX_RETRIES: Final = 20
"""How often a run retries after WORKER_TIMEOUT, which means that the machine is busy, not that the query is wrong."""


def run_pipeline(
    settings: PipelineSettings,
    *,
    on_progress: Callable[[Progress], None] = lambda _: None,
    stop: threading.Event | None = None,
) -> PipelineResult:
    """Run the pipeline until `stop` is set or, with `available_now`, until it has read the existing records. Blocking.

    Without `available_now` it waits for its topic to exist. `on_progress` is called in this thread after each
    micro-batch, with values that JSON supports.
    Raises JavaMissingError, SparkError, TopicNotFoundError, ConfigurationError; of a log on an object store StoreError.
    """
    stop = stop or threading.Event()
    if settings.available_now and settings.kafka is None:
        read_catalog(log_files(settings.log), settings.topic)
    with spark_errors("the pipeline"):
        from pyspark import __version__  # noqa: PLC0415 - pyspark is slow to import and optional

        check_versions(__version__, settings)
    session = spark_session(
        "efo pipeline",
        master=settings.master,
        jars=settings.jars,
        options=settings.spark_options,
    )
    # The inner one is for what Java throws: its message is in Java, which has ended when the session has.
    with spark_errors("the pipeline"), session as spark, spark_errors("the pipeline"):
        return run_in_session(spark, settings, on_progress=on_progress, stop=stop)


def run_in_session(
    spark: SparkSession,
    settings: PipelineSettings,
    *,
    on_progress: Callable[[Progress], None],
    stop: threading.Event,
) -> PipelineResult:
    """Do what `run_pipeline` does, in an existing session."""
    result = PipelineResult()
    if not settings.available_now and not _wait_for_topic(settings, on_progress, stop):
        result.stopped = True
        return result
    from efo_service.spark.pipeline.listener import listening  # noqa: PLC0415 - pyspark is slow to import and optional

    reporter = ProgressReporter(result, on_progress)
    frames = _retry_worker_timeouts(lambda: make_frames(spark, settings))
    check_written_types(spark, frames, settings, PARTITIONS)
    running = _RunningQueries(frames, settings, on_progress, stop)

    def report_progress() -> None:
        for report in listener.take():
            if report["runId"] in running.runs:
                reporter.report(report)

    with listening(spark) as listener:
        try:
            running.start()
            while running.are_active and not stop.wait(POLL_SECONDS):
                report_progress()
                running.check()
            result.stopped = stop.is_set()
        finally:
            running.stop()
            listener.wait_for_end(running.runs)
            report_progress()
    running.raise_failure()
    return result


class _RunningQueries:
    """The queries while they run. A query that fails with WORKER_TIMEOUT is restarted from its checkpoint.

    `runs`: the run ids of all queries, restarts included.
    """

    def __init__(
        self,
        frames: Mapping[str, DataFrame],
        settings: PipelineSettings,
        on_progress: Callable[[Progress], None],
        stop: threading.Event,
    ) -> None:
        self._frames = frames
        self._settings = settings
        self._on_progress = on_progress
        self._stop = stop
        self._queries: dict[str, StreamingQuery] = {}
        self.runs: set[str] = set()
        self._retries_left = MAX_RETRIES

    @property
    def queries(self) -> list[StreamingQuery]:
        """The latest run of each query, active or not."""
        return list(self._queries.values())

    @property
    def are_active(self) -> bool:
        """Whether a query is active, or will be restarted."""
        return any(query.isActive or self._can_retry(query) for query in self.queries)

    def start(self) -> None:
        """Start all queries, one after the other."""
        for name in self._frames:
            self._start(name)

    def _start(self, name: str) -> None:
        self._queries[name] = query = start_query(self._frames[name], name, self._settings)
        self.runs.add(str(query.runId))
        _wait_for_sources(query, self._stop)

    def check(self) -> None:
        """Restart queries that failed with WORKER_TIMEOUT.

        Raises SparkError if a query failed for another reason, or more than MAX_RETRIES times.
        """
        for name, query in list(self._queries.items()):
            if self._can_retry(query):
                self._retries_left -= 1
                self._on_progress({"started_again": name, "because": WORKER_TIMEOUT})
                self._start(name)
            else:
                _raise_failure(query)

    def _can_retry(self, query: StreamingQuery) -> bool:
        return self._retries_left > 0 and not query.isActive and WORKER_TIMEOUT in str(query.exception())

    def raise_failure(self) -> None:
        """Raise SparkError if a query has failed."""
        for query in self.queries:
            _raise_failure(query)

    def stop(self) -> None:
        """Wait for the running micro-batches at most `stop_seconds`, then stop the queries.

        The next start repeats a micro-batch that did not finish.
        """
        waiting = threading.Event()
        for query in self.queries:
            for _ in range(int(self._settings.stop_seconds / POLL_SECONDS)):
                if not (query.isActive and query.status["isTriggerActive"]):
                    break
                waiting.wait(POLL_SECONDS)
            query.stop()


def _raise_failure(query: StreamingQuery) -> None:
    if not query.isActive and (error := query.exception()) is not None:
        raise SparkError(f"the query {query.name!r} failed: {reason(error)}") from error


def _retry_worker_timeouts(make: Callable[[], dict[str, DataFrame]]) -> dict[str, DataFrame]:
    """Make the queries' frames; retry after WORKER_TIMEOUT. Each frame needs a Python worker."""
    for _ in range(MAX_RETRIES):
        try:
            return make()
        except Exception as error:
            if WORKER_TIMEOUT not in str(error):
                raise
    return make()


def _wait_for_topic(settings: PipelineSettings, on_progress: Callable[[Progress], None], stop: threading.Event) -> bool:
    """Wait until the log has the topic, as services start in any order; return False if `stop` is set first.

    For a topic in Kafka it returns at once: Spark reports a missing topic. A store that does not answer is waited for,
    too. Raises StoreDeniedError and StoreError.
    """
    if settings.kafka is not None:
        return True
    log, reported = log_files(settings.log), None  # one client: it looks for credentials once
    seconds = POLL_SECONDS if isinstance(settings.log, Path) else STORE_POLL_SECONDS
    while (missing := _missing(log, settings.topic)) is not None:
        if missing != reported:
            on_progress({"waiting_for": settings.topic, "log": str(settings.log), "because": missing})
            reported = missing
        if stop.wait(seconds):
            return False
    return True


def _missing(log: LogFiles, topic: str) -> str | None:
    """Return None if the topic is there, why the log cannot be read now, or "" if there is no such topic yet."""
    try:
        read_catalog(log, topic)
    except TopicNotFoundError:
        return ""
    except LogError:  # the query reports it
        return None
    except SinkError as error:
        if not error.retryable:
            raise
        return str(error)
    return None


def _wait_for_sources(query: StreamingQuery, stop: threading.Event) -> None:
    """Wait until a query has created its source, or has ended.

    All queries of a session share the data source's environment variables, a map without a lock. Spark 4.3 writes to it
    when it creates a source (PythonStreamingSourceRunner). Two concurrent writes can corrupt the map, and then no task
    can be serialized: "Illegal size 5 of collection, expected 6". Later writes do no harm: they change nothing.
    """
    while query.isActive and query.status["message"].startswith("Initializing"):
        if stop.wait(POLL_SECONDS / 4):
            return
