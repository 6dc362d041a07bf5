"""The settings of the Spark pipeline: the table [pipeline]. What they mean together: docs/spark.md."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, model_validator

from efo.errors import ConfigurationError
from efo_service.config.section import Count, Name, Seconds, Section
from efo_service.spark.pipeline.decoding import Decoding

Place = Annotated[str, Field(min_length=1)]
"""A directory or a URI, for Spark to understand: text, because a Path would make one slash of a URI's two."""

_OF_SOURCE: Final = {
    "path": "use [relay] directory instead",
    "subscribe": "use [relay] topic or [relay.kafka] topic instead",
    "subscribepattern": "use [relay] topic or [relay.kafka] topic instead",
    "assign": "use [relay] topic or [relay.kafka] topic instead",
    "includeheaders": "remove it, the pipeline always reads them",
    "reader": "use [pipeline] reader instead",
    "kafka.bootstrap.servers": "use [relay.kafka] bootstrap_servers instead",
    "kafka.isolation.level": "remove it, only what is committed is read",
}
_OF_SINK: Final = {
    "path": "use [pipeline] output instead",
    "checkpointlocation": "use [pipeline] checkpoint instead",
}
"""The options that are efo's to set, in lower case as Spark compares them, and what to do instead."""


def _check_source_options(options: dict[str, str]) -> dict[str, str]:
    return _refuse(options, _OF_SOURCE)


def _check_sink_options(options: dict[str, str]) -> dict[str, str]:
    return _refuse(options, _OF_SINK)


def _refuse(options: dict[str, str], ours: dict[str, str]) -> dict[str, str]:
    for name in options:
        if advice := ours.get(name.lower()):
            raise ValueError(f"{name!r} is set by efo: {advice}")
    return options


SourceOptions = Annotated[dict[str, str], AfterValidator(_check_source_options)]
SinkOptions = Annotated[dict[str, str], AfterValidator(_check_sink_options)]


class PipelineSettings(Section):
    """The Spark pipeline over the log, or over Kafka: `efo pipeline`."""

    source: Literal["efo", "kafka"] = Field("efo", description="efo: the embedded log; kafka: [relay.kafka]'s topic.")
    jars: Path | None = Field(
        None, description="A directory of jars to give to Spark: its Kafka connector.", examples=["connector"]
    )
    source_options: SourceOptions = Field(
        {}, description="More options of Spark's source, such as failOnDataLoss. They win over efo's own."
    )
    max_records: Count | None = Field(None, description="The most records of a micro-batch.", examples=[1000000])
    reader: Name = Field("pipeline", description="Under this name the log's retention waits for it; one per pipeline.")
    decode: Literal["raw", "json", "avro"] = Field(
        "raw", description="What values are. Those that are not go into quarantine, with the reason."
    )
    value_schema: str | None = Field(
        None, description="For json DDL, for avro Avro's own JSON.", examples=["id bigint, price double"]
    )
    deduplicate_seconds: Annotated[int, Field(ge=0)] | None = Field(
        None,
        description="Drop what comes twice within so long of arrival. Default: a day if the relay is at_least_once.",
        examples=[86400],
    )
    output: Place = Field(
        "var/parquet", description="Where the files are written: a directory, or a URI such as s3a://lake/orders."
    )
    sink_format: str = Field("parquet", min_length=1, description="Spark's sink: parquet, delta, iceberg, ...")
    sink_options: SinkOptions = Field({}, description="Its options.")
    table: str | None = Field(
        None, description="Write tables whose names begin so, not files in output.", examples=["lake.kinesis.orders"]
    )
    checkpoint: Place = Field("var/checkpoint", description="Spark's checkpoint, the same; belongs to the output.")
    trigger_seconds: Seconds = Field(5.0, description="Time between micro-batches.")
    available_now: bool = Field(default=False, description="Read what is there now, then stop.")
    window_seconds: Count = Field(60, description="Length of the aggregates' event-time windows.")
    watermark_seconds: Count = Field(60, description="How late a record may be and still count in its window.")
    key_groups: Count = Field(16, description="Keys are counted in this many groups.")
    metrics_port: int = Field(0, ge=0, le=65535, description="Where Prometheus finds its metrics; 0: nowhere.")
    spark_options: dict[str, str] = Field(
        {}, description="More configuration of Spark's session. Credentials: docs/spark.md."
    )
    master: str = Field("local[2]", min_length=1, description="Spark's master.")
    quick_start: bool = Field(
        default=False,
        description="For short runs: Java's first compiler only. Up some seconds sooner, and soon three times slower.",
    )

    @model_validator(mode="after")
    def _can_decode(self) -> PipelineSettings:
        try:
            Decoding(self.decode, self.value_schema)
        except ConfigurationError as error:
            raise ValueError(str(error)) from None
        return self

    @model_validator(mode="after")
    def _one_limit(self) -> PipelineSettings:
        if self.max_records is not None and "maxoffsetspertrigger" in {name.lower() for name in self.source_options}:
            raise ValueError("max_records and the source option maxOffsetsPerTrigger are one limit: remove either")
        return self
