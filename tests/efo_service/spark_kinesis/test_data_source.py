"""format("kinesis") without Spark: its readers, asked as Spark asks them, on a fake Kinesis."""

from __future__ import annotations

import json
import pickle
import signal
import time
from collections import Counter

import pytest
import trio
from pyspark import cloudpickle
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, StructField, StructType

from efo.errors import ConfigurationError, ResourceNotFoundError
from efo.kinesis.aws.client import open_kinesis
from efo.testing import FakeSettings
from efo.testing.thread import FakeKinesisThread
from efo_service.log.disk import DiskFiles
from efo_service.log.partition_writer import open_partition
from efo_service.spark.source.options import COLUMNS
from efo_service.spark_kinesis.data_source import KinesisDataSource, KinesisStreamReader
from proofs.local_servers.object_stores import BUCKET, ENVIRONMENT, running, serve_versitygw

SCHEMA = StructType([StructField(name, BinaryType()) for name in COLUMNS if name != "headers"])


@pytest.fixture(autouse=True)
def sigterm():
    """Restore the handler of SIGTERM, which belongs to the process of a planner."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def fake(monkeypatch):
    with FakeKinesisThread(settings=FakeSettings(consumer_creating=0.0)) as fake:
        for name, text in fake.environment.items():
            monkeypatch.setenv(name, text)
        fake.create_stream("orders", shards=2)
        yield fake


@pytest.fixture
def source(fake, tmp_path):
    def source(**options: str) -> KinesisDataSource:
        given = {"stream": "orders", "region": "us-east-1", "endpoint": fake.url, "caFile": fake.ca_file, **options}
        return KinesisDataSource(given)

    return source


async def consumers(fake: FakeKinesisThread) -> list[str]:
    async with open_kinesis("orders", region="us-east-1", endpoint_url=fake.url, ca_file=fake.ca_file) as kinesis:
        stream = await kinesis.control_plane.describe_stream()
        found = await kinesis.control_plane.list_consumers(stream.arn)
        return [consumer.name for consumer in found if consumer.status != "DELETING"]


def put(fake: FakeKinesisThread, numbers: range) -> None:
    fake.put_many("orders", [(f"key-{number % 7}", b"%d" % number) for number in numbers])


def values(reader, partitions) -> Counter[int]:
    executor = pickle.loads(cloudpickle.dumps(reader))  # noqa: S301 - as Spark sends it to executors
    return Counter(
        int(value) for task in partitions for batch in executor.read(task) for value in batch["value"].to_pylist()
    )


class Run:
    """A run of AvailableNow, as Spark makes it."""

    def __init__(self, source: KinesisDataSource, start: dict | None = None) -> None:
        self.reader = source.streamReader(SCHEMA)
        self.end = start if start is not None else self.reader.initialOffset()
        self.reader.prepareForTriggerAvailableNow()

    def read(self) -> Counter[int]:
        found: Counter[int] = Counter()
        while (end := self.reader.latestOffset(self.end, ReadAllAvailable())) != self.end:
            found += values(self.reader, self.reader.partitions(self.end, end))
            self.end = end
        return found


def stop(*readers: KinesisStreamReader) -> None:
    for reader in readers:
        reader.stop()


def test_available_now_reads_what_was_there_at_its_start_over_a_reshard(fake, source, tmp_path):
    put(fake, range(200))
    run = Run(source(log=str(tmp_path / "log")))
    try:
        assert run.read() == Counter(range(200))
    finally:
        stop(run.reader)
    put(fake, range(200, 300))
    fake.split("orders", fake.open_shards("orders")[0])
    put(fake, range(300, 400))
    run = Run(source(log=str(tmp_path / "log")), run.end)
    try:
        assert run.read() == Counter(range(200, 400))
    finally:
        stop(run.reader)


def test_a_run_on_a_spark_that_does_not_tell_its_trigger_begins_with_all_that_is_there(fake, source, tmp_path):
    """Spark 4.0 and 4.1: a run of AvailableNow asks once for the end, any other again and again."""
    put(fake, range(200))
    reader = source(log=str(tmp_path / "log")).streamReader(SCHEMA)
    try:
        end = reader.latestOffset()
        assert values(reader, reader.partitions(reader.initialOffset(), end)) == Counter(range(200))
        put(fake, range(200, 250))
        found: Counter[int] = Counter()
        while sum(found.values()) < 50:
            before, end = end, reader.latestOffset()
            found += values(reader, reader.partitions(before, end))
        assert found == Counter(range(200, 250))
    finally:
        stop(reader)
    put(fake, range(250, 300))
    again = source(log=str(tmp_path / "log")).streamReader(SCHEMA)
    try:
        assert values(again, again.partitions(end, again.latestOffset())) == Counter(range(250, 300))
    finally:
        stop(again)


def test_the_log_of_a_running_service_is_refused_with_the_format_that_reads_it(fake, source, tmp_path):
    writer = open_partition(DiskFiles(tmp_path / "log"), "orders", "orders", "shardId-000000000000", time.time)
    reader = source(log=str(tmp_path / "log")).streamReader(SCHEMA)
    with pytest.raises(ConfigurationError, match=r'a running service writes the log .*: read it with format\("efo"\)'):
        reader.initialOffset()
    writer.close()
    later = source(log=str(tmp_path / "log")).streamReader(SCHEMA)
    try:
        later.initialOffset()  # the service is gone
    finally:
        stop(later)


def test_two_queries_share_one_log(fake, source, tmp_path):
    put(fake, range(100))
    first = Run(source(log=str(tmp_path / "log"), application="app"))
    second = Run(source(log=str(tmp_path / "log"), application="app"))
    try:
        assert first.read() == second.read() == Counter(range(100))
    finally:
        stop(first.reader, second.reader)


def test_a_log_on_an_object_store_has_its_leases_beside_it(servers, fake, source, monkeypatch):
    for name, text in ENVIRONMENT.items():
        monkeypatch.setenv(name, text)
    server = running(servers.url(serve_versitygw))
    put(fake, range(100))
    given = {
        "log": f"s3://{BUCKET}/spark-kinesis/log",
        "storeOptions": json.dumps(dict(server.options())),
        "efo.relay.commit_seconds": "0.05",
        "efo.consumer.checkpoint_seconds": "1",
    }
    run = Run(source(**given))
    try:
        assert run.read() == Counter(range(100))
    finally:
        stop(run.reader)
    fake.split("orders", fake.open_shards("orders")[0])
    put(fake, range(100, 200))
    run = Run(source(**given), run.end)
    try:
        assert run.read() == Counter(range(100, 200))
    finally:
        stop(run.reader)


def test_a_planner_releases_its_leases_though_spark_ends_it_by_a_signal(fake, source, tmp_path):
    put(fake, range(10))
    run = Run(source(log=str(tmp_path / "log")))
    run.read()
    with pytest.raises(SystemExit):
        signal.raise_signal(signal.SIGTERM)
    run.reader.stop()  # as Spark's code does when it is left
    signal.raise_signal(signal.SIGTERM)  # a second signal interrupts nothing
    again = Run(source(log=str(tmp_path / "log"), failoverSeconds="100000"), run.end)
    try:
        assert again.read() == Counter()
    finally:
        stop(again.reader)


def test_what_ends_the_relay_fails_the_query(source, tmp_path):
    reader = source(stream="nothing", log=str(tmp_path / "log")).streamReader(SCHEMA)
    reader.initialOffset()
    with pytest.raises(ResourceNotFoundError, match="nothing"):
        Run.read(_Waiting(reader))
    reader.stop()


class _Waiting(Run):
    def __init__(self, reader: KinesisStreamReader) -> None:
        self.reader, self.end = reader, {}
        reader.prepareForTriggerAvailableNow()


def test_a_batch_reads_between_two_times_and_leaves_no_consumer(fake, source, tmp_path):
    put(fake, range(50))
    fake.split("orders", fake.open_shards("orders")[0])
    put(fake, range(50, 80))
    reader = source(log=str(tmp_path)).reader(SCHEMA)
    assert values(reader, reader.partitions()) == Counter(range(80))
    assert trio.run(consumers, fake) == []


@pytest.mark.parametrize("option", ["maxOffsetsPerTrigger", "pushDownFilters"])
def test_options_of_streams_are_refused_in_batches(source, option):
    value = "true" if option == "pushDownFilters" else "1"
    with pytest.raises(ConfigurationError, match=option):
        source(**{option: value}).reader(SCHEMA)


def test_a_schema_is_refused(source):
    with pytest.raises(ConfigurationError, match=r"remove .schema\(\)"):
        source().streamReader(StructType([])).initialOffset()


def test_wrong_options_are_an_error_of_the_first_call_and_not_of_the_source(source):
    reader = source(colour="blue").streamReader(SCHEMA)
    with pytest.raises(ConfigurationError, match="colour"):
        reader.initialOffset()
