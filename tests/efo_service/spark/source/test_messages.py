"""What a user sees of a query that fails: one line of efo's, after Spark's own words."""

from __future__ import annotations

import json

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from efo.errors import ConfigurationError
from efo_service.relay.errors import TopicNotFoundError
from efo_service.spark.source.data_source import EfoDataSource
from efo_service.spark.source.options import COLUMNS
from tests.efo_service.spark.conftest import retry_worker_timeouts

CREATE = "[PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source instance: efo.errors.ConfigurationError: "
WRITE = "[PYTHON_DATA_SOURCE_ERROR] Failed to initialize Python data source writer: efo.errors.ConfigurationError: "
END = "\n SQLSTATE: 38000"
SCHEMA = StructType([StructField(name, BinaryType()) for name in COLUMNS[:-1]])


@pytest.mark.parametrize("options", [{}, {"nonsense": "1"}, {"path": "ftp://host/log", "checkpointLocation": "/x"}])
def test_a_write_is_refused_whatever_its_options_are(options) -> None:
    source = EfoDataSource(options)
    for writer in (source.writer, source.streamWriter):
        with pytest.raises(ConfigurationError, match=r"the relay alone writes the log.*another sink"):
            writer(SCHEMA, False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"subscribe": "orders", "endingOffsets": "latest"}, "endingOffsets is for read, not for readStream"),
        ({"subscribe": "orders", "columns": "key"}, "has the columns key"),
    ],
)
def test_the_first_call_of_a_stream_reader_raises_what_is_wrong(log, options, message) -> None:
    """Spark hides an error of streamReader itself."""
    log.grow(0, 1)
    source = EfoDataSource({"path": str(log.root), **options})
    calls = [
        lambda: source.streamReader(SCHEMA).getDefaultReadLimit(),
        lambda: source.streamReader(SCHEMA).prepareForTriggerAvailableNow(),
        lambda: source.streamReader(SCHEMA).initialOffset(),
        lambda: source.streamReader(SCHEMA).latestOffset({}, None),
        lambda: source.streamReader(SCHEMA).partitions({}, {}),
    ]
    for call in calls:
        with pytest.raises(ConfigurationError, match=message):
            call()


def test_a_missing_topic_fails_before_the_query_starts(log) -> None:
    log.grow(0, 1)
    with pytest.raises(TopicNotFoundError, match="it has: orders"):
        EfoDataSource({"path": str(log.root), "subscribe": "payments"}).schema()


def test_a_relative_path_is_reported_to_be_one(monkeypatch, tmp_path) -> None:
    """Under Spark Connect it is relative to the directory of the server."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TopicNotFoundError, match=f"no such directory in {tmp_path}, where a relative path begins"):
        EfoDataSource({"path": "var/log", "subscribe": "orders"}).schema()


def message_of(work) -> str:
    """Return all that a user sees of the exception."""
    with pytest.raises(Exception) as raised:  # noqa: PT011 - whatever Spark raises
        retry_worker_timeouts(work)
    return str(raised.value)


@pytest.mark.spark
def test_an_error_is_one_line_for_the_user(spark, log, tmp_path) -> None:
    log.grow(0, 5)
    reader = spark.read.format("efo").option("subscribe", log.topic)
    assert message_of(lambda: reader.option("startingOffset", "earliest").load(str(log.root))) == (
        f"{CREATE}format(\"efo\") has no option 'startingoffset': did you mean startingOffsets?{END}"
    )
    ended = spark.read.format("efo").options(subscribe=log.topic, endingOffsets='{"orders": {"0": 7}}')
    assert message_of(lambda: ended.load(str(log.root)).collect()) == (
        "An exception was thrown from the Python worker:\nefo_service.relay.errors.SegmentMissingError: offsets 5 to 6"
        f" are missing in {log.root}/orders/0: restore their segments, or read without these records with"
        " failOnDataLoss=false (without Spark: allow_gaps=True, --allow-gaps)"
    )
    writer = spark.range(1).write.format("efo").mode("append")
    assert message_of(lambda: writer.save(str(tmp_path))) == (
        f'{WRITE}format("efo") is for reading: the relay alone writes the log, since each record has its position in'
        f' Kinesis. Write to another sink, such as format("kafka") or format("parquet"){END}'
    )


@pytest.mark.spark
def test_a_checkpoint_of_another_source_fails_in_one_line(spark, log, tmp_path) -> None:
    """The checkpoint is as Spark 4.3 writes that of a query which reads files."""
    log.grow(0, 5)
    checkpoint = tmp_path / "checkpoint"
    for directory in ("offsets", "commits"):
        (checkpoint / directory).mkdir(parents=True)
    metadata = {"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {}}
    (checkpoint / "offsets" / "0").write_text(f'v1\n{json.dumps(metadata)}\n{{"logOffset":0}}')
    (checkpoint / "metadata").write_text(json.dumps({"id": "6ceca40f-eb48-4053-838a-8cfcdd190313"}))
    (checkpoint / "commits" / "0").write_text('v1\n{"nextBatchWatermarkMs":0}')

    def run() -> None:
        frame = spark.readStream.format("efo").option("subscribe", log.topic).load(str(log.root))
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()

    message = message_of(run)
    assert "Traceback" not in message
    assert (
        'latestOffset: efo.errors.ConfigurationError: the checkpoint of this query has no offsets of format("efo"), but'
        ' {"logOffset": 0}: a source of files, such as text or parquet, wrote it. Set a checkpointLocation of its own'
        " for this query, or read what the checkpoint belongs to\n SQLSTATE: 38000"
    ) in message
