"""What the pipeline reads, makes and keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from efo.errors import ConfigurationError
from efo_service.spark.pipeline.decoding import Decoding


@dataclass(frozen=True, kw_only=True)
class PipelineSettings:
    """What the pipeline reads, makes and keeps.

    `log`: the log's directory. `topic`: what to read. `kafka`: the options of Spark's Kafka source, to read that
    instead of the log; `jars`: its connector, where Spark does not have it. `source_options`: more for either source.
    `reader`: under this name the queries hold the log's retention back; None to hold nothing.
    `decoding`: what the values are. `deduplicate_seconds`: records that an at-least-once relay has put twice are
    dropped, if they come within so long of event time; 0 for a relay that is exactly-once.
    `output`, `checkpoint`: directories or URIs, made if need be. `sink_format`, `sink_options`: of Spark's sink; with
    `table` its rows go into tables whose names begin so, instead of into `output`.
    `available_now`: read what is there and end; else run, a micro-batch every `trigger_seconds`.
    `window_seconds`, `watermark_seconds`, `key_groups`: the windows. `max_records`: per micro-batch.
    `master`, `quick_start`, `spark_options`: of a session that is started for it; spark-submit has its own.
    `stop_seconds`: how long a stop waits for the running micro-batch.
    """

    log: Path
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
                raise ConfigurationError(f"pipeline: {name} is {getattr(self, name)}, below 0")

    def output_of(self, query: str) -> str:
        """Return where a query's files are written."""
        return _within(self.output, query)

    def checkpoint_of(self, query: str) -> str:
        """Return where a query's checkpoint is."""
        return _within(self.checkpoint, query)


def _within(place: str, name: str) -> str:
    """Join with one slash: URIs know no other, and neither do the paths of where Spark runs."""
    return f"{place.rstrip('/')}/{name}"
