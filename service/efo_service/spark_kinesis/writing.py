"""The sink of format("kinesis"): rows become records of a stream, by efo's producer, at least once.

    frame.writeStream.format("kinesis").option("stream", "orders").option("region", "eu-west-1")...

A task puts its rows and ends when all are stored. If some are not, the task fails with their number, and Spark repeats
it: so a row is never lost, and may be stored more than once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

import trio
from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, DataType, Row, StringType, StructType

from efo.errors import ConfigurationError
from efo.exception_groups import collapse_groups
from efo.producer.opening import open_producer
from efo.producer.producer import Producer, ProducerRecord
from efo.producer.settings import ProducerSettings
from efo_service.config.settings import KinesisSettings
from efo_service.factories.kinesis import open_stream
from efo_service.relay.kinesis_sink import put_all
from efo_service.spark.errors import one_line_errors
from efo_service.spark.source.catalog_table import kept
from efo_service.spark.source.shipping import Shipped
from efo_service.spark_kinesis.options import CONNECTION, kinesis_settings
from efo_service.spark_kinesis.other_connectors import hint

_CHUNK_ROWS: Final = 5_000
_CHUNK_BYTES: Final = 8 * 1024 * 1024
"""The rows that are put before the next are asked for: at most so many, and no more after so many bytes."""

_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "data": ("data", "value"),
    "partition_key": ("partition_key", "partitionkey", "key"),
    "explicit_hash_key": ("explicit_hash_key", "explicithashkey"),
    "stream": ("stream", "streamname"),
}
"""The columns of a frame that is written, and the names of each, in lower case."""
_TEXT: Final = (StringType, BinaryType)
_PRODUCER: Final = "efo.producer."
_EACH_ROWS: Final = "-"
"""The stream of settings that have none, since each row has its own."""
_OF_SPARK: Final = ("checkpointlocation", "queryname")
"""Options of a streaming query, which Spark hands on."""


class RecordColumns(NamedTuple):
    """Where each column is in a row; None if the frame has none."""

    data: int
    partition_key: int | None
    explicit_hash_key: int | None
    stream: int | None


def make_writer(schema: StructType, arguments: Mapping[str, str], *, overwrite: bool) -> KinesisWriter:
    """Return the writer of a frame with this schema. Raises ConfigurationError."""
    if overwrite:
        raise ConfigurationError(
            'records of a stream cannot be replaced: use mode("append"), and outputMode("append") or "update"'
        )
    columns = find_columns(schema)
    kinesis, producer = parse_writing(arguments, kept(schema), needs_stream=columns.stream is None)
    return KinesisWriter(kinesis, producer, columns)


def find_columns(schema: StructType) -> RecordColumns:
    """Return where the columns are. Raises ConfigurationError for one that is missing, unknown, or of another type."""
    found: dict[str, int] = {}
    for index, field in enumerate(schema.fields):
        column = next((column for column, names in _COLUMNS.items() if field.name.lower() in names), None)
        if column is None:
            raise ConfigurationError(f"a record has no place for the column {field.name}: {_expected()}")
        if column in found:
            raise ConfigurationError(
                f"the columns {schema.fields[found[column]].name} and {field.name} are both the record's {column}:"
                " remove one of them"
            )
        _check_type(field.name, field.dataType)
        found[column] = index
    if "data" not in found:
        raise ConfigurationError(f"there is no column with the data of the records: {_expected()}")
    return RecordColumns(*(found.get(name) for name in RecordColumns._fields))  # type: ignore[arg-type]


def _expected() -> str:
    return "select data (or value), partition_key (or key), and if you need them explicit_hash_key and stream"


def _check_type(name: str, found: DataType) -> None:
    if not isinstance(found, _TEXT):
        raise ConfigurationError(
            f"the column {name} is {found.simpleString()}: expected string or binary, such as to_json(struct(...))"
        )


def parse_writing(
    arguments: Mapping[str, str], table: Mapping[str, str], *, needs_stream: bool
) -> tuple[KinesisSettings, ProducerSettings]:
    """Return where to put records, and how. Raises ConfigurationError.

    `table`: the options of the catalog's table that is written to; those that say how it is read are left out.
    `needs_stream`: the rows do not say it.
    """
    given = {name.lower(): text for name, text in arguments.items() if name.lower() not in _OF_SPARK}
    producer = {name.removeprefix(_PRODUCER): text for name, text in given.items() if name.startswith(_PRODUCER)}
    others = {**table, **{name: text for name, text in given.items() if not name.startswith(_PRODUCER)}}
    settings, unknown = kinesis_settings({"stream": _EACH_ROWS, **others})
    for name in arguments:
        if name.lower() in unknown and name.lower() not in table:
            raise ConfigurationError(f'format("kinesis") has no option {name!r} to write: {_hint(name.lower())}')
    if "stream" not in others and needs_stream:
        raise ConfigurationError(
            'format("kinesis") needs the name or ARN of a stream: .option("stream", "orders"), or a column stream'
        )
    return settings.kinesis, _producer_settings(producer)


def _hint(name: str) -> str:
    known = {option.lower(): option for option in CONNECTION}
    if (elsewhere := hint(name)) is not None:
        return elsewhere
    if close := get_close_matches(name, known, 1):
        return f"did you mean {known[close[0]]}?"
    return f"it has {', '.join(CONNECTION)}, efo.kinesis.<key> and {_PRODUCER}<setting>"


def _producer_settings(texts: Mapping[str, str]) -> ProducerSettings:
    defaults: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(ProducerSettings)}
    values: dict[str, Any] = {}
    for name, text in texts.items():
        if name not in defaults:
            close = get_close_matches(name, defaults, 1)
            known = f"did you mean {_PRODUCER}{close[0]}?" if close else f"the settings are {', '.join(defaults)}"
            raise ConfigurationError(f"{_PRODUCER}{name}: {known}")
        convert = _boolean if isinstance(defaults[name], bool) else type(defaults[name])
        try:
            values[name] = convert(text)
        except ValueError:
            kind = {bool: "true or false", int: "a whole number", float: "a number"}[type(defaults[name])]
            raise ConfigurationError(f"{_PRODUCER}{name}={text[:200]!r}: expected {kind}") from None
    return ProducerSettings(**values)


def _boolean(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError(text)
    return text.lower() == "true"


class KinesisWriter(Shipped, DataSourceWriter, DataSourceStreamWriter):
    """Puts the rows of each task. Spark ships it to executors."""

    def __init__(self, kinesis: KinesisSettings, producer: ProducerSettings, columns: RecordColumns) -> None:
        self._kinesis = kinesis
        self._producer = producer
        self._columns = columns

    @one_line_errors()
    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        """Put the rows of one task, and return when all are stored. Raises EfoError."""
        with collapse_groups():
            trio.run(self._write, iterator)
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int = 0) -> None:  # noqa: N803 - Spark's name
        """Do nothing: what a task has put is stored. Of a stream, Spark gives the number of the micro-batch, too."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int = 0) -> None:  # noqa: N803 - the same
        """Do nothing: what a task has put stays."""

    async def _write(self, rows: Iterator[Row]) -> None:
        chunks = self._chunks(rows)
        async with AsyncExitStack() as stack:
            producers: dict[str, Producer[bytes]] = {}
            # In a thread, since it waits for Java.
            while (chunk := await trio.to_thread.run_sync(next, chunks, None)) is not None:
                for stream, records in chunk.items():
                    if stream not in producers:
                        producers[stream] = await self._open(stream, stack)
                    await put_all(producers[stream], records)

    async def _open(self, stream: str, stack: AsyncExitStack) -> Producer[bytes]:
        client = await stack.enter_async_context(open_stream(self._kinesis.model_copy(update={"stream": stream})))
        return await stack.enter_async_context(open_producer(client, settings=self._producer))

    def _chunks(self, rows: Iterator[Row]) -> Iterator[dict[str, list[ProducerRecord[bytes]]]]:
        """Yield the records of some rows, by stream."""
        chunk: dict[str, list[ProducerRecord[bytes]]] = {}
        count = size = 0
        for row in rows:
            record = self._record(row)
            chunk.setdefault(self._stream(row), []).append(record)
            count, size = count + 1, size + len(record.data)
            if count >= _CHUNK_ROWS or size >= _CHUNK_BYTES:
                yield chunk
                chunk, count, size = {}, 0, 0
        if chunk:
            yield chunk

    def _record(self, row: Row) -> ProducerRecord[bytes]:
        data = row[self._columns.data]
        if data is None:
            raise ConfigurationError("a row has no data (null), and a record needs some: leave such rows out")
        data = data.encode() if isinstance(data, str) else bytes(data)
        return ProducerRecord(
            data, _text(row, self._columns.partition_key), _text(row, self._columns.explicit_hash_key)
        )

    def _stream(self, row: Row) -> str:
        stream = _text(row, self._columns.stream) or self._kinesis.stream
        if stream == _EACH_ROWS:
            raise ConfigurationError("a row has no stream (null), and there is no option stream for such rows")
        return stream


def _text(row: Row, index: int | None) -> str | None:
    value = None if index is None else row[index]
    if value is None or isinstance(value, str):
        return value
    try:
        return bytes(value).decode()
    except UnicodeDecodeError:
        raise ConfigurationError("a key is not UTF-8, which Kinesis requires: use hex() or base64()") from None
