"""What runs on one version of Spark, in a process of its own: `python -m proofs.spark_versions.child PART DIRECTORY`.

Each row is a line of JSON: its name, and what was done.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from efo.errors import EfoError
from efo.model import Record
from efo.testing import FakeKinesisThread, FakeSettings
from efo.testing.state.retention import trim
from efo_service.log.disk import DiskFiles
from efo_service.log.partition_writer import open_partition
from efo_service.spark.pipeline.pipeline import run_pipeline
from efo_service.spark.pipeline.settings import PipelineSettings
from efo_service.spark.session import C1_ONLY, spark_session
from proofs.spark_parity.cases import CASES
from proofs.spark_parity.records import write_log
from proofs.spark_parity.run import Sources, reason

EVENTS: Final = 300
"""The records of the pipeline, and of the query that is killed, at its start."""
QUERIES: Final = 15
"""Queries that run in one application at the same time."""
_STREAM: Final = "orders"
COPIES: Final = "copies"
"""The stream into which records are written."""


def main(part: str, directory: Path) -> None:
    """Run a part, and print its rows."""
    for name, did in PARTS[part](directory):
        sys.stdout.write(json.dumps({"row": name, **did}) + "\n")
        sys.stdout.flush()


def parity(directory: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what format("efo") does in each case of `make spark-parity`."""
    root = directory / "log"
    write_log(root)
    with spark_session("spark versions", quick=True) as spark:
        sources = Sources(spark, root, "")
        for case in sorted(CASES, key=lambda case: case.mode == "continuous"):
            answer = sources.ask("efo", case)
            # Spark 4.0 has bytearray where later ones have bytes.
            text = re.sub(r"bytearray\((b'[^']*')\)", r"\1", repr(answer.rows))
            rows = hashlib.sha256(text.encode()).hexdigest()[:12]
            did = {"refused": answer.refused} if answer.refused else {"rows": len(answer.rows), "digest": rows}
            yield f"{case.option}: {case.name}", did
        yield "pushDownFilters: a batch", _did(lambda: _filtered(spark, root))


def _filtered(spark: Any, root: Path) -> int:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    frame = spark.read.format("efo").option("subscribe", _STREAM).option("pushDownFilters", "true").load(str(root))
    return int(frame.filter("offset >= 390 and offset < 400").count())


def _did(run: Any) -> dict[str, Any]:
    try:
        return {"rows": run()}
    except Exception as error:  # noqa: BLE001 - it is the row
        return {"refused": reason(error)}


