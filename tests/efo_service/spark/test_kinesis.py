"""format("kinesis") in Spark: one run of AvailableNow on a fake Kinesis. Found without registration."""

from __future__ import annotations

from collections import Counter

import pytest

from efo.testing.thread import FakeKinesisThread
from tests.efo_service.spark.conftest import retry_worker_timeouts

pytestmark = pytest.mark.spark


def test_a_run_of_available_now_lands_every_record_once(spark, tmp_path) -> None:
    with FakeKinesisThread() as fake:
        fake.create_stream("orders", shards=2)
        fake.put_many("orders", [(f"key-{number % 7}", b"%d" % number) for number in range(300)])
        fake.split("orders", fake.open_shards("orders")[0])
        fake.put_many("orders", [(f"key-{number % 7}", b"%d" % number) for number in range(300, 400)])

        def run() -> None:
            frame = (
                spark.readStream.format("kinesis")
                .option("stream", "orders")
                .option("region", "us-east-1")
                .option("endpoint", fake.url)
                .option("caFile", fake.ca_file)
                .load(str(tmp_path / "log"))
            )
            query = (
                frame.selectExpr("cast(cast(value as string) as int) value")
                .writeStream.format("parquet")
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start(str(tmp_path / "out"))
            )
            query.awaitTermination()

        retry_worker_timeouts(run)
        rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert Counter(row.value for row in rows) == Counter(range(400))
