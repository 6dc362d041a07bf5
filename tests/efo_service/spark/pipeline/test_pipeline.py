from __future__ import annotations

import collections
import contextlib
import gzip
import json
import os
import re
import signal
import subprocess
import sys
import threading
import zlib

import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JError

from efo.errors import ConfigurationError
from efo_service.log.disk import DiskFiles
from efo_service.log.reader_offsets import read_readers
from efo_service.log.segments import list_segments
from efo_service.relay.errors import TopicNotFoundError
from efo_service.spark.errors import JavaMissingError, SparkError
from efo_service.spark.pipeline import pipeline
from efo_service.spark.pipeline.decoding import Decoding
from efo_service.spark.pipeline.pipeline import MAX_RETRIES, _RunningQueries, run_in_session, run_pipeline
from efo_service.spark.pipeline.settings import PipelineSettings
from proofs.paths import ROOT

START = 1_700_000_040  # the start of a minute


@pytest.fixture
def settings(log, tmp_path):
    def make(**changes) -> PipelineSettings:
        places = {"output": str(tmp_path / "out"), "checkpoint": str(tmp_path / "state")}
        common = {"log": log.root, "topic": log.topic, **places}
        return PipelineSettings(**{**common, "available_now": True, **changes})

    return make


@pytest.fixture
def run(spark, settings):
    def run(*, stop: threading.Event | None = None, **changes):
        progress: list[dict] = []
        stop = stop or threading.Event()
        result = run_in_session(spark, settings(**changes), on_progress=progress.append, stop=stop)
        assert json.loads(json.dumps(progress)) == progress
        return result, progress

    return run


@pytest.fixture
def written(spark, tmp_path):
    return lambda: sorted(
        bytes(row.value).decode() for row in spark.read.parquet(str(tmp_path / "out" / "records")).collect()
    )


@pytest.mark.spark
def test_records_are_written_once_with_their_position_in_kinesis(spark, log, run, written, tmp_path) -> None:
    log.grow(0, 1000, at=START)
    log.grow(1, 1000, at=START + 3600)
    result, progress = run(max_records=1500)
    assert written() == log.values
    assert result.rows["records"] == result.rows["windows"] == 2000
    assert not result.stopped
    batches = [(report["batch_id"], report["rows"]) for report in progress if report.get("query") == "records"]
    assert batches == [(0, 1500), (1, 500)]
    row = spark.read.parquet(str(tmp_path / "out" / "records")).where("cast(value as string) = '1/17'").first()
    assert (row.shard_id, row.sequence_number, row.sub_sequence_number) == (
        "shardId-000000000001",
        str(10**20 + 17),
        0,
    )
    assert (row.topic, row.partition, row.offset, bytes(row.key)) == ("orders", 1, 17, b"key-7")
    directories = {path.parent.relative_to(tmp_path / "out") for path in (tmp_path / "out").rglob("*.parquet")}
    assert {str(path) for path in directories if "hour" in str(path)} == {
        "records/date=2023-11-14/hour=22",
        "records/date=2023-11-14/hour=23",
    }


