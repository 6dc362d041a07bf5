import contextlib
import shutil
import threading
import time

import pytest

from efo_service.log.catalog import allocate_partition
from efo_service.log.compaction import FAN_IN, compact
from efo_service.log.disk import DiskFiles
from efo_service.log.maintenance import LogMaintenance
from efo_service.log.reader_offsets import read_readers
from efo_service.log.retention import RetentionRules
from efo_service.log.segments import list_segments
from tests.efo_service.spark.conftest import retry_worker_timeouts

pytestmark = pytest.mark.spark

# Spark: "Structured Streaming + Kafka Integration Guide", the table of the source's columns.
KAFKA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key:string,value:binary>>"
)


@pytest.fixture
def read(spark, log):
    def read(**options: str):
        reader = spark.read.format("efo").options(subscribe=log.topic, **options)
        rows = retry_worker_timeouts(lambda: reader.load(str(log.root)).select("value").collect())
        return sorted(bytes(row.value).decode() for row in rows)

    return read


@pytest.fixture
def drain(spark, log, tmp_path):
    """Run a query to Parquet with AvailableNow; return all values written so far, and the progress of this run."""

    def drain(**options: str):
        progress = []

        def run() -> None:
            frame = spark.readStream.format("efo").options(subscribe=log.topic, **options).load(str(log.root))
            query = (
                frame.selectExpr("cast(value as string) value", "partition", "offset")
                .writeStream.format("parquet")
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start(str(tmp_path / "out"))
            )
            try:
                query.awaitTermination()
            finally:
                progress.extend(query.recentProgress)

        retry_worker_timeouts(run)
        written = spark.read.parquet(str(tmp_path / "out")).select("value").collect()
        return sorted(row.value for row in written), progress

    return drain


def test_the_schema_is_that_of_the_kafka_source(spark, log) -> None:
    log.grow(0, 1)
    reader = spark.read.format("efo").option("subscribe", log.topic)
    with_headers = reader.option("includeHeaders", "true").load(str(log.root))
    kafka = spark.createDataFrame([], KAFKA).schema
    assert with_headers.schema == kafka
    assert reader.option("includeHeaders", "false").load(str(log.root)).schema.fields == kafka.fields[:-1]


def test_a_record_has_all_columns(spark, log) -> None:
    log.grow(3, 1, at=1_700_000_000.125)
    reader = spark.read.format("efo").options(subscribe=log.topic, includeHeaders="true")
    (row,) = (
        reader.load(str(log.root))
        .selectExpr("*", "date_format(timestamp, 'yyyy-MM-dd HH:mm:ss.SSSSSS') as text")
        .collect()
    )
    assert (bytes(row.key), bytes(row.value)) == (b"key-0", b"3/0")
    assert (row.topic, row.partition, row.offset, row.timestampType) == ("orders", 0, 0, 0)
    assert row.text == "2023-11-14 22:13:20.125000"
    assert [(header.key, bytes(header.value)) for header in row.headers] == [
        ("kinesis.stream", b"orders"),
        ("kinesis.shard", b"shardId-000000000003"),
        ("kinesis.sequence", b"100000000000000000000"),
        ("kinesis.sub_sequence", b"0"),
    ]


def test_a_record_without_a_partition_key_has_a_null_key(spark, log, tmp_path) -> None:
    log.put(0, [b"1"], key=None)
    log.put(0, [b"2"])
    log.put(0, [b"3", b"4"], key=None)
    compact(list_segments(log.root / log.topic / "0")[:2])
    expected = [(None, b"1"), (b"key", b"2"), (None, b"3"), (None, b"4")]

    def found(frame):
        rows = retry_worker_timeouts(frame.orderBy("offset").collect)
        return [(row.key and bytes(row.key), bytes(row.value)) for row in rows]

    frame = spark.read.format("efo").options(subscribe=log.topic).load(str(log.root))
    assert found(frame) == expected
    assert retry_worker_timeouts(frame.where("key is null").count) == 3

    def run() -> None:
        stream = spark.readStream.format("efo").options(subscribe=log.topic, startingOffsets="earliest")
        query = (
            stream.load(str(log.root))
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "out"))
        )
        query.awaitTermination()

    retry_worker_timeouts(run)
    assert found(spark.read.parquet(str(tmp_path / "out"))) == expected


