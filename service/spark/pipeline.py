"""The Structured Streaming pipeline: the log's records to Parquet, and their windowed aggregates.

Two queries, each with its own checkpoint, each exactly-once by Spark's file sink:

    records   every record, as it is, in <output>/records/date=.../hour=... by time of arrival
    windows   per event-time window and key group: count, bytes, first and last arrival, in <output>/windows

A file sink's directory must be read through Spark, or through the list of files in its `_spark_metadata`: what
a killed batch left half done stands beside the committed files and is not in that list.

A key group is the partition key's CRC-32 modulo the number of groups: stable everywhere, and even. A window is
written once, when the watermark (the newest arrival seen, less `watermark_seconds`) has passed its end; records
that come later than that are in `records` and not in `windows`, and the progress says how many.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from efo.errors import ConfigurationError
from service.relay.catalog import read_catalog, topics
from service.spark.errors import SparkError, reason, spark_errors
from service.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLL_SECONDS: Final = 0.2
"""How often we look at the queries; a micro-batch takes Spark longer than that."""

Progress = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class PipelineSettings:
    """What the pipeline reads, makes and keeps.

    `log`: the log's directory. `topic`: what to read. `output`, `checkpoint`: directories, made if need be.
    `available_now`: read what is there and end; else run, a micro-batch every `trigger_seconds`.
    `window_seconds`, `watermark_seconds`, `key_groups`: the windows. `max_records`: per micro-batch.
    `master`: Spark's. `stop_seconds`: how long a stop waits for the running micro-batch.
    """

    log: Path
    topic: str
    output: Path
    checkpoint: Path
    available_now: bool = False
    trigger_seconds: float = 5.0
    window_seconds: int = 60
    watermark_seconds: int = 60
    key_groups: int = 16
    max_records: int | None = None
    master: str = "local[2]"
    stop_seconds: float = 30.0

    def __post_init__(self) -> None:
        for name in ("trigger_seconds", "window_seconds", "key_groups", "stop_seconds"):
            if getattr(self, name) <= 0:
                raise ConfigurationError(f"pipeline: {name} must be above 0, not {getattr(self, name)}")
        if self.watermark_seconds < 0:
            raise ConfigurationError(f"pipeline: watermark_seconds is {self.watermark_seconds}, below 0")


@dataclass
class PipelineResult:
    """What a run did, per query. `stopped`: it was told to stop, and did not just come to an end."""

    batches: dict[str, int] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    late_rows: int = 0
    stopped: bool = False


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
    if settings.available_now:
        read_catalog(settings.log, settings.topic)
    with spark_errors("the pipeline"), spark_session("efo pipeline", master=settings.master) as spark:
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
    watch = _Watch(result, on_progress)
    queries: list[StreamingQuery] = []
    try:
        for name, frame in (("records", records(spark, settings)), ("windows", windows(spark, settings))):
            queries.append(_start(frame, name, settings))
            _wait_for_sources(queries[-1], stop)
        while any(query.isActive for query in queries) and not stop.wait(POLL_SECONDS):
            watch.look(queries)
            _raise_failure(queries)
        result.stopped = stop.is_set()
    finally:
        for query in queries:
            _stop(query, settings.stop_seconds)
    watch.look(queries)
    _raise_failure(queries)
    return result


def _wait_for_topic(settings: PipelineSettings, on_progress: Callable[[Progress], None], stop: threading.Event) -> bool:
    """Return whether the topic is there; False when told to stop before. Services start in any order."""
    told = False
    while settings.topic not in topics(settings.log):
        if not told:
            on_progress({"waiting_for": settings.topic, "log": str(settings.log)})
            told = True
        if stop.wait(POLL_SECONDS):
            return False
    return True


# --- the two queries -----------------------------------------------------------------------------------


def records(spark: SparkSession, settings: PipelineSettings) -> DataFrame:
    """Return the records with what the headers hold as columns of their own."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - PySpark's custom; see session.py

    header = F.map_from_entries("headers")
    return _read(spark, settings).select(
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        F.decode(header["kinesis.shard"], "UTF-8").alias("shard_id"),
        F.decode(header["kinesis.sequence"], "UTF-8").alias("sequence_number"),
        F.decode(header["kinesis.sub_sequence"], "UTF-8").cast("int").alias("sub_sequence_number"),
        F.to_date("timestamp").alias("date"),
        F.hour("timestamp").alias("hour"),
    )


