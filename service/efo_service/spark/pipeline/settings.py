"""The settings of a pipeline run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from efo.checks import check_number
from efo.definitions import check_settings, documented, setting
from efo_service.object_store.url import StoreUrl
from efo_service.spark.pipeline.decoding import Decoding


@documented
@dataclass(frozen=True, kw_only=True)
class PipelineSettings:
    """What the pipeline reads and writes, and how.

    `log`: the log's root. `topic`: what to read. `kafka`: options of Spark's Kafka source, to read Kafka instead of the
    log. `jars`: the connector for that, if Spark does not have it. `decoding`: how values are decoded.
    `stop_seconds`: how long a stop waits for the running micro-batch. Raises ConfigurationError.
    """

    log: Path | StoreUrl
    topic: str
    kafka: Mapping[str, str] | None = None
    jars: tuple[Path, ...] = ()
    decoding: Decoding = field(default_factory=Decoding)
    stop_seconds: float = 30.0
    source_options: Mapping[str, str] = setting(
        {}, "More options of Spark's source, such as failOnDataLoss. They override those that efo sets."
    )
    max_records: int | None = setting(
        None, "Maximum number of records in a micro-batch. Default: no limit.", least=1, example=1_000_000
    )
    reader: str | None = setting(
        "pipeline", "Reader name of this pipeline, for which the log's retention waits. One per pipeline."
    )
    deduplicate_seconds: int | None = setting(
        None,
        "Drop duplicates that arrive within this time. Default: a day if source is kafka with at_least_once, else 0.",
        least=0,
        example=86400,
    )
    output: str = setting("var/parquet", "Directory or URI of the output files, such as s3a://lake/orders.")
    sink_format: str = setting("parquet", "Format of Spark's sink: parquet, delta, iceberg, ...")
    sink_options: Mapping[str, str] = setting({}, "Options of Spark's sink.")
    table: str | None = setting(
        None,
        "Prefix of the names of tables to write, instead of files in output.",
        example="lake.kinesis.orders",
    )
    checkpoint: str = setting("var/checkpoint", "Directory or URI of Spark's checkpoint. It belongs to the output.")
    trigger_seconds: float = setting(5.0, "Time between two micro-batches.", above=0)
    available_now: bool = setting(False, "Whether to stop after reading the available records.")
    window_seconds: int = setting(60, "Length of the event-time windows in which records are counted.", least=1)
    watermark_seconds: int = setting(60, "Watermark: how late a record may be and still count in its window.", least=0)
    key_groups: int = setting(16, "Number of key groups in which records are counted.", least=1)
    spark_options: Mapping[str, str] = setting(
        {}, "More configuration of the Spark session. For credentials see docs/spark.md."
    )
    master: str = setting("local[2]", "Spark's master URL; not used under spark-submit.")

    def __post_init__(self) -> None:
        check_settings(self)
        check_number("stop_seconds", self.stop_seconds, unit=" seconds")

    def output_of(self, query: str) -> str:
        """Return the directory or URI of a query's output files."""
        return _join(self.output, query)

    def checkpoint_of(self, query: str) -> str:
        """Return the directory or URI of a query's checkpoint."""
        return _join(self.checkpoint, query)


def _join(base: str, name: str) -> str:
    """Join with a slash, as URIs and POSIX paths do."""
    return f"{base.rstrip('/')}/{name}"