def test_a_batch_reads_the_whole_log_or_a_part(log, read) -> None:
    for _ in range(3):
        log.grow(0, 10)
        log.grow(1, 10)
    assert read() == log.values
    part = read(startingOffsets='{"orders": {"0": 15, "1": -2}}', endingOffsets='{"orders": {"0": -1, "1": 2}}')
    assert part == sorted([*(f"0/{number}" for number in range(15, 30)), "1/0", "1/1"])


def test_a_large_batch_is_split_into_tasks_without_loss(spark, log, read) -> None:
    for shard in range(3):
        log.grow(shard, 9_000)
    assert read(minPartitions="3") == log.values
    reader = spark.read.format("efo").options(subscribe=log.topic, minPartitions="3")
    assert reader.load(str(log.root)).rdd.getNumPartitions() == 3


def test_chosen_columns_are_read_alone_and_in_their_order(spark, log) -> None:
    log.grow(3, 2)
    frame = spark.read.format("efo").options(subscribe=log.topic, columns="offset,key").load(str(log.root))
    assert frame.dtypes == [("offset", "bigint"), ("key", "binary")]
    rows = retry_worker_timeouts(frame.collect)
    assert [(row.offset, bytes(row.key)) for row in rows] == [(0, b"key-0"), (1, b"key-1")]


def test_the_position_in_kinesis_may_be_columns_and_filters_are_still_pushed_down(spark, log) -> None:
    log.grow(0, 10)
    log.grow(4, 10)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    reader = spark.read.format("efo").options(subscribe=log.topic, includePosition="true", pushDownFilters="true")
    frame = reader.load(str(log.root)).where("partition = 1 and offset >= 8")
    rows = retry_worker_timeouts(frame.select(frame.columns[-4:]).orderBy("sequence_number").collect)
    assert [tuple(row) for row in rows] == [("orders", "shardId-000000000004", str(10**20 + n), 0) for n in (8, 9)]


def test_a_table_of_the_catalog_has_its_options(spark, log, tmp_path) -> None:
    log.grow(0, 3)
    log.grow(1, 2)
    table = f"orders_{tmp_path.name.replace('-', '_')}"
    spark.sql(
        f"CREATE TABLE {table} USING efo OPTIONS (subscribe 'orders', includePosition 'true')"
        f" TBLPROPERTIES (a = 'b') COMMENT 'read by efo' LOCATION '{log.root}'"
    )
    try:
        (row,) = spark.sql(f"SELECT count(*), min(shard_id) FROM {table} WHERE partition = 1").collect()  # noqa: S608
        assert tuple(row) == (2, "shardId-000000000001")
        end = """'{"orders": {"0": 1}}'"""
        assert spark.sql(f"SELECT * FROM {table} WITH (endingOffsets = {end})").count() == 3  # noqa: S608
        name = f"{table}_copy"
        reader = spark.readStream.option("startingOffsets", "earliest").table(table)
        query = reader.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
        query.awaitTermination()
        assert spark.table(name).count() == 5
        with pytest.raises(Exception, match="is for reading: the relay alone writes the log"):
            spark.sql(f"INSERT INTO {table} SELECT * FROM {table}")  # noqa: S608
    finally:
        spark.sql(f"DROP TABLE {table}")
    assert len(list_segments(log.root / log.topic / "0")) == 1


def test_a_table_with_a_list_of_columns_says_what_to_write(spark, log, tmp_path) -> None:
    log.grow(0, 1)
    table = f"orders_{tmp_path.name.replace('-', '_')}"
    options = f"OPTIONS (subscribe 'orders', columns 'value') LOCATION '{log.root}'"
    spark.sql(f"CREATE TABLE {table} (value BINARY) USING efo {options}")
    try:
        with pytest.raises(Exception, match="CREATE TABLE without the list of columns"):
            spark.table(table).collect()
    finally:
        spark.sql(f"DROP TABLE {table}")


