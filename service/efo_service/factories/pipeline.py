"""The settings of the Spark pipeline, from the configuration."""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from efo.definitions import definition_of
from efo_service.config.settings import Settings
from efo_service.factories.sinks import kafka_options
from efo_service.spark.pipeline.decoding import Decoding
from efo_service.spark.pipeline.kafka import jars, reader_options
from efo_service.spark.pipeline.settings import PipelineSettings

DAY: Final = 86_400


def pipeline_settings(settings: Settings, *, available_now: bool | None = None) -> PipelineSettings:
    """Return the settings of [pipeline]. `available_now` overrides [pipeline]'s own. Raises ConfigurationError."""
    spark, kafka = settings.pipeline, settings.relay.kafka
    from_kafka = spark.source == "kafka"
    chosen = {
        one.name: getattr(spark, one.name)
        for one in fields(PipelineSettings)
        if definition_of(one) is not None  # the others are made of several settings
    }
    if spark.deduplicate_seconds is None:
        chosen["deduplicate_seconds"] = DAY if from_kafka and kafka.delivery == "at_least_once" else 0
    if available_now is not None:
        chosen["available_now"] = available_now
    return PipelineSettings(
        log=settings.relay.log_root,
        topic=settings.topic,
        kafka=reader_options(kafka_options(kafka), settings.topic) if from_kafka else None,
        jars=jars(spark.jars),
        decoding=Decoding(spark.decode, spark.value_schema, spark.unwrap, spark.older_value_schemas),
        **chosen,
    )
