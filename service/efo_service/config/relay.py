"""Settings of the relay: its sink, the embedded log, and when to commit."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, model_validator

from efo.errors import ConfigurationError
from efo.settings import ConsumerSettings
from efo_service.config.kafka import KafkaSettings
from efo_service.config.section import Count, LocalPath, LogDirectory, Name, Seconds, Section, defined
from efo_service.object_store.url import StoreUrl, log_root, parse_url
from efo_service.relay.plugins import BUILT_IN, check_sink, owns_positions


def _check_sink(value: str) -> str:
    try:
        check_sink(value)
    except ConfigurationError as error:
        raise ValueError(str(error)) from None
    return value


SinkName = Annotated[str, AfterValidator(_check_sink)]

_COMMIT_SECONDS: Final = 0.05
_STORE_COMMIT_SECONDS: Final = 5.0
_MAINTENANCE_SECONDS: Final = 30.0
_STORE_MAINTENANCE_SECONDS: Final = 300.0


class RelaySettings(Section):
    """The sink, and when to commit. The first limit that is reached triggers a commit."""

    sink: SinkName = Field(
        "log",
        description="Sink: log (the embedded log that Spark reads, exactly once), jsonl (at least once), kafka, or one"
        " of another package.",
        examples=["log", "jsonl", "kafka"],
    )
    options: dict[str, str | int | float | bool] = Field(
        default={}, description="Options of a sink of another package, which it documents."
    )
    directory: LogDirectory = Field(
        Path("var/log"),
        validate_default=True,
        description="Root of the embedded log: a directory, or s3://bucket/prefix, gs://bucket/prefix,"
        " az://container/prefix.",
        examples=["s3://logs/efo"],
    )
    store_options: dict[str, str | int | float | bool] = Field(
        default={},
        description="Options of the object store of such a URL, such as endpoint and region. Never credentials: they"
        " come from the environment.",
    )
    topic: Name | None = Field(
        None, description="Topic that records are written to. Default: the stream's name.", examples=["orders"]
    )
    commit_records: Count = Field(10_000, description="Commit after this many records.")
    commit_bytes: Count = Field(
        4 * 1024 * 1024, description="Commit after this many bytes as the sink writes them, headers included."
    )
    commit_seconds: Seconds | None = Field(
        None,
        description="Commit this long after the first uncommitted record; up to a second later with many shards, for"
        " a shard that lags, or while more of it has arrived. Default: 0.05, and 5 for a log on an object store, where"
        " each commit has a price.",
        examples=[0.05],
    )
    retention_hours: Seconds | None = Field(
        None, description="How long the log keeps a record after its commit. Default: forever.", examples=[72.0]
    )
    retention_bytes: Count | None = Field(
        None,
        description="Maximum size of a topic of the log. Above it, the oldest records expire. Default: no limit.",
        examples=[107374182400],
    )
    maintenance_seconds: Seconds | None = Field(
        None,
        description="Time between two maintenance passes. A pass compacts segments, and deletes expired ones that all"
        " readers have read. Default: 30, and 300 for a log on an object store.",
        examples=[30.0],
    )
    jsonl_file: LocalPath = Field(
        Path("-"),
        description="File of the JSON lines, one per worker. - is stdout; efo's own log then goes to stderr.",
    )
    jsonl_encoding: Literal["base64", "utf-8"] = Field(
        "base64",
        description="Encoding of values: base64 for any bytes, or utf-8, which refuses values that are not UTF-8.",
    )
    jsonl_rotate_bytes: Count | None = Field(
        None,
        description="Move jsonl_file to NAME.TIME when it has this size, and begin a new one. Default: never. A file"
        " that another program moves or empties is noticed in any case.",
        examples=[1073741824],
    )
    jsonl_rotate_seconds: Seconds | None = Field(
        None, description="The same, this long after the file was opened. Default: never.", examples=[3600.0]
    )
    jsonl_compress: bool = Field(default=True, description="Whether to compress files that efo has rotated, by gzip.")
    dead_letters: Name | None = Field(
        None,
        description="Topic (of Kafka or the log) for records that the sink refuses.",
        examples=["refused"],
    )
    on_refused_record: Literal["dead_letter", "skip", "isolate", "stop"] | None = Field(
        None,
        description="What a record that the sink can never write does: it goes to dead_letters, is skipped, isolates"
        " its shard or stops the service (R11). Default: dead_letter if dead_letters is set, else isolate.",
        examples=["isolate"],
    )
    max_record_age_seconds: float | None = defined(ConsumerSettings, "max_record_age_seconds")
    old_records: Literal["drop", "dead_letter"] = Field(
        "drop", description="Whether records older than max_record_age_seconds are dropped, or go to dead_letters."
    )
    skip_when_behind_seconds: float | None = defined(ConsumerSettings, "skip_when_behind_seconds")
    on_sink_error: Literal["stop", "isolate"] = Field(
        "stop",
        description="What a permanent error of the sink for one shard does: stop the service, or isolate the shard"
        " (R11). A shard that another worker has opened since (sink_fenced) is always isolated.",
    )
    retry_seconds: Seconds | None = Field(
        None,
        description="How long a sink that fails in a way that passes is tried again: a full disk, an object store that"
        " does not answer. Then on_sink_error decides. Default: until it works. Kafka has its own retry_seconds.",
        examples=[600.0],
    )
    trace_extractor: str | None = Field(
        None,
        description="Function that extracts a record's W3C trace context for its headers, as package.module:function.",
        examples=["efo_service.relay.mapping:from_tags"],
    )
    transform: str | None = Field(
        None,
        description="Function that drops, changes or routes each record before the sink gets it, as"
        " package.module:function. It returns the record, a changed one, a pair of a record and one of [relay.kafka]"
        " routes, or None. A record on which it fails is refused: see on_refused_record.",
        examples=["my_package.relay:mask"],
    )
    kafka: KafkaSettings = KafkaSettings()

    @property
    def longest_retry(self) -> float:
        """How long a sink is tried again, in seconds."""
        return inf if self.retry_seconds is None else self.retry_seconds

    @property
    def refused_record_action(self) -> Literal["dead_letter", "skip", "isolate", "stop"]:
        """What happens to a record that the sink can never write."""
        return self.on_refused_record or ("isolate" if self.dead_letters is None else "dead_letter")

    @property
    def writes_to_stdout(self) -> bool:
        """Whether records are written to stdout, which must then contain nothing else."""
        return self.sink == "jsonl" and str(self.jsonl_file) == "-"

    @model_validator(mode="after")
    def _has_options_for_a_sink(self) -> RelaySettings:
        if self.options and self.sink in BUILT_IN:
            raise ValueError(f'options are for sinks of other packages: sink = "{self.sink}" has none, remove them')
        return self

    @model_validator(mode="after")
    def _has_a_place_for_dead_letters(self) -> RelaySettings:
        if self.on_refused_record == "dead_letter" and self.dead_letters is None:
            raise ValueError('on_refused_record = "dead_letter" needs dead_letters: the name of a topic')
        if self.old_records == "dead_letter" and (self.dead_letters is None or self.max_record_age_seconds is None):
            raise ValueError(
                'old_records = "dead_letter" needs max_record_age_seconds, and dead_letters: the name of a topic'
            )
        if self.on_refused_record not in (None, "dead_letter") and self.dead_letters is not None:
            raise ValueError(
                f'dead_letters is never used with on_refused_record = "{self.on_refused_record}": remove one of them'
            )
        return self

    @property
    def commit_interval(self) -> float:
        """How long after its first record a commit is due, in seconds."""
        if self.sink == "kafka":
            return self.kafka.commit_seconds
        default = _STORE_COMMIT_SECONDS if self.sink == "log" and self.is_on_object_store else _COMMIT_SECONDS
        return self.commit_seconds or default

    @property
    def is_on_object_store(self) -> bool:
        """Whether the embedded log is on an object store."""
        return isinstance(self.directory, str)

    @property
    def log_root(self) -> Path | StoreUrl:
        """The root of the embedded log."""
        return parse_url(self.directory, self.store_options) if isinstance(self.directory, str) else self.directory

    @property
    def maintenance_interval(self) -> float:
        """Seconds between two maintenance passes of the embedded log."""
        default = _STORE_MAINTENANCE_SECONDS if self.is_on_object_store else _MAINTENANCE_SECONDS
        return self.maintenance_seconds or default

    @model_validator(mode="after")
    def _has_options_for_a_store(self) -> RelaySettings:
        try:
            log_root(str(self.directory), self.store_options)
        except ConfigurationError as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def owns_positions(self) -> bool:
        """Whether the sink keeps the position of each shard, which wins over the checkpoint (rule R12)."""
        if self.sink not in BUILT_IN:
            return owns_positions(self.sink)
        return self.sink == "log" or (self.sink == "kafka" and self.kafka.delivery == "exactly_once")
