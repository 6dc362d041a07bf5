"""The pipeline's queries, from their source to their sink.

records      every record, decoded, with what its headers hold as columns of its own
quarantine   those whose values could not be decoded, with the reason; only where values are decoded
windows      per event-time window and key group: count, bytes, first and last arrival
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from efo_service.spark.pipeline.decoding import bad, decode, good
from efo_service.spark.pipeline.settings import PipelineSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PLACE: Final = ["shard_id", "sequence_number", "sub_sequence_number"]
"""What names a record for ever (docs/mapping.md), within its stream."""
_HEADERS: Final = ("kinesis.shard", "kinesis.sequence", "kinesis.sub_sequence")


def frames(spark: SparkSession, settings: PipelineSettings) -> dict[str, DataFrame]:
    """Return the queries that the settings ask for, by name, in the order to start them."""
    made = {"records": records(spark, settings)}
    if settings.decoding.format != "raw":
        made["quarantine"] = quarantine(spark, settings)
    made["windows"] = windows(spark, settings)
    return made


def records(spark: SparkSession, settings: PipelineSettings) -> DataFrame:
    """Return the records that could be decoded, each once."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - PySpark's custom; see session.py

    frame = _once(_read(spark, settings, "records"), settings, settings.deduplicate_seconds).drop("headers")
    frame = good(decode(frame, settings.decoding), settings.decoding)
    return frame.withColumns({"date": F.to_date("timestamp"), "hour": F.hour("timestamp")})


def quarantine(spark: SparkSession, settings: PipelineSettings) -> DataFrame:
    """Return the records that could not be decoded, as they came, each with its reason."""
    frame = _once(_read(spark, settings, "quarantine"), settings, settings.deduplicate_seconds)
    return bad(decode(frame, settings.decoding), frame.columns)


def windows(spark: SparkSession, settings: PipelineSettings) -> DataFrame:
    """Return count, bytes, first and last arrival per event-time window and key group."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - the same

    frame = _read(spark, settings, "windows")
    if settings.deduplicate_seconds:
        # Not the time of the other queries: a window is written only when all of it is over.
        frame = _once(frame, settings, settings.watermark_seconds)
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
    """Return the options of a query's source: ours, unless the settings' own say otherwise, in whatever case."""
    ours = {"startingOffsets": "earliest", "includeHeaders": "true"}
    if settings.max_records is not None:
        ours["maxOffsetsPerTrigger"] = str(settings.max_records)
    if settings.kafka is not None:
        ours |= settings.kafka
    else:
        ours["subscribe"] = settings.topic
        if settings.reader is not None:
            ours["reader"] = f"{settings.reader}-{query}"
    said = {name.lower() for name in settings.source_options}
    return {**{name: value for name, value in ours.items() if name.lower() not in said}, **settings.source_options}


def _read(spark: SparkSession, settings: PipelineSettings, query: str) -> DataFrame:
    """Read the source, and give the record's place in Kinesis columns of its own."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - the same

    source = spark.readStream.options(**source_options(settings, query))
    frame = source.format("efo").load(str(settings.log)) if settings.kafka is None else source.format("kafka").load()
    # Tags may come twice, and a map must not have a key twice: only the headers that are needed go into it.
    header = F.map_from_entries(F.filter("headers", lambda one: one["key"].isin(*_HEADERS)))
    return frame.withColumn("_efo_headers", header).select(
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


def _once(frame: DataFrame, settings: PipelineSettings, seconds: int) -> DataFrame:
    """Drop what an at-least-once relay has put twice. What comes later than `seconds` of event time is dropped too."""
    if not settings.deduplicate_seconds:
        return frame
    return frame.withWatermark("timestamp", f"{seconds} seconds").dropDuplicatesWithinWatermark(PLACE)


def start(frame: DataFrame, name: str, settings: PipelineSettings) -> StreamingQuery:
    """Start a query into the sink, with a checkpoint of its own."""
    writer = frame.writeStream.format(settings.sink_format).queryName(name).outputMode("append")
    writer = writer.options(**settings.sink_options).option("checkpointLocation", settings.checkpoint_of(name))
    if name == "records":
        writer = writer.partitionBy("date", "hour")
    if settings.available_now:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{settings.trigger_seconds} seconds")
    if settings.table is not None:
        return writer.toTable(f"{settings.table}_{name}")
    return writer.start(settings.output_of(name))
