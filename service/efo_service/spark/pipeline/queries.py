"""The pipeline's queries, from source to sink.

records      every decoded record; its position in Kinesis, from the headers, is in separate columns
quarantine   every record that could not be decoded, with the reason; not for raw values without layers
windows      count, bytes, first and last arrival per event-time window and key group
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from efo_service.object_store.url import StoreUrl
from efo_service.spark.pipeline.decoding import decode, decoded_rows, failed_rows
from efo_service.spark.pipeline.progress import ROWS, WRITTEN
from efo_service.spark.pipeline.settings import PipelineSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

RECORD_ID: Final = ["shard_id", "sequence_number", "sub_sequence_number"]
"""The columns that identify a record within its stream, permanently (docs/sinks.md)."""
PARTITIONS: Final = ("date", "hour")
"""The columns of `records` by which its files are partitioned."""
_HEADERS: Final = ("kinesis.shard", "kinesis.sequence", "kinesis.sub_sequence")


def make_frames(spark: SparkSession, settings: PipelineSettings) -> dict[str, DataFrame]:
    """Return the queries that the settings require, by name, in the order to start them."""
    frames = {"records": records(spark, settings)}
    if settings.decoding.may_fail:
        frames["quarantine"] = quarantine(spark, settings)
    frames["windows"] = windows(spark, settings)
    return frames


def records(spark: SparkSession, settings: PipelineSettings) -> DataFrame:
    """Return the decoded records, each once."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - PySpark's custom; see session.py

    frame = _deduplicate(_read(spark, settings, "records"), settings, settings.deduplicate_seconds or 0).drop("headers")
    frame = decoded_rows(decode(frame, settings.decoding), settings.decoding)
    return frame.withColumns({"date": F.to_date("timestamp"), "hour": F.hour("timestamp")})


def quarantine(spark: SparkSession, settings: PipelineSettings) -> DataFrame:
    """Return the records that could not be decoded, unchanged, with the reasons."""
    frame = _deduplicate(_read(spark, settings, "quarantine"), settings, settings.deduplicate_seconds or 0)
    return failed_rows(decode(frame, settings.decoding), frame.columns)


def windows(spark: SparkSession, settings: PipelineSettings) -> DataFrame:
    """Return count, bytes, first and last arrival per event-time window and key group."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - the same

    frame = _read(spark, settings, "windows")
    if settings.deduplicate_seconds:
        # Not `deduplicate_seconds`: this watermark also decides when a window is written.
        frame = _deduplicate(frame, settings, settings.watermark_seconds)
    else:
        frame = frame.withWatermark("timestamp", f"{settings.watermark_seconds} seconds")
    group = (F.crc32("key") % settings.key_groups).cast("int").alias("key_group")
    return (
        frame.groupBy(F.window("timestamp", f"{settings.window_seconds} seconds"), group)
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


def source_options(settings: PipelineSettings, query: str) -> dict[str, str]:
    """Return the options of a query's source. `source_options` override the others; names are case-insensitive."""
    defaults = {"startingOffsets": "earliest", "includeHeaders": "true"}
    if settings.max_records is not None:
        defaults["maxOffsetsPerTrigger"] = str(settings.max_records)
    if settings.kafka is not None:
        defaults |= settings.kafka
    else:
        defaults["subscribe"] = settings.topic
        if isinstance(settings.log, StoreUrl) and settings.log.options:
            defaults["storeOptions"] = json.dumps(dict(settings.log.options))
        if settings.reader is not None:
            defaults["reader"] = f"{settings.reader}-{query}"
    overridden = {name.lower() for name in settings.source_options}
    return {
        **{name: value for name, value in defaults.items() if name.lower() not in overridden},
        **settings.source_options,
    }


def _read(spark: SparkSession, settings: PipelineSettings, query: str) -> DataFrame:
    """Read the source; put the record's shard, sequence and sub-sequence number into columns."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - the same

    source = spark.readStream.options(**source_options(settings, query))
    frame = source.format("efo").load(str(settings.log)) if settings.kafka is None else source.format("kafka").load()
    # The map holds only the headers that are needed: tags may repeat a key, which a map does not allow.
    needed = F.map_from_entries(F.filter("headers", lambda header: header["key"].isin(*_HEADERS)))
    return frame.withColumn("_efo_headers", needed).select(
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "headers",
        F.decode(F.col("_efo_headers")["kinesis.shard"], "UTF-8").alias("shard_id"),
        F.decode(F.col("_efo_headers")["kinesis.sequence"], "UTF-8").alias("sequence_number"),
        F.decode(F.col("_efo_headers")["kinesis.sub_sequence"], "UTF-8").cast("int").alias("sub_sequence_number"),
    )


def _deduplicate(frame: DataFrame, settings: PipelineSettings, seconds: int) -> DataFrame:
    """Drop the duplicates of an at-least-once relay, and records that are more than `seconds` of event time late."""
    if not settings.deduplicate_seconds:
        return frame
    return frame.withWatermark("timestamp", f"{seconds} seconds").dropDuplicatesWithinWatermark(RECORD_ID)


def start_query(frame: DataFrame, name: str, settings: PipelineSettings) -> StreamingQuery:
    """Start a query that writes to the sink, with its own checkpoint. Its reports tell how many rows it wrote."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - the same

    observed = frame.observe(WRITTEN, F.count("*").alias(ROWS))
    writer = observed.writeStream.format(settings.sink_format).queryName(name).outputMode("append")
    writer = writer.options(**settings.sink_options).option("checkpointLocation", settings.checkpoint_of(name))
    if name == "records":
        writer = writer.partitionBy(*PARTITIONS)
    if settings.available_now:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{settings.trigger_seconds} seconds")
    if settings.table is not None:
        return writer.toTable(f"{settings.table}_{name}")
    return writer.start(settings.output_of(name))
