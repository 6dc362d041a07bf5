"""Export of the log's records as JSON lines, Parquet or Arrow, for people and for programs without Spark.

{"topic":"orders","partition":0,"offset":7,"key":"customer-7","value":"eyJpZCI6MX0=","timestamp":1700000000123,
"headers":[["kinesis.stream","orders"],...]}
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc

from efo.errors import ConfigurationError
from efo_service.log.files import LogFiles
from efo_service.log.reading import Bound, OnGap, Selection, plan, read, sized
from efo_service.log.segments import SCHEMA
from efo_service.relay.jsonlines import Encoding

FileFormat = Literal["jsonl", "parquet", "arrow"]


class ExportedLine(msgspec.Struct, frozen=True):
    """One line. msgspec encodes bytes in base64."""

    topic: str
    partition: int
    offset: int
    key: str | None
    value: str | bytes
    timestamp: int
    headers: list[tuple[str, str | None]]


_encode = msgspec.json.Encoder().encode


def export(
    files: LogFiles,
    topic: str,
    *,
    partition: int | None = None,
    start: Bound = None,
    end: Bound = None,
    encoding: Encoding,
    on_gap: OnGap | None = None,
) -> Iterator[bytes]:
    """Yield the lines of a topic or of one partition, for the offsets `start` to `end` - 1.

    Without `start`, a partition starts at its oldest record. `on_gap`: pass over records that are missing, and over
    partitions that are emptied or not in the catalog, and call it with a message for each, instead of raising
    SegmentMissingError or LogIncompleteError. Raises ConfigurationError, TopicNotFoundError, SegmentCorruptError,
    LogOwnerError and SinkError.
    """
    for batch in _records(files, topic, Selection(None if partition is None else [partition], start, end), on_gap):
        yield from _lines(batch, encoding)


def export_file(
    files: LogFiles,
    topic: str,
    path: Path,
    form: FileFormat,
    *,
    partition: int | None = None,
    start: Bound = None,
    end: Bound = None,
    encoding: Encoding = "base64",
    on_gap: OnGap | None = None,
) -> None:
    """Write these records into a new file, which is removed if that fails. Raises as `export` does, and OSError.

    `form`: jsonl, or the columns of the log as parquet (zstd) or arrow (an uncompressed IPC file with its batches).
    """
    selection = Selection(None if partition is None else [partition], start, end)
    with path.open("xb") as file:
        try:
            if form == "jsonl":
                file.writelines(
                    export(files, topic, partition=partition, start=start, end=end, encoding=encoding, on_gap=on_gap)
                )
                return
            with _writer(file, form) as writer:
                for batch in sized(_records(files, topic, selection, on_gap)):
                    writer.write_batch(batch)
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def _writer(file: IO[bytes], form: Literal["parquet", "arrow"]) -> Any:
    if form == "arrow":
        return pa.ipc.new_file(file, SCHEMA)
    from pyarrow import parquet  # noqa: PLC0415 - slow to import, and seldom used

    return parquet.ParquetWriter(file, SCHEMA, compression="zstd")


def _records(files: LogFiles, topic: str, selection: Selection, on_gap: OnGap | None) -> Iterator[pa.RecordBatch]:
    return read(*plan(files, topic, selection, on_gap), on_gap)


def _lines(batch: pa.RecordBatch, encoding: Encoding) -> Iterator[bytes]:
    names = ("topic", "partition", "offset", "key", "value", "headers")
    columns = [batch.column(name).to_pylist() for name in names]
    milliseconds = pc.divide(batch.column("timestamp").cast(pa.int64()), 1000).to_pylist()
    for topic, partition, offset, key, value, headers, timestamp in zip(*columns, milliseconds, strict=True):
        exported = value
        if encoding == "utf-8":
            try:
                exported = value.decode()
            except UnicodeDecodeError as error:
                raise ConfigurationError(
                    f"the value at {topic}/{partition}/{offset} is not UTF-8 ({error.reason}): export it as base64"
                ) from error
        pairs = [(one["key"], None if one["value"] is None else one["value"].decode()) for one in headers]
        text = None if key is None else key.decode()
        yield _encode(ExportedLine(topic, partition, offset, text, exported, timestamp, pairs)) + b"\n"
