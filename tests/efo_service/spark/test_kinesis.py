"""format("kinesis") in Spark: one run of AvailableNow on a fake Kinesis. Found without registration."""

from __future__ import annotations

from collections import Counter

import pytest

from efo.testing.thread import FakeKinesisThread
from tests.efo_service.spark.conftest import retry_worker_timeouts

pytestmark = pytest.mark.spark


def run_available_now(spark, fake, path) -> None:
    """Run a query on the stream to its present end: its rows are in `path / "out"`."""

    def run() -> None:
        frame = (
            spark.readStream.format("kinesis")
            .option("stream", "orders")
            .option("region", "us-east-1")
            .option("endpoint", fake.url)
            .option("caFile", fake.ca_file)
            .load(str(path / "log"))
        )
        query = (
            frame.selectExpr("cast(key as string) key", "cast(cast(value as string) as int) value")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(path / "out"))
        )
        query.awaitTermination()

    retry_worker_timeouts(run)


def test_a_run_of_available_now_lands_every_record_once(spark, tmp_path) -> None:
    with FakeKinesisThread() as fake:
        fake.create_stream("orders", shards=2)
        fake.put_many("orders", [(f"key-{number % 7}", b"%d" % number) for number in range(300)])
        fake.split("orders", fake.open_shards("orders")[0])
        fake.put_many("orders", [(f"key-{number % 7}", b"%d" % number) for number in range(300, 400)])

        run_available_now(spark, fake, tmp_path)
        rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert Counter(row.value for row in rows) == Counter(range(400))


def test_a_query_goes_on_while_the_stream_is_switched_to_auto_and_back(spark, tmp_path) -> None:
    with FakeKinesisThread() as fake:
        fake.create_stream("orders", shards=2, distribution="USER_PARTITION_KEY")

        expected = Counter()
        for number, strategy in enumerate(("USER_PARTITION_KEY", "AUTO", "USER_PARTITION_KEY")):
            fake.distribute("orders", strategy)
            keys = ["a", None] if strategy == "AUTO" else ["a", "b"]
            records = [(keys[value % 2], value) for value in range(100 * number, 100 * number + 100)]
            fake.put_many("orders", [(key, b"%d" % value) for key, value in records])
            expected += Counter(records)
            run_available_now(spark, fake, tmp_path)
        rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert Counter((row.key, row.value) for row in rows) == expected
