"""The settings of the Spark pipeline, from the configuration."""

from __future__ import annotations

from typing import Final

from efo_service.config.settings import Settings
from efo_service.factories.kafka import kafka_options
from efo_service.spark.pipeline.decoding import Decoding
from efo_service.spark.pipeline.kafka import jars, reader_options
from efo_service.spark.pipeline.settings import PipelineSettings

DAY: Final = 86_400


def pipeline_settings(settings: Settings, *, available_now: bool | None = None) -> PipelineSettings:
    """Return the settings of [pipeline]. `available_now` overrides [pipeline]'s own. Raises ConfigurationError."""
    spark, kafka = settings.pipeline, settings.relay.kafka
    from_kafka = spark.source == "kafka"
    default_deduplicate = 0 if not from_kafka or kafka.delivery == "exactly_once" else DAY
    return PipelineSettings(
        log=settings.relay.log_root,
        topic=settings.topic,
        kafka=reader_options(kafka_options(kafka), settings.topic) if from_kafka else None,
        jars=jars(spark.jars),
        source_options=spark.source_options,
        max_records=spark.max_records,
        reader=spark.reader,
        decoding=Decoding(spark.decode, spark.value_schema, spark.unwrap, spark.older_value_schemas),
        deduplicate_seconds=default_deduplicate if spark.deduplicate_seconds is None else spark.deduplicate_seconds,
        output=spark.output,
        sink_format=spark.sink_format,
        sink_options=spark.sink_options,
        table=spark.table,
        checkpoint=spark.checkpoint,
        available_now=spark.available_now if available_now is None else available_now,
        trigger_seconds=spark.trigger_seconds,
        window_seconds=spark.window_seconds,
        watermark_seconds=spark.watermark_seconds,
        key_groups=spark.key_groups,
        master=spark.master,
        quick_start=spark.quick_start,
        spark_options=spark.spark_options,
    )