def kinesis(directory: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what runs of format("kinesis") read: each all that was put before it, and once."""
    with FakeKinesisThread(settings=FakeSettings(consumer_creating=0.0)) as fake:
        fake.create_stream(_STREAM, shards=2)
        os.environ.update(fake.environment)
        with spark_session("spark versions", quick=True) as spark:
            for number, count in enumerate((100, 50, 0), 1):
                fake.put_many(_STREAM, [(f"key-{n % 5}", b"%d.%d" % (number, n)) for n in range(count)])
                yield f"kinesis, AvailableNow: run {number}", _did(lambda: _kinesis_run(spark, directory))
            fake.put_many(_STREAM, [("late", b"late")] * 7)
            yield "kinesis, a trigger of its own", _did(lambda: _kinesis_run(spark, directory, until=157))
            yield (
                "kinesis: maxOffsetsPerTrigger",
                _did(lambda: _kinesis_run(spark, directory, maxOffsetsPerTrigger="20", checkpoint="limited")),
            )
            fake.create_stream(COPIES, shards=2)
            yield "kinesis: a batch is written", _did(lambda: _written(spark, directory, fake, is_stream=False))
            yield "kinesis: a stream is written", _did(lambda: _written(spark, directory, fake, is_stream=True))
            yield "SQL: a table of efo is read", _did(lambda: _table(spark, directory))
            yield "SQL: a table of kinesis is written", _did(lambda: _inserted(spark, fake))
            fake.split(_STREAM, fake.open_shards(_STREAM)[0])
            _kinesis_run(spark, directory)
            for number, count in enumerate((30, 5)):  # the shard that was split expires, then records that nobody read
                fake.call(lambda fake: trim(fake._core.stream(_STREAM), time.time() + 90_000))  # noqa: SLF001 - a day later
                fake.put_many(_STREAM, [(f"key-{n}", b"left.%d" % n) for n in range(count)])
                yield f"kinesis: after expiry {number + 1}", _did(lambda: _kinesis_run(spark, directory))
                fake.put_many(_STREAM, [("expires", b"expires")] * 11)


def _written(spark: Any, directory: Path, fake: FakeKinesisThread, *, is_stream: bool) -> int:
    """Copy the log of the runs before into another stream, and return how many records that has."""
    reader = spark.readStream if is_stream else spark.read
    options = {"subscribe": _STREAM, "startingOffsets": "earliest", "columns": "key,value"}
    writer = reader.format("efo").options(**options).load(str(directory / "kinesis-log"))
    if is_stream:
        query = writer.writeStream.format("kinesis").option("stream", COPIES)
        query = query.option("checkpointLocation", str(directory / "written")).trigger(availableNow=True)
        query.start().awaitTermination()
    else:
        writer.write.format("kinesis").mode("append").option("stream", COPIES).save()
    return _count(fake)


def _count(fake: FakeKinesisThread) -> int:
    return sum(len(records) for records in fake.records(COPIES).values())


def _table(spark: Any, directory: Path) -> int:
    options = f"subscribe '{_STREAM}', includePosition 'true'"
    spark.sql(f"CREATE TABLE orders USING efo OPTIONS ({options}) LOCATION '{directory / 'kinesis-log'}'")
    try:
        return int(spark.sql("SELECT * FROM orders WHERE shard_id LIKE 'shardId-%' AND partition >= 0").count())
    finally:
        spark.sql("DROP TABLE orders")


def _inserted(spark: Any, fake: FakeKinesisThread) -> int:
    spark.sql(f"CREATE TABLE copies USING kinesis OPTIONS (stream '{COPIES}', columns 'key,value')")
    try:
        spark.sql("INSERT INTO copies SELECT CAST('k' AS BINARY), CAST(id AS BINARY) FROM range(20)")
        return _count(fake)
    finally:
        spark.sql("DROP TABLE copies")


def _kinesis_run(
    spark: Any, directory: Path, until: int | None = None, checkpoint: str = "checkpoint", **options: str
) -> int:
    """Run a query, and return how many records there are in its output."""
    reader = spark.readStream.format("kinesis").option("stream", _STREAM).option("initialPosition", "trim_horizon")
    frame = reader.options(**options).load(str(directory / "kinesis-log"))
    output = str(directory / f"kinesis-{checkpoint}")
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(directory / checkpoint))
    if until is None:
        writer.trigger(availableNow=True).start(output).awaitTermination()
        return int(spark.read.parquet(output).count())
    query = writer.trigger(processingTime="200 milliseconds").start(output)
    try:
        deadline = time.monotonic() + 60
        while spark.read.parquet(output).count() < until and query.isActive and time.monotonic() < deadline:
            time.sleep(0.5)
        if not query.isActive:
            query.awaitTermination()
    finally:
        query.stop()
    return int(spark.read.parquet(output).count())


def write_events(root: Path, start: int = 0, count: int = EVENTS, *, shard: int = 0, age: float = 0.0) -> None:
    """Append JSON values to the topic events. `age`: how many seconds ago they arrived."""
    writer = open_partition(DiskFiles(root), "events", "events", f"shardId-{shard:012}", time.time)
    for first in range(start, start + count, 20):
        numbers = range(first, min(first + 20, start + count))
        writer.append([Record(str(1 + n), time.time() - age, b'{"id": %d}' % n, f"key-{n % 7}") for n in numbers])
    writer.close()


def pipeline(directory: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what the pipeline writes of each table."""
    root = directory / "pipeline-log"
    write_events(root)
    settings = PipelineSettings(
        log=root, topic="events", output=str(directory / "tables"), checkpoint=str(directory / "state"),
        available_now=True, spark_options={"spark.driver.defaultJavaOptions": C1_ONLY},
    )  # fmt: skip
    try:
        result = run_pipeline(settings)
    except EfoError as error:
        yield "pipeline", {"refused": str(error)}
        return
    for name, rows in sorted(result.rows_written.items()):
        yield f"pipeline: {name}", {"rows": rows}
    # Spark drops what is older than the watermark before the last micro-batch. Where AvailableNow is one batch, as on
    # 4.0 and 4.1, the run of the first records does not have the watermark that they give.
    write_events(root, EVENTS, 20)
    run_pipeline(settings)
    write_events(root, shard=1, age=7200)  # a shard that lags: its records are late for windows alone
    late = run_pipeline(settings)
    yield "pipeline: late records", {"rows": late.rows_written.get("records", 0), "were late": late.late_rows > 0}
    yield "pipeline: read", {"rows": result.rows.get("events", max(result.rows.values(), default=0))}
    try:
        run_pipeline(
            PipelineSettings(**{**{f: getattr(settings, f) for f in settings.__dataclass_fields__}, "max_records": 50})
        )
        yield "pipeline: max_records", {"rows": 0}
    except EfoError as error:
        yield "pipeline: max_records", {"refused": str(error)}


def many(directory: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what queries read that run in one application at the same time."""
    root = directory / "many-log"
    write_events(root)
    with spark_session("spark versions", quick=True) as spark:
        reader = spark.readStream.format("efo").option("subscribe", "events").option("startingOffsets", "earliest")
        queries = [
            reader.load(str(root)).writeStream.format("noop").trigger(processingTime="1 second").start()
            for _ in range(QUERIES)
        ]
        write_events(root, EVENTS, EVENTS)

        def read() -> int:
            deadline, rows = time.monotonic() + 240, [0]
            while min(rows) < 2 * EVENTS and time.monotonic() < deadline:
                time.sleep(1)
                for query in queries:
                    if not query.isActive:
                        query.awaitTermination()  # raises what ended it
                rows = [sum(report.numInputRows for report in query.recentProgress) for query in queries]
            return sum(rows)

        yield f"{QUERIES} queries in one application", _did(read)


def stream(directory: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Read the log into Parquet until it is killed; see `drain`."""
    with spark_session("spark versions", quick=True) as spark:
        _copy(spark, directory).trigger(processingTime="300 milliseconds").start(
            str(directory / "copy")
        ).awaitTermination()
    yield "killed", {"rows": 0}


def drain(directory: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Go on where the killed query was, to the end. Yield how many records it has then.

    On Spark 4.0 and 4.1 a run of AvailableNow that finishes the batch of a killed one ends with it.
    """
    with spark_session("spark versions", quick=True) as spark:
        for _ in range(2):
            _copy(spark, directory).trigger(availableNow=True).start(str(directory / "copy")).awaitTermination()
        copied = spark.read.parquet(str(directory / "copy"))
        yield "after a kill: records", {"rows": int(copied.count())}
        yield "after a kill: different ones", {"rows": int(copied.select("offset").distinct().count())}


def put(directory: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Put the log into a stream until it is killed; see `put_rest`."""
    with spark_session("spark versions", quick=True) as spark:
        _put(spark, directory).start().awaitTermination()
    yield "killed", {"rows": 0}


def put_rest(directory: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Go on where the killed query was, to the end. Yield what the source reads of the stream then."""
    with spark_session("spark versions", quick=True) as spark:
        written = 0
        for _ in range(2):  # see `drain`
            query = _put(spark, directory).trigger(availableNow=True).start()
            query.awaitTermination()
            rows = (json.loads(report.json)["sink"]["numOutputRows"] for report in query.recentProgress)
            written += sum(max(0, count) for count in rows)  # -1: a report without a batch
        yield "after a kill of the sink: rows in reports", {"rows": written}
        source = spark.read.format("kinesis").option("stream", COPIES).load(str(directory / "read-log"))
        yield "read back", {"values": [row[0] for row in source.selectExpr("cast(value as string)").collect()]}


def _put(spark: Any, directory: Path) -> Any:
    frame = spark.readStream.format("efo").option("subscribe", "events").option("startingOffsets", "earliest")
    frame = frame.option("columns", "key,value").load(str(directory / "put-log"))
    writer = frame.writeStream.format("kinesis").option("stream", COPIES)
    return writer.option("checkpointLocation", str(directory / "put-checkpoint"))


def _copy(spark: Any, directory: Path) -> Any:
    frame = spark.readStream.format("efo").option("subscribe", "events").option("startingOffsets", "earliest")
    writer = frame.load(str(directory / "kill-log")).writeStream.format("parquet")
    return writer.option("checkpointLocation", str(directory / "copy-checkpoint"))


PARTS: Final = {
    "parity": parity,
    "kinesis": kinesis,
    "pipeline": pipeline,
    "many": many,
    "stream": stream,
    "drain": drain,
    "put": put,
    "put-rest": put_rest,
}

if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
