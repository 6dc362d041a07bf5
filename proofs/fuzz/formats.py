"""What efo itself has written, read from places that others may write to: documents, objects of a log, recordings.

An input is a byte that chooses the format, and its bytes; those with a checksum get the right one. Each reader returns
what it reads, or raises the error that says what is damaged.
"""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import msgspec
import pyarrow as pa

from efo.errors import EfoError
from efo.leases.lease_row import LeaseRow
from efo.model import Checkpoint, Lease
from efo.testing.recording.file import RecordedLine
from efo_service.log import segments
from efo_service.log.catalog import catalog_from
from efo_service.log.disk_writer import segment_content
from efo_service.log.files import parse_fields
from efo_service.log.objects import codec
from efo_service.log.objects.head import Head, decode_head, encode_head
from efo_service.object_leases.document import (
    LeaseDocument,
    decode_document,
    decode_lease,
    encode_document,
    encode_lease,
)
from efo_service.relay.errors import SinkError
from proofs.fuzz.target import STEP, Target

_HEADER: Final = codec.Header(
    kind="commit", topic="orders", partition=0, stream="orders", shard="s-0", number=1, epoch=0, base=0, end=3,
    first="1", last="3", committed_at=0.0, write="w",
)  # fmt: skip
_ROWS: Final = [
    {
        "key": b"k", "value": b"v" * number, "topic": "orders", "partition": 0, "offset": number,
        "timestamp": 1_700_000_000_000_000 + number, "timestampType": 0, "headers": [{"key": "a", "value": b"x"}],
    }
    for number in range(3)
]  # fmt: skip
_BATCH: Final = pa.RecordBatch.from_pylist(_ROWS, schema=segments.SCHEMA)
_ORIGIN: Final = segments.Origin("orders", "s-0", Checkpoint("1"), Checkpoint("3"), 0.0)


def _lease_document(data: bytes) -> None:
    document = decode_document(data, "billing", "orders", "x")
    for key, row in document.rows.items():
        decode_lease(key, row, "x")


def _fields(data: bytes) -> None:
    fields = parse_fields(data, "x", "restore it", codec.FORMAT_VERSION)
    try:
        catalog_from(fields)
    except (ValueError, KeyError, TypeError, AttributeError):  # what read_catalog translates
        return


def _object(data: bytes) -> None:
    """Read an object of the log whose records are the input, with the right checksum."""
    text = msgspec.json.encode(msgspec.structs.replace(_HEADER, size=len(data), crc=crc32(data)))
    line = b"efo-object-log 1 %08d %08x\n" % (len(text), crc32(text))
    codec.decode(line + text + data, "x")[1].to_pydict()


def _segment(data: bytes) -> None:
    """Read a segment on a disk, with the right checksum in its name."""
    segment = segments.Segment(0, 3, crc32(data), Path(_DIRECTORY.name))
    try:
        segment.path.write_bytes(data)
        segments.read_segment.__wrapped__(segment)[0].to_pydict()  # type: ignore[attr-defined] # once, without pauses
    finally:
        segment.path.unlink()


def _header(data: bytes) -> None:
    line = b"efo-object-log 1 %08d %08x\n" % (len(data), crc32(data))
    codec.decode_header(line + data, "x")


_DIRECTORY: Final = tempfile.TemporaryDirectory(prefix="efo-fuzz-")
_READERS: Final[tuple[Callable[[bytes], Any], ...]] = (
    _lease_document,
    _fields,
    lambda data: decode_head(data, "x"),
    _header,
    _object,
    _segment,
    lambda data: codec.decode(data, "x"),
)
_RECORDING: Final = len(_READERS)


def check(data: bytes) -> None:
    """Read the input in the format that its first byte chooses."""
    if not data:
        return
    number = data[0] % (len(_READERS) + 1)
    try:
        if number == _RECORDING:
            _recording(data[1:])
        else:
            _READERS[number](data[1:])
    except (SinkError, EfoError, OverflowError):  # the last one: any number is a time, and few are a datetime
        return


def _recording(data: bytes) -> None:
    for text in io.BytesIO(data):
        try:
            msgspec.json.decode(text, type=RecordedLine)
        except (ValueError, RecursionError):  # what the recording's file translates
            return


def seeds() -> Iterator[bytes]:
    """Make one input of each format."""
    row = encode_lease(Lease("s-0", Checkpoint("1"), owner="w"))
    yield bytes([0]) + encode_document(LeaseDocument(1, ("w",), {"s-0": row}), "billing", "orders")
    catalog = {"format": 1, "stream": "orders", "partitions": {"s-0": 0}, "shards": {"0": "s-0"}, "written": [0]}
    yield bytes([1]) + json.dumps(catalog).encode()
    yield bytes([2]) + encode_head(Head(write="w", topic="orders", partition=0, stream="orders", shard="s-0"))
    yield bytes([3]) + msgspec.json.encode(_HEADER)
    whole = codec.encode(_HEADER, _BATCH)
    yield bytes([4]) + whole[whole.index(b"\n") + 1 :].partition(b"}")[2].lstrip(b" ")
    for is_compressed in (False, True):
        content = segment_content(_BATCH, _ORIGIN, is_compressed=is_compressed)
        yield bytes([5]) + b"".join(map(bytes, content.chunks))
    yield bytes([6]) + whole
    yield bytes([_RECORDING]) + b'{"capture": 2, "stream": {"name": "orders"}}\n{"shard": "s-0"}\n'
    for number in range(4):
        yield bytes([number]) + b"[" * 2000
    yield bytes([0]) + msgspec.json.encode({"format": 1, "leases": {"s-0": LeaseRow.of(Lease("s-0", Checkpoint("1")))}})


TARGET: Final = Target(
    "formats",
    "documents, objects and segments of a log, and recordings",
    check,
    seeds,
    dictionary=(b'"format":1', b'"leases":{', b'"segments":[', b"ARROW1", b"[[[[[[[["),
    max_length=8192,
    budget=STEP,
)