@pytest.mark.spark
def test_windows_count_every_record_of_the_minutes_that_have_ended(spark, log, run, tmp_path) -> None:
    log.grow(0, 3000, at=START, step=0.1)  # five minutes
    run(key_groups=4, watermark_seconds=60)
    log.grow(0, 1, at=START + 600)
    run(key_groups=4, watermark_seconds=60)

    expected: dict = collections.defaultdict(lambda: [0, 0])
    for number in range(3000):
        entry = expected[int(number * 0.1) // 60, zlib.crc32(b"key-%d" % (number % 10)) % 4]
        entry[0] += 1
        entry[1] += len(b"0/%d" % number)
    frame = spark.read.parquet(str(tmp_path / "out" / "windows"))
    rows = frame.selectExpr(
        "cast(unix_timestamp(window_start) as int) start", "key_group", "records", "bytes",
        "first_arrival >= window_start and last_arrival < window_end and first_arrival <= last_arrival inside",
    ).collect()  # fmt: skip
    assert {((row.start - START) // 60, row.key_group): [row.records, row.bytes] for row in rows} == expected
    assert len(rows) == len(expected)
    assert all(row.inside for row in rows)


@pytest.mark.spark
def test_records_without_a_key_are_a_group_of_their_own(spark, log, run, tmp_path) -> None:
    log.put(0, [b"1", b"2"], at=START, key=None)
    log.put(0, [b"3"], at=START)
    run(key_groups=4, watermark_seconds=60)
    log.grow(1, 1, at=START + 600)
    run(key_groups=4, watermark_seconds=60)
    rows = spark.read.parquet(str(tmp_path / "out" / "windows")).select("key_group", "records").collect()
    assert {(row.key_group, row.records) for row in rows} == {(None, 2), (zlib.crc32(b"key") % 4, 1)}
    records = spark.read.parquet(str(tmp_path / "out" / "records"))
    assert records.where("key is null").count() == 2


SCHEMA = "id bigint, name string"


@pytest.mark.spark
def test_json_is_decoded_and_invalid_values_are_quarantined(spark, log, run, tmp_path) -> None:
    log.grow(0, 3, at=START)
    log.put(0, [b'{"id": 1, "name": "one"}', b'{"id": "two"}', b'{"id": 3}'])
    result, _ = run(decoding=Decoding("json", SCHEMA))
    rows = spark.read.parquet(str(tmp_path / "out" / "records")).orderBy("offset").collect()
    assert [(row.offset, row.data.id, row.data.name, row.shard_id) for row in rows] == [
        (3, 1, "one", "shardId-000000000000"),
        (5, 3, None, "shardId-000000000000"),
    ]
    bad = spark.read.parquet(str(tmp_path / "out" / "quarantine")).orderBy("offset").collect()
    assert [(row.offset, row.reason) for row in bad] == [(at, "not JSON that fits the schema") for at in (0, 1, 2, 4)]
    assert bytes(bad[3].value) == b'{"id": "two"}'
    assert bad[0].headers[0].key == "kinesis.stream"
    assert result.rows["records"] == result.rows["quarantine"] == 6
    assert (result.rows_written["records"], result.rows_written["quarantine"]) == (2, 4)


@pytest.mark.spark
def test_raw_values_with_another_layer_are_quarantined(spark, log, run, tmp_path) -> None:
    wrapped = gzip.compress(b"one")
    log.put(0, [wrapped, b"two"])
    run(decoding=Decoding(unwrap=("gzip",)))
    rows = spark.read.parquet(str(tmp_path / "out" / "records")).collect()
    assert [(row.offset, bytes(row.value), bytes(row.data)) for row in rows] == [(0, wrapped, b"one")]
    bad = spark.read.parquet(str(tmp_path / "out" / "quarantine")).collect()
    assert [(row.offset, bytes(row.value), row.reason) for row in bad] == [(1, b"two", "not gzip")]


@pytest.mark.spark
def test_duplicates_of_an_at_least_once_relay_are_dropped(log, run, written, spark, tmp_path) -> None:
    log.grow(0, 20, at=START)
    log.repeat(0, 5)
    run(deduplicate_seconds=3600)
    log.repeat(0, 8)
    log.grow(0, 1, at=START + 600)
    run(deduplicate_seconds=3600)
    assert written() == log.values
    assert spark.read.parquet(str(tmp_path / "out" / "windows")).selectExpr("sum(records) n").first().n == 20


@pytest.mark.spark
def test_repeated_tags_are_allowed(log, run, written) -> None:
    log.put(0, [b"tagged"], tags=(("colour", "red"), ("colour", "blue")))
    run()
    assert written() == ["tagged"]


@pytest.mark.spark
def test_the_sink_can_be_any_spark_format_with_options(log, run, tmp_path) -> None:
    log.grow(0, 3, at=START)
    run(sink_format="json", sink_options={"compression": "gzip"})
    assert list((tmp_path / "out" / "records").rglob("*.json.gz"))


@pytest.mark.spark
def test_the_queries_can_write_tables(spark, log, run, tmp_path) -> None:
    log.grow(0, 3, at=START)
    try:
        run(table="orders")
        assert spark.table("orders_records").count() == 3
    finally:
        for name in ("orders_records", "orders_windows"):
            spark.sql(f"drop table if exists {name}")


class FailedQuery:
    """A query that has failed, with Spark's message."""

    isActive = False  # noqa: N815 - PySpark's name
    name = "records"
    runId = "run"  # noqa: N815 - PySpark's name

    def __init__(self, message: str) -> None:
        self._message = message

    def exception(self) -> Exception:
        return Exception(self._message)

    def stop(self) -> None: ...


def test_a_query_without_a_python_worker_is_restarted_a_limited_number_of_times(settings, monkeypatch) -> None:
    started, progress = [], []

    def start(_frame, name, _settings):
        started.append(name)
        return FailedQuery("[...] Python worker failed to connect back.")

    monkeypatch.setattr("efo_service.spark.pipeline.pipeline.start_query", start)
    running = _RunningQueries({"records": None}, settings(), progress.append, threading.Event())
    running.start()
    while running.are_active:
        with contextlib.suppress(SparkError):
            running.check()
    with pytest.raises(SparkError, match="failed to connect back"):
        running.raise_failure()
    assert started == ["records"] * (1 + MAX_RETRIES)
    assert progress == [{"started_again": "records", "because": "Python worker failed to connect back"}] * MAX_RETRIES


def test_any_other_query_failure_ends_the_run(settings, monkeypatch) -> None:
    monkeypatch.setattr("efo_service.spark.pipeline.pipeline.start_query", lambda *_: FailedQuery("the disk is full"))
    running = _RunningQueries({"records": None}, settings(), lambda _: None, threading.Event())
    running.start()
    assert not running.are_active
    with pytest.raises(SparkError, match="the disk is full"):
        running.check()


@pytest.mark.spark
def test_the_lag_is_reported_and_the_queries_save_reader_offsets(log, run) -> None:
    log.grow(0, 100, at=START)
    _, progress = run(max_records=40, reader="pipe")
    assert [report["lag"] for report in progress if report.get("query") == "records"] == [60, 20, 0]
    assert [reader.name for reader in read_readers(DiskFiles(log.root), log.topic)] == ["pipe-records", "pipe-windows"]


@pytest.mark.spark
def test_records_that_are_too_late_for_their_window_are_reported(log, run, written) -> None:
    log.grow(0, 1, at=START + 1000)
    run()
    log.grow(1, 3, at=START)
    result, progress = run()
    assert result.late_rows > 0
    assert sum(report.get("late_rows", 0) for report in progress) == result.late_rows
    assert written() == log.values


@pytest.mark.spark
def test_a_second_run_reads_only_new_records(log, run, written) -> None:
    log.grow(0, 10)
    run()
    assert run()[0].rows.get("records", 0) == 0
    log.grow(0, 5)
    log.grow(1, 5)
    assert run()[0].rows["records"] == 10
    assert written() == log.values


@pytest.mark.spark
def test_a_running_pipeline_waits_for_its_topic_follows_it_and_stops_on_request(spark, log, settings, written) -> None:
    stop, progress = threading.Event(), []

    def on_progress(report: dict) -> None:
        progress.append(report)
        if "waiting_for" in report:
            log.grow(0, 10)
        elif report.get("query") == "records" and report["rows_total"] == 10 and report["rows"]:
            log.grow(1, 10)
        elif report.get("query") == "records" and report["rows_total"] == 20:
            stop.set()

    result = run_in_session(
        spark, settings(available_now=False, trigger_seconds=0.1), on_progress=on_progress, stop=stop
    )
    assert result.stopped
    assert progress[0] == {"waiting_for": log.topic, "log": str(log.root), "because": ""}
    assert written() == log.values
    assert not spark.streams.active


@pytest.mark.spark
def test_a_run_can_be_stopped_while_it_waits_for_its_topic(run) -> None:
    stop = threading.Event()
    stop.set()
    assert run(available_now=False, stop=stop)[0].stopped


@pytest.mark.spark
def test_a_failed_query_ends_the_run_with_the_reason(spark, log, run) -> None:
    log.grow(0, 10)
    (segment,) = list_segments(log.root / log.topic / "0")
    segment.path.write_bytes(b"")
    with pytest.raises(SparkError, match=f"{segment.path.name} is damaged") as caught:
        run()
    assert "\n" not in str(caught.value)
    assert not spark.streams.active


def test_an_available_now_run_needs_its_topic(settings) -> None:
    with pytest.raises(TopicNotFoundError, match="this machine has no such directory"):
        run_pipeline(settings())


KILLED = """
import sys
from pathlib import Path
from efo_service.spark.pipeline.pipeline import run_pipeline
from efo_service.spark.pipeline.settings import PipelineSettings
from proofs.paths import ROOT
log, output, state = sys.argv[1:]
settings = PipelineSettings(
    log=Path(log), topic="orders", output=output, checkpoint=state, max_records=500, available_now=True
)
run_pipeline(settings, on_progress=lambda report: print(report.get("query"), report.get("rows"), flush=True))
"""


@pytest.mark.spark
def test_a_killed_pipeline_resumes_without_loss_or_duplicates_and_is_compacted(
    spark, log, run, written, tmp_path
) -> None:
    """SIGKILL ends Python and Java together, in the middle of a run with many micro-batches."""
    log.grow(0, 4000, at=START, step=0.1)
    log.grow(1, 4000, at=START, step=0.1)
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(log.root), str(tmp_path / "out"), str(tmp_path / "state")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    with child:
        for _ in range(3):
            assert child.stdout.readline()
        os.killpg(child.pid, signal.SIGKILL)
    assert 0 < len(written()) < 8000
    log.grow(0, 100, at=START + 500)
    run()
    assert written() == log.values
    compact = re.search(r"```python\n(import datetime.*?)```", (ROOT / "docs" / "tables.md").read_text(), re.DOTALL)[1]
    compact = compact.replace("2026, 1, 31", "2023, 11, 14").replace("var/parquet", str(tmp_path / "out"))
    for _ in range(2):
        exec(compact.replace("var/compacted", str(tmp_path / "compacted")), {"spark": spark})  # noqa: S102 - our own page
    (file,) = (tmp_path / "compacted").glob("date=*/hour=*/*.parquet")
    rows = pq.ParquetFile(file).read(["partition", "offset", "value"]).to_pylist()
    assert sorted(row["value"].decode() for row in rows) == log.values
    assert [(row["partition"], row["offset"]) for row in rows] == sorted(
        (row["partition"], row["offset"]) for row in rows
    )


class JavaError(Py4JError):
    """An exception in Java: py4j asks Java for its message."""

    def __init__(self, session: JavaSession) -> None:
        self._session = session

    def __str__(self) -> str:
        if not self._session.is_running:
            raise ConnectionRefusedError(111, "Connection refused")
        return "no such bucket"


class JavaSession:
    is_running = True

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        self.is_running = False


def test_the_reason_of_an_exception_in_java_is_reported(log, settings, monkeypatch) -> None:
    log.grow(0, 1)
    session = JavaSession()

    def fail(*_: object, **__: object) -> None:
        raise JavaError(session)

    monkeypatch.setattr(pipeline, "spark_session", lambda *_, **__: session)
    monkeypatch.setattr(pipeline, "run_in_session", fail)
    with pytest.raises(SparkError, match="the pipeline failed: no such bucket"):
        run_pipeline(settings())


def test_packages_of_another_spark_are_refused_before_java_is_started(log, settings, monkeypatch) -> None:
    log.grow(0, 1)
    monkeypatch.setattr(pipeline, "spark_session", lambda *_, **__: pytest.fail("a session was started"))
    packages = {"spark.jars.packages": "io.delta:delta-spark_3.5_2.13:4.4.0"}
    with pytest.raises(ConfigurationError, match=r"is built for Spark 3\.5, but this is Spark"):
        run_pipeline(settings(spark_options=packages))


def test_without_java_nothing_is_started(log, settings, monkeypatch) -> None:
    log.grow(0, 1)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(JavaMissingError, match="Install it"):
        run_pipeline(settings())


@pytest.mark.parametrize(
    "changes",
    [{"trigger_seconds": 0}, {"window_seconds": -1}, {"key_groups": 0}, {"stop_seconds": 0}, {"watermark_seconds": -1}],
)
def test_settings_out_of_range_are_rejected(settings, changes) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(changes))):
        settings(**changes)