def windows(spark: SparkSession, settings: PipelineSettings) -> DataFrame:
    """Return count, bytes, first and last arrival per event-time window and key group."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - the same

    group = (F.crc32("key") % settings.key_groups).cast("int").alias("key_group")
    return (
        _read(spark, settings)
        .withWatermark("timestamp", f"{settings.watermark_seconds} seconds")
        .groupBy(F.window("timestamp", f"{settings.window_seconds} seconds"), group)
        .agg(
            F.count("*").alias("records"),
            F.sum(F.octet_length("value")).alias("bytes"),
            F.min("timestamp").alias("first_arrival"),
            F.max("timestamp").alias("last_arrival"),
        )
        .select(
            F.col("window.start").alias("window_start"),
            F.col("window.end").alias("window_end"),
            "key_group",
            "records",
            "bytes",
            "first_arrival",
            "last_arrival",
        )
    )


def _read(spark: SparkSession, settings: PipelineSettings) -> DataFrame:
    reader = spark.readStream.format("efo").option("subscribe", settings.topic)
    reader = reader.option("startingOffsets", "earliest").option("includeHeaders", "true")
    if settings.max_records is not None:
        reader = reader.option("maxOffsetsPerTrigger", str(settings.max_records))
    return reader.load(str(settings.log))


def _start(frame: DataFrame, name: str, settings: PipelineSettings) -> StreamingQuery:
    writer = frame.writeStream.format("parquet").queryName(name).outputMode("append")
    writer = writer.option("checkpointLocation", str(settings.checkpoint / name))
    if name == "records":
        writer = writer.partitionBy("date", "hour")
    if settings.available_now:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{settings.trigger_seconds} seconds")
    return writer.start(str(settings.output / name))


def _wait_for_sources(query: StreamingQuery, stop: threading.Event) -> None:
    """Wait until a query has made its source, or has ended.

    All queries of a session share the data source's environment variables, a map without a lock into which Spark
    4.3 writes as it makes each source (PythonStreamingSourceRunner). Two that do so at once can damage it, and then no
    task can be serialized any more: "Illegal size 5 of collection, expected 6". Later ones write what is there already.
    """
    while query.isActive and query.status["message"].startswith("Initializing"):
        if stop.wait(POLL_SECONDS / 4):
            return


# --- watching them -------------------------------------------------------------------------------------


class _Watch:
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
                "watermark": report.get("eventTime", {}).get("watermark"),
                "seconds": report["durationMs"].get("triggerExecution", 0) / 1000,
                "milliseconds": dict(report["durationMs"]),
            }
        )


def _finished_batches(query: StreamingQuery, *, after: int) -> Iterator[dict[str, Any]]:
    """Yield the reports of batches that did something: an idle query repeats its last batch's number."""
    for progress in query.recentProgress:
        report = json.loads(progress.json)
        if report["batchId"] > after and "addBatch" in report["durationMs"]:
            yield report


def _raise_failure(queries: list[StreamingQuery]) -> None:
    for query in queries:
        if not query.isActive and (error := query.exception()) is not None:
            raise SparkError(f"the query {query.name!r} failed: {reason(error)}") from error


def _stop(query: StreamingQuery, seconds: float) -> None:
    """Let the running micro-batch end, then stop the query; a batch that takes too long is done again later."""
    waiting = threading.Event()
    for _ in range(int(seconds / POLL_SECONDS)):
        if not (query.isActive and query.status["isTriggerActive"]):
            break
        waiting.wait(POLL_SECONDS)
    query.stop()