def test_filters_are_pushed_down_when_the_query_and_the_session_say_so(spark, log) -> None:
    log.grow(0, 10)
    log.grow(1, 10)
    reader = spark.read.format("efo").options(subscribe=log.topic, pushDownFilters="true")
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = reader.load(str(log.root)).where("partition = 1 and offset > 6 and offset <= 8").select("value")
        rows = retry_worker_timeouts(frame.collect)
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert sorted(bytes(row.value) for row in rows) == [b"1/7", b"1/8"]


def test_a_topic_without_segments_has_no_rows(log, read) -> None:
    allocate_partition(DiskFiles(log.root), log.topic, log.topic, "shardId-000000000000")
    assert read() == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "nothing"}, "has no topic 'nothing'; it has: orders"),
        ({"startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"maxOffsetsPerTrigger": "3"}, "is for readStream"),
        ({"startingOffsets": "latest"}, "startingOffsets cannot be latest"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, "startingOffsets cannot be latest"),
        ({"startingOffsets": '{"orders": {"7": 0}}'}, "no partition 7 of orders"),
        ({"endingOffsets": '{"orders": {"0": 99}}'}, "offsets 5 to 98 are missing"),
    ],
)
def test_invalid_options_are_rejected(spark, log, options, message) -> None:
    log.grow(0, 5)
    with pytest.raises(Exception, match=message):
        spark.read.format("efo").options(**{"subscribe": log.topic, **options}).load(str(log.root)).count()


