"""The settings of the Spark pipeline, [pipeline]. See docs/spark.md."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, model_validator

from efo.deserializers.many import Layer
from efo.errors import ConfigurationError
from efo_service.config.section import LocalPath, Location, Name, Section, defined
from efo_service.spark.pipeline.decoding import Decoding
from efo_service.spark.pipeline.settings import PipelineSettings

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


_of_pipeline = partial(defined, PipelineSettings)


class PipelineSection(Section):
    """The Spark pipeline that reads the log or Kafka: `efo pipeline`."""

    source: Literal["efo", "kafka"] = Field(
        "efo", description="Source of the pipeline: efo is the embedded log, kafka is the topic of [relay.kafka]."
    )
    jars: LocalPath | None = Field(
        None, description="Directory of jars that Spark loads, such as its Kafka connector.", examples=["connector"]
    )
    source_options: SourceOptions = _of_pipeline("source_options")
    max_records: int | None = _of_pipeline("max_records")
    reader: Name = _of_pipeline("reader")
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
    deduplicate_seconds: int | None = _of_pipeline("deduplicate_seconds")
    output: Location = _of_pipeline("output", validate_default=True)
    sink_format: Annotated[str, Field(min_length=1)] = _of_pipeline("sink_format")
    sink_options: SinkOptions = _of_pipeline("sink_options")
    table: str | None = _of_pipeline("table")
    checkpoint: Location = _of_pipeline("checkpoint", validate_default=True)
    trigger_seconds: float = _of_pipeline("trigger_seconds")
    available_now: bool = _of_pipeline("available_now")
    window_seconds: int = _of_pipeline("window_seconds")
    watermark_seconds: int = _of_pipeline("watermark_seconds")
    key_groups: int = _of_pipeline("key_groups")
    metrics_port: int = Field(
        0, ge=0, le=65535, description="Port of the pipeline's metrics for Prometheus. 0 serves none."
    )
    spark_options: dict[str, str] = _of_pipeline("spark_options")
    master: Annotated[str, Field(min_length=1)] = _of_pipeline("master")

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
