"""The settings of the Spark pipeline, [pipeline]. See docs/spark.md."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, model_validator

from efo.deserializers.many import Layer
from efo.errors import ConfigurationError
from efo_service.config.section import Count, LocalPath, Location, Name, Seconds, Section
from efo_service.spark.pipeline.decoding import Decoding

_RESERVED_SOURCE_OPTIONS: Final = {
    "path": "use [relay] directory instead",
    "subscribe": "use [relay] topic or [relay.kafka] topic instead",
    "subscribepattern": "use [relay] topic or [relay.kafka] topic instead",
    "assign": "use [relay] topic or [relay.kafka] topic instead",
    "includeheaders": "remove it, the pipeline always reads headers",
    "reader": "use [pipeline] reader instead",
    "kafka.bootstrap.servers": "use [relay.kafka] bootstrap_servers instead",
    "kafka.isolation.level": "remove it, the pipeline reads only committed records",
}
_RESERVED_SINK_OPTIONS: Final = {
    "path": "use [pipeline] output instead",
    "checkpointlocation": "use [pipeline] checkpoint instead",
}
"""Options that efo sets itself, in lower case as Spark compares them, and what to do instead."""


def _check_source_options(options: dict[str, str]) -> dict[str, str]:
    return _refuse(options, _RESERVED_SOURCE_OPTIONS)


def _check_sink_options(options: dict[str, str]) -> dict[str, str]:
    return _refuse(options, _RESERVED_SINK_OPTIONS)


def _refuse(options: dict[str, str], reserved: dict[str, str]) -> dict[str, str]:
    for name in options:
        if advice := reserved.get(name.lower()):
            raise ValueError(f"{name!r} is set by efo: {advice}")
    return options


SourceOptions = Annotated[dict[str, str], AfterValidator(_check_source_options)]
SinkOptions = Annotated[dict[str, str], AfterValidator(_check_sink_options)]


class PipelineSection(Section):
    """The Spark pipeline that reads the log or Kafka: `efo pipeline`."""

    source: Literal["efo", "kafka"] = Field(
        "efo", description="Source of the pipeline: efo is the embedded log, kafka is the topic of [relay.kafka]."
    )
    jars: LocalPath | None = Field(
        None, description="Directory of jars that Spark loads, such as its Kafka connector.", examples=["connector"]
    )
    source_options: SourceOptions = Field(
        {}, description="More options of Spark's source, such as failOnDataLoss. They override those that efo sets."
    )
    max_records: Count | None = Field(
        None, description="Maximum number of records in a micro-batch. Default: no limit.", examples=[1000000]
    )
    reader: Name = Field(
        "pipeline", description="Reader name of this pipeline, for which the log's retention waits. One per pipeline."
    )
    unwrap: tuple[Layer, ...] = Field(
        (),
        description="Layers around the values, the outermost first, taken off before decode: compression, the header of"
        " a schema registry; json_lines, json_array and cloudwatch_logs make a row of each value.",
    )
    decode: Literal["raw", "json", "avro"] = Field(
        "raw", description="Format of the values. Values that cannot be decoded go to quarantine, with the reason."
    )
    value_schema: str | None = Field(
        None,
        description="Schema of the values: DDL for json, an Avro schema in JSON for avro.",
        examples=["id bigint, price double"],
    )
    older_value_schemas: tuple[str, ...] = Field(
        (),
        description="Avro schemas of earlier values, the newest first. Such values are resolved to value_schema.",
    )
    deduplicate_seconds: Annotated[int, Field(ge=0)] | None = Field(
        None,
        description="Drop duplicates that arrive within this time. Default: a day if source is kafka with"
        " at_least_once, else 0.",
        examples=[86400],
    )
    output: Location = Field(
        "var/parquet",
        validate_default=True,
        description="Directory or URI of the output files, such as s3a://lake/orders.",
    )
    sink_format: str = Field(
        "parquet", min_length=1, description="Format of Spark's sink: parquet, delta, iceberg, ..."
    )
    sink_options: SinkOptions = Field({}, description="Options of Spark's sink.")
    table: str | None = Field(
        None,
        description="Prefix of the names of tables to write, instead of files in output.",
        examples=["lake.kinesis.orders"],
    )
    checkpoint: Location = Field(
        "var/checkpoint",
        validate_default=True,
        description="Directory or URI of Spark's checkpoint. It belongs to the output.",
    )
    trigger_seconds: Seconds = Field(5.0, description="Time between two micro-batches.")
    available_now: bool = Field(default=False, description="Whether to stop after reading the available records.")
    window_seconds: Count = Field(60, description="Length of the event-time windows in which records are counted.")
    watermark_seconds: Count = Field(
        60, description="Watermark: how late a record may be and still count in its window."
    )
    key_groups: Count = Field(16, description="Number of key groups in which records are counted.")
    metrics_port: int = Field(
        0, ge=0, le=65535, description="Port of the pipeline's metrics for Prometheus. 0 serves none."
    )
    spark_options: dict[str, str] = Field(
        {}, description="More configuration of the Spark session. For credentials see docs/spark.md."
    )
    master: str = Field("local[2]", min_length=1, description="Spark's master URL.")
    quick_start: bool = Field(
        default=False,
        description="For short runs: Java uses only its first compiler, which starts sooner but is soon three times"
        " slower.",
    )

    @model_validator(mode="after")
    def _can_decode(self) -> PipelineSection:
        try:
            Decoding(self.decode, self.value_schema, self.unwrap, self.older_value_schemas)
        except ConfigurationError as error:
            raise ValueError(str(error)) from None
        return self

    @model_validator(mode="after")
    def _one_limit(self) -> PipelineSection:
        if self.max_records is not None and "maxoffsetspertrigger" in {name.lower() for name in self.source_options}:
            raise ValueError(
                "max_records and the source option maxOffsetsPerTrigger are the same limit: remove one of them"
            )
        return self
