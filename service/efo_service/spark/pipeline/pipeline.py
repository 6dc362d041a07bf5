"""The Structured Streaming pipeline: the relay's records, decoded, into any sink of Spark's, and aggregates of them.

Two or three queries (`queries`), each with its own checkpoint, each exactly-once by Spark's file sink:

    records      in <output>/records/date=.../hour=... by time of arrival
    quarantine   what could not be decoded, in <output>/quarantine
    windows      counts per event-time window and key group, in <output>/windows

A file sink's directory must be read through Spark, or through the list of files in its `_spark_metadata`: what
a killed batch left half done stands beside the committed files and is not in that list.

A key group is the partition key's CRC-32 modulo the number of groups: stable everywhere, and even. A window is
written once, when the watermark (the newest arrival seen, less `watermark_seconds`) has passed its end; records
that come later than that are in `records` and not in `windows`, and the progress says how many.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from efo_service.relay.log.catalog import read_catalog, topics
from efo_service.spark.errors import SparkError, reason, spark_errors
from efo_service.spark.pipeline.progress import PipelineResult, Progress, Watch
from efo_service.spark.pipeline.queries import frames, start
from efo_service.spark.pipeline.settings import PipelineSettings
from efo_service.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLL_SECONDS: Final = 0.2
"""How often we look at the queries; a micro-batch takes Spark longer than that."""
NO_WORKER: Final = "Python worker failed to connect back"
"""What Spark says when a Python worker was not up within ten seconds, which cannot be set (PythonWorkerFactory)."""
MORE_STARTS: Final = 20
"""How often in a run that is tried again: it says that the machine is busy, and nothing about the query."""


def run_pipeline(
    settings: PipelineSettings,
    *,
    on_progress: Callable[[Progress], None] = lambda _: None,
    stop: threading.Event | None = None,
) -> PipelineResult:
    """Run the pipeline until it has read what is there (`available_now`), or until `stop` is set. Blocking.

    A run that does not end by itself waits for its topic to appear. `on_progress` is called in this thread
    after each micro-batch, with values that JSON knows. Raises JavaMissingError, SparkError,
    TopicNotFoundError, ConfigurationError.
    """
    stop = stop or threading.Event()
    if settings.available_now and settings.kafka is None:
        read_catalog(settings.log, settings.topic)
    session = spark_session(
        "efo pipeline",
        master=settings.master,
        quick=settings.quick_start,
        jars=settings.jars,
        options=settings.spark_options,
    )
    with spark_errors("the pipeline"), session as spark:
        return run_in_session(spark, settings, on_progress=on_progress, stop=stop)


def run_in_session(
    spark: SparkSession,
    settings: PipelineSettings,
    *,
    on_progress: Callable[[Progress], None],
    stop: threading.Event,
) -> PipelineResult:
    """Do what `run_pipeline` does, in a session that is there already."""
    result = PipelineResult()
    if not settings.available_now and not _wait_for_topic(settings, on_progress, stop):
        result.stopped = True
        return result
    from efo_service.spark.pipeline.listener import (  # noqa: PLC0415 - pyspark is slow to import and not always there
        listening,
    )

    watch = Watch(result, on_progress)
    running = _Running(_patiently(lambda: frames(spark, settings)), settings, on_progress, stop)

    def tell() -> None:
        for report in reports.take():
            if report["runId"] in running.runs:
                watch.tell(report)

    with listening(spark) as reports:
        try:
            running.start()
            while running.are_active and not stop.wait(POLL_SECONDS):
                tell()
                running.check()
            result.stopped = stop.is_set()
        finally:
            running.stop()
            reports.wait_for_end(running.runs)
            tell()
    running.raise_failure()
    return result


class _Running:
    """The queries while they run. One that fails for want of a Python worker is started again, at its checkpoint.

    `runs`: the ids of all their runs.
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
        self._starts_left = MORE_STARTS

    @property
    def queries(self) -> list[StreamingQuery]:
        """Those that were started last, whether they run still or not."""
        return list(self._queries.values())

    @property
    def are_active(self) -> bool:
        """Whether one of them runs, or is to be started again."""
        return any(query.isActive or self._lacks_worker(query) for query in self.queries)

    def start(self) -> None:
        """Start all, one after the other."""
        for name in self._frames:
            self._start(name)

    def _start(self, name: str) -> None:
        self._queries[name] = query = start(self._frames[name], name, self._settings)
        self.runs.add(str(query.runId))
        _wait_for_sources(query, self._stop)

    def check(self) -> None:
        """Start again what lacks a worker. Raises SparkError if a query failed for any other reason, or too often."""
        for name, query in list(self._queries.items()):
            if self._lacks_worker(query):
                self._starts_left -= 1
                self._on_progress({"started_again": name, "because": NO_WORKER})
                self._start(name)
            else:
                _raise_failure(query)

    def _lacks_worker(self, query: StreamingQuery) -> bool:
        return self._starts_left > 0 and not query.isActive and NO_WORKER in str(query.exception())

    def raise_failure(self) -> None:
        """Raise SparkError if a query has failed."""
        for query in self.queries:
            _raise_failure(query)

    def stop(self) -> None:
        """Let the running micro-batches end, then stop the queries; a batch that takes too long is done again later."""
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


def _patiently(make: Callable[[], dict[str, DataFrame]]) -> dict[str, DataFrame]:
    """Make the queries' frames, which takes a Python worker for each; again if one was too slow to start."""
    for _ in range(MORE_STARTS):
        try:
            return make()
        except Exception as error:
            if NO_WORKER not in str(error):
                raise
    return make()


def _wait_for_topic(settings: PipelineSettings, on_progress: Callable[[Progress], None], stop: threading.Event) -> bool:
    """Return whether the topic is there; False when told to stop before. Services start in any order.

    Of a topic in Kafka Spark itself will tell.
    """
    told = False
    while settings.kafka is None and settings.topic not in topics(settings.log):
        if not told:
            on_progress({"waiting_for": settings.topic, "log": str(settings.log)})
            told = True
        if stop.wait(POLL_SECONDS):
            return False
    return True


def _wait_for_sources(query: StreamingQuery, stop: threading.Event) -> None:
    """Wait until a query has made its source, or has ended.

    All queries of a session share the data source's environment variables, a map without a lock into which Spark
    4.3 writes as it makes each source (PythonStreamingSourceRunner). Two that do so at once can damage it, and then no
    task can be serialized any more: "Illegal size 5 of collection, expected 6". Later ones write what is there already.
    """
    while query.isActive and query.status["message"].startswith("Initializing"):
        if stop.wait(POLL_SECONDS / 4):
            return
