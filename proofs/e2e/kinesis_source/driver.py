"""A Spark application that reads Kinesis by format("kinesis"): two queries on one log, or one run of AvailableNow.

The proof starts and kills it. A query whose planner was killed fails; the application starts it again.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from efo_service.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


_START_SECONDS = 20.0
"""A query that has nothing to read reports nothing."""


def main() -> None:
    """Run until SIGTERM, or until the run of AvailableNow has ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--stream", required=True)
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--ca-file", required=True)
    parser.add_argument("--queries", required=True, help="names, with commas between")
    parser.add_argument("--available-now", action="store_true")
    arguments = parser.parse_args()
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    names = arguments.queries.split(",")
    with spark_session("kinesis source", quick=True) as spark:
        if arguments.available_now:
            for name in names:
                _start(spark, arguments, name).awaitTermination()
            return
        queries: dict[str, StreamingQuery] = {}
        while not stopping.wait(0.2):
            for name in names:
                if name not in queries or not queries[name].isActive:
                    if name in queries:
                        sys.stderr.write(f"query {name} is started again: {queries[name].exception()}\n")
                    queries[name] = _start(spark, arguments, name)
                    _wait_until_it_reads(queries[name], stopping)
        for query in queries.values():
            query.stop()


def _wait_until_it_reads(query: StreamingQuery, stopping: threading.Event) -> None:
    """Wait, since Spark's Python processes have ten seconds to start: on a busy machine not for two queries at once."""
    deadline = time.monotonic() + _START_SECONDS
    while query.isActive and query.lastProgress is None and time.monotonic() < deadline:
        if stopping.wait(0.2):
            return


def _start(spark: SparkSession, arguments: argparse.Namespace, name: str) -> StreamingQuery:
    frame = (
        spark.readStream.format("kinesis")
        .option("stream", arguments.stream)
        .option("region", "us-east-1")
        .option("endpoint", arguments.endpoint)
        .option("caFile", arguments.ca_file)
        .option("application", "e2e")
        .option("failoverSeconds", "5")
        .option("efo.service.log_level", "info")
        .load(str(arguments.directory / "log"))
    )
    writer = (
        frame.select("partition", "offset", "key", "value")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(arguments.directory / f"checkpoint-{name}"))
    )
    trigger = (
        writer.trigger(availableNow=True) if arguments.available_now else writer.trigger(processingTime="1 second")
    )
    return trigger.start(str(arguments.directory / f"parquet-{name}"))


if __name__ == "__main__":
    main()
