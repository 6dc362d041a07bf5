"""The sink of format("kinesis") without Spark: its writer, asked as Spark asks it, on a fake Kinesis."""

from __future__ import annotations

import pickle

import pytest
from pyspark import cloudpickle
from pyspark.sql.types import BinaryType, IntegerType, Row, StringType, StructField, StructType

from efo.errors import ConfigurationError, ResourceNotFoundError
from efo.testing import FakeKinesisThread
from efo_service.relay.errors import SinkUnavailableError
from efo_service.spark.source.catalog_table import keep
from efo_service.spark_kinesis import writing
from efo_service.spark_kinesis.data_source import KinesisDataSource
from tests.efo_service.spark_kinesis.test_data_source import values

STRING, BINARY = StringType(), BinaryType()


def schema(**columns) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


@pytest.fixture
def fake(monkeypatch):
    with FakeKinesisThread() as fake:
        for name, text in fake.environment.items():
            monkeypatch.setenv(name, text)
        for name in ("orders", "others"):
            fake.create_stream(name, shards=2)
        yield fake


def write(rows: list[tuple], columns: StructType, **options: str) -> None:
    writer = KinesisDataSource(options).streamWriter(columns, False)
    executor = pickle.loads(cloudpickle.dumps(writer))  # noqa: S301 - as Spark sends it to executors
    executor.write(iter([Row(*row) for row in rows]))


def stored(fake: FakeKinesisThread, stream: str = "orders") -> list[tuple]:
    return sorted((record.data, record.partition_key) for shard in fake.records(stream).values() for record in shard)


def test_rows_become_records_with_their_keys(fake) -> None:
    write([("1", "a"), (bytearray(b"\xff"), b"b")], schema(value=BINARY, key=STRING), stream="orders")
    assert stored(fake) == [(b"1", "a"), (b"\xff", "b")]


def test_the_hash_key_and_the_stream_may_be_columns(fake) -> None:
    columns = schema(data=STRING, partitionKey=STRING, explicitHashKey=STRING, stream=STRING)
    low, high = "0", str(2**128 - 1)
    rows = [("1", "k", low, "others"), ("2", "k", high, "others"), ("3", "k", None, None)]
    write(rows, columns, stream="orders")
    assert stored(fake) == [(b"3", "k")]
    assert [[record.data for record in shard] for shard in fake.records("others").values()] == [[b"1"], [b"2"]]


def test_many_rows_are_put_in_chunks(fake, monkeypatch) -> None:
    monkeypatch.setattr(writing, "_CHUNK_ROWS", 7)
    rows = [(f"{number}", f"k-{number % 3}") for number in range(100)]
    options = {"efo.producer.aggregate": "true", "efo.producer.linger_seconds": "0.001", "queryName": "q"}
    write(rows, schema(data=STRING, key=STRING), stream="orders", **options)
    source = KinesisDataSource({"stream": "orders", "readMode": "polling"})
    reader = source.reader(source.schema())
    assert values(reader, reader.partitions()) == dict.fromkeys(range(100), 1)


def test_a_record_that_is_not_stored_fails_the_task_with_their_number(fake) -> None:
    fake.call(lambda fake: fake.encrypt("orders"))
    fake.call(lambda fake: fake.fail_key("orders", "KMSThrottlingException"))
    columns = schema(data=STRING, key=STRING)
    with pytest.raises(SinkUnavailableError, match="2 of 2 records were not stored in the stream orders"):
        write([("1", "a"), ("2", "b")], columns, stream="orders", **{"efo.producer.delivery_timeout_seconds": "0.3"})


def test_a_stream_that_does_not_exist_is_reported(fake) -> None:
    with pytest.raises(ResourceNotFoundError, match="gone") as caught:
        write([("1", "a")], schema(data=STRING, key=STRING), stream="gone")
    assert not hasattr(caught.value, "__notes__")  # it is reported once


@pytest.mark.parametrize(
    ("row", "options", "message"),
    [
        ((None, "k", "orders"), {}, "a row has no data"),
        (("1", None, "orders"), {}, "partition_key is missing"),
        (("1", b"\xff", "orders"), {}, "a key is not UTF-8"),
        (("1", "k", None), {}, "a row has no stream"),
        (("1" * 2_000_000, "k", "orders"), {}, "stream orders accepts at most"),
    ],
)
def test_a_row_that_is_no_record_fails_the_task(fake, row, options, message) -> None:
    with pytest.raises(ConfigurationError, match=message):
        write([row], schema(data=STRING, key=BINARY, stream=STRING), region="us-east-1", **options)
    assert stored(fake) == []


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (schema(data=STRING, key=STRING), {}, "needs the name or ARN of a stream"),
        (schema(data=STRING, offset=STRING), {}, "no place for the column offset: select data"),
        (schema(key=STRING), {}, "no column with the data"),
        (schema(data=STRING, value=STRING), {}, "data and value are both the record's data"),
        (schema(data=IntegerType()), {}, "the column data is int: expected string or binary"),
        (schema(data=STRING), {"strem": "orders"}, "'strem' to write: did you mean stream"),
        (schema(data=STRING), {"stream": "o", "awsAccessKeyId": "x"}, "credentials come from"),
        (schema(data=STRING), {"stream": "o", "startingOffsets": "latest"}, "'startingOffsets' to write"),
        (schema(data=STRING), {"stream": "o", "efo.producer.agregate": "x"}, r"did you mean efo\.producer\.aggregate"),
        (schema(data=STRING), {"stream": "o", "efo.producer.aggregate": "x"}, "expected true or false"),
        (schema(data=STRING), {"stream": "o", "efo.producer.linger_seconds": "x"}, "expected a number"),
        (schema(data=STRING), {"stream": "o", "efo.producer.shard_share": "2"}, "shard_share"),
        (schema(data=STRING), {"stream": "o:o"}, "stream"),
    ],
)  # fmt: skip
def test_what_cannot_be_written_is_refused_on_the_driver(columns, options, message) -> None:
    with pytest.raises(ConfigurationError, match=message):
        KinesisDataSource(options).writer(columns, False)


def test_a_stream_cannot_be_overwritten() -> None:
    with pytest.raises(ConfigurationError, match="append"):
        KinesisDataSource({"stream": "orders"}).writer(schema(data=STRING), True)


def test_a_table_of_the_catalog_has_the_options_of_its_sink(fake) -> None:
    columns = schema(value=STRING, key=STRING)
    keep(columns, {"stream": "orders", "columns": "value,key", "path": "file:/var/log"})
    write([("1", "a")], columns)
    assert stored(fake) == [(b"1", "a")]