def test_a_damaged_segment_fails_the_query_with_its_name(log, read) -> None:
    log.grow(0, 5)
    (segment,) = list_segments(log.root / log.topic / "0")
    content = bytearray(segment.path.read_bytes())
    content[len(content) // 2] ^= 1
    segment.path.write_bytes(content)
    with pytest.raises(Exception, match=f"{segment.path.name} is damaged"):
        read()


def test_a_growing_log_with_new_partitions_is_read_exactly_once(log, drain) -> None:
    log.grow(0, 100)
    assert drain(startingOffsets="earliest")[0] == log.values
    log.grow(0, 50)
    log.grow(1, 30)
    assert drain(startingOffsets="earliest")[0] == log.values
    written, progress = drain(startingOffsets="earliest")
    assert written == log.values
    assert sum(report.numInputRows for report in progress) == 0


def test_a_limited_run_takes_several_batches_and_reads_all(log, drain) -> None:
    log.grow(0, 70)
    log.grow(1, 30)
    written, progress = drain(startingOffsets="earliest", maxOffsetsPerTrigger="40")
    assert written == log.values
    assert [report.numInputRows for report in progress if report.numInputRows] == [40, 40, 20]


def test_a_new_query_starts_at_latest_and_reads_new_partitions_from_their_start(log, drain) -> None:
    log.grow(0, 10)
    assert drain()[0] == []
    log.grow(0, 2)
    log.grow(1, 2)
    assert drain()[0] == ["0/10", "0/11", "1/0", "1/1"]


def test_a_query_that_fails_midway_resumes_without_loss_or_duplicates(spark, log, drain, tmp_path) -> None:
    """The query fails in the middle of a micro-batch, after its offsets were planned and some of it was written."""
    log.grow(0, 10_000)
    log.grow(1, 10_000)
    frame = spark.readStream.format("efo").options(subscribe=log.topic, startingOffsets="earliest")
    query = (
        frame.option("maxOffsetsPerTrigger", "6000")
        .load(str(log.root))
        .selectExpr("if(offset = 7000, raise_error('killed here'), cast(value as string)) value", "partition", "offset")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start(str(tmp_path / "out"))
    )
    with contextlib.suppress(Exception):
        query.awaitTermination()
    assert "killed here" in str(query.exception())
    assert 0 < spark.read.parquet(str(tmp_path / "out")).count() < 20_000
    log.grow(0, 10)
    assert drain(startingOffsets="earliest", maxOffsetsPerTrigger="6000")[0] == log.values


def test_a_query_with_a_reader_name_saves_its_reader_offsets(log, drain) -> None:
    log.grow(0, 70)
    log.grow(1, 30)
    assert drain(startingOffsets="earliest")[0] == log.values
    assert read_readers(DiskFiles(log.root), log.topic) == []
    log.grow(0, 100)
    drain(reader="billing", maxOffsetsPerTrigger="40")
    (reader,) = read_readers(DiskFiles(log.root), log.topic)
    # The batches have 40, 40 and 20 records. The last one is not saved yet: a lower bound.
    assert (reader.name, dict(reader.offsets)) == ("billing", {0: 150, 1: 30})


def test_deleted_segments_fail_a_query_unless_data_loss_is_allowed(log, drain) -> None:
    log.grow(0, 10)
    drain(startingOffsets="earliest")
    for _ in range(3):
        log.grow(0, 10)
    deleted = list_segments(log.root / log.topic / "0")[1]
    deleted.path.unlink()
    with pytest.raises(Exception, match="offsets 10 to 19 are missing"):
        drain()
    assert drain(failOnDataLoss="false")[0] == sorted(f"0/{n}" for n in [*range(10), *range(20, 40)])


def test_a_query_reads_all_records_in_spite_of_compaction_and_retention(log, drain) -> None:
    for count in range(3):
        for _ in range(FAN_IN):
            log.grow(0, 2)
        assert drain(startingOffsets="earliest", reader="r")[0] == log.values, count
        LogMaintenance(DiskFiles(log.root), log.topic, RetentionRules(seconds=1.0)).run(time.time() + 3600)
    log.grow(0, 2)  # its batch saves the reader offsets of the previous one
    assert drain(startingOffsets="earliest", reader="r")[0] == log.values
    LogMaintenance(DiskFiles(log.root), log.topic, RetentionRules(seconds=1.0)).run(time.time() + 3600)
    assert list_segments(log.root / log.topic / "0")[0].base > 0


def test_topics_are_selected_by_pattern_and_partitions_by_assignment(spark, log) -> None:
    log.grow(0, 3)
    log.grow(1, 4)
    other = type(log)(log.root, "orders-eu")
    other.grow(0, 5)

    def count(**options: str) -> int:
        return retry_worker_timeouts(lambda: spark.read.format("efo").options(**options).load(str(log.root)).count())

    assert count(subscribePattern="orders-.*") == 5
    assert count(subscribePattern="orders.*") == 12
    assert count(subscribe="orders,orders-eu") == 12
    assert count(assign='{"orders": [1], "orders-eu": [0]}') == 9
    with pytest.raises(Exception, match="no partition 9 of orders"):
        count(assign='{"orders": [9]}')


def test_a_log_that_was_replaced_fails_the_query(log, drain) -> None:
    log.grow(0, 10)
    drain(startingOffsets="earliest")
    shutil.rmtree(log.root)
    allocate_partition(DiskFiles(log.root), log.topic, log.topic, "shardId-000000000000")
    with pytest.raises(Exception, match="ends at offset 0, but this query has read to 10"):
        drain(startingOffsets="earliest")


def test_a_continuous_query_follows_the_log(spark, log, tmp_path) -> None:
    log.grow(0, 10)
    seen: list[str] = []
    more = threading.Semaphore(0)

    def take(frame, _batch_id) -> None:
        seen.extend(row.value for row in frame.selectExpr("cast(value as string) value").collect())
        more.release()

    reader = spark.readStream.format("efo").options(subscribe=log.topic, startingOffsets="earliest")
    query = (
        reader.load(str(log.root))
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="0 seconds")
        .start()
    )
    try:
        assert more.acquire(timeout=60)
        log.grow(0, 5)
        log.grow(1, 5)
        while sorted(seen) != log.values:
            assert more.acquire(timeout=60)
    finally:
        query.stop()
