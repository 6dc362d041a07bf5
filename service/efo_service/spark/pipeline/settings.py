"""The settings of a pipeline run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from efo.errors import ConfigurationError
from efo_service.relay.object_store.url import StoreUrl
from efo_service.spark.pipeline.decoding import Decoding


@dataclass(frozen=True, kw_only=True)
class PipelineSettings:
    """What the pipeline reads and writes, and how.

    `log`: the log's root. `topic`: what to read. `kafka`: options of Spark's Kafka source, to read Kafka instead
    of the log. `jars`: the connector for that, if Spark does not have it. `source_options`: more options, for either
    source. `reader`: prefix of the queries' reader names, for which the log's retention waits; None for no waiting.
    `decoding`: how values are decoded. `deduplicate_seconds`: duplicates of an at-least-once relay are dropped if they
    arrive within this many seconds of event time; 0 for an exactly-once relay.
    `output`, `checkpoint`: directories or URIs, created if needed. `sink_format`, `sink_options`: of Spark's sink.
    `table`: prefix of the table names, to write tables instead of `output`.
    `available_now`: read the existing records and end; else run a micro-batch every `trigger_seconds`.
    `window_seconds`, `watermark_seconds`, `key_groups`: of the windows. `max_records`: per micro-batch.
    `master`, `quick_start`, `spark_options`: of the session that the pipeline starts; not used under spark-submit.
    `stop_seconds`: how long a stop waits for the running micro-batch.
    """

    log: Path | StoreUrl
    topic: str
    output: str
    checkpoint: str
    available_now: bool = False
    trigger_seconds: float = 5.0
    window_seconds: int = 60
    watermark_seconds: int = 60
    key_groups: int = 16
    max_records: int | None = None
    master: str = "local[2]"
    quick_start: bool = False
    stop_seconds: float = 30.0
    kafka: Mapping[str, str] | None = None
    jars: tuple[Path, ...] = ()
    source_options: Mapping[str, str] = field(default_factory=dict)
    reader: str | None = None
    decoding: Decoding = field(default_factory=Decoding)
    deduplicate_seconds: int = 0
    sink_format: str = "parquet"
    sink_options: Mapping[str, str] = field(default_factory=dict)
    table: str | None = None
    spark_options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("trigger_seconds", "window_seconds", "key_groups", "stop_seconds"):
            if getattr(self, name) <= 0:
                raise ConfigurationError(f"pipeline: {name} must be above 0, not {getattr(self, name)}")
        for name in ("watermark_seconds", "deduplicate_seconds"):
            if getattr(self, name) < 0:
                raise ConfigurationError(f"pipeline: {name} must be 0 or more, not {getattr(self, name)}")

    def output_of(self, query: str) -> str:
        """Return the directory or URI of a query's output files."""
        return _join(self.output, query)

    def checkpoint_of(self, query: str) -> str:
        """Return the directory or URI of a query's checkpoint."""
        return _join(self.checkpoint, query)


def _join(base: str, name: str) -> str:
    """Join with a slash, as URIs and POSIX paths do."""
    return f"{base.rstrip('/')}/{name}"
