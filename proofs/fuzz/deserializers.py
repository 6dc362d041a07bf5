"""Every deserializer, and a schema that a record chose: any bytes give a value or a DeserializationError, in time.

An input is a byte that chooses the schema or the type, and the data of a record. What the decoders themselves return is
theirs; here no process may end, no other exception may come, and no input may take longer than a step of a task may
(`tests/step_meter.py`).
"""

from __future__ import annotations

import dataclasses
import gzip
import io
import json
import struct
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any, Final, Optional

import fastavro
import msgspec
import pydantic
from backports import zstd
from google.protobuf import descriptor_pb2

from efo import Record, deserializers
from efo.errors import ConfigurationError, DeserializationError
from proofs.fuzz.target import STEP, Target, require

_LIMIT: Final = 2000
"""`max_values`: the bound itself is what costs most, and atheris makes Python slower."""
_MAX_SIZE: Final = 64 * 1024
_MAX_REASON: Final = 300

Reader = Callable[[Record], object]


class Struct(msgspec.Struct):
    """A type of msgspec with most of what a type may have."""

    a: int = 0
    keys: dict[int, str] = {}
    ids: set[uuid.UUID] = set()
    price: Decimal = Decimal(0)
    next: Optional[Struct] = None  # noqa: UP045 - it contains itself


@dataclasses.dataclass(frozen=True)
class Point:
    """A type whose values may be in sets."""

    x: int
    y: int = 0


class Model(pydantic.BaseModel):
    """A type of pydantic that is a union of objects, and contains itself."""

    a: int = 0
    keys: dict[int, str] = {}
    next: Optional[Model | Other] = None  # noqa: UP045 - it contains itself


class Other(pydantic.BaseModel):
    """The other alternative."""

    next: Optional[Model | Other] = None  # noqa: UP045 - the same
    ids: set[uuid.UUID] = set()


Model.model_rebuild()

_NODE: Final = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
_TREE: Final = {
    "type": "record",
    "name": "Tree",
    "fields": [
        {"name": "all", "type": {"type": "array", "items": "Tree"}},
        {"name": "named", "type": {"type": "map", "values": "Tree"}},
    ],
}
_ORDER: Final = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "DONE"]}},
        {"name": "tags", "type": {"type": "map", "values": ["null", "string"]}},
        {"name": "lines", "type": {"type": "array", "items": "double"}},
    ],
}
SCHEMAS: Final[tuple[Any, ...]] = (
    _NODE, _TREE, _ORDER, {"type": "array", "items": "null"}, ["null", "long", _NODE],
    {"type": "array", "items": {"type": "record", "name": "Empty", "fields": []}},
)  # fmt: skip


def target(
    name: str, description: str, readers: Sequence[Reader], seeds: Iterable[bytes], words: Iterable[bytes]
) -> Target:
    """Return the target of some deserializers. `seeds`: data, for each of them."""
    data_of_seeds = tuple(seeds)

    def check(data: bytes) -> None:
        if data:
            refuses_or_reads(readers[data[0] % len(readers)], data[1:])

    def numbered() -> Iterator[bytes]:
        return (bytes([number]) + seed for seed in data_of_seeds for number in range(len(readers)))

    return Target(name, description, check, numbered, dictionary=tuple(words), budget=STEP)


def refuses_or_reads(read: Reader, data: bytes) -> None:
    """Check one record."""
    try:
        read(Record("49590", 0.0, data, "customer-1"))
    except DeserializationError as error:
        require(len(error.reason) <= _MAX_REASON, "a reason is long")


def check_schema(data: bytes) -> None:
    """Read a record by a schema that is in the input: its text, a byte 0, and the data."""
    text, _, value = data.partition(b"\0")
    try:
        read = deserializers.avro(text.decode(errors="replace"), max_values=_LIMIT)
    except ConfigurationError:
        return
    refuses_or_reads(read, value)


def _schema_seeds() -> Iterator[bytes]:
    for schema in SCHEMAS:
        yield json.dumps(schema).encode() + b"\0" + b"\x02" * 9 + b"\0"


def _avro_seeds() -> Iterator[bytes]:
    order = {"id": 7, "price": Decimal("9.50"), "at": 0, "state": "NEW", "tags": {"a": None}, "lines": [0.5]}
    for schema, value in ((_ORDER, order), (_NODE, {"next": {"next": None}}), (_TREE, {"all": [], "named": {}})):
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
        yield stream.getvalue()
    yield b"\x80\x80\x80\x80\x80\x80\x80\x80\x20\x00"
    yield b"\x02" * 300 + b"\0" * 300


def _json_seeds() -> Iterator[bytes]:
    ids = [str(uuid.UUID(int=number * (2**61 - 1))) for number in range(30)]
    for value in ({"a": 1}, {"keys": {"7": "x"}, "ids": ids[:2]}, [[0, 1]], {"next": {"next": {"a": 5}}}, {"ids": ids}):
        yield json.dumps(value).encode()
    yield b"[" * 300
    yield b"[1e308,1e-308,4.9e-324]"


def _event_seeds() -> Iterator[bytes]:
    event = {
        "specversion": "1.0",
        "id": "1",
        "source": "/s",
        "type": "t",
        "data": {"a": 1},
        "time": "2026-01-02T03:04:05Z",
    }
    yield json.dumps(event).encode()
    yield json.dumps(event | {"data_base64": "AAE="}).encode()


def _compressed_seeds() -> Iterator[bytes]:
    for compress in (gzip.compress, zstd.compress):
        yield compress(b'{"a": 1}')
        yield compress(b"x") * 3
        yield compress(bytes(100_000))


_GLUE: Final = bytes([3, 5]) + bytes(16) + zlib.compress(b"\x02")
_WORDS: Final = (b"[[[[", b'{"a":', b"1e308", b"\\ud800", b'"next":', b'"ids":[', b'"keys":{', b"2305843009213693951")

JSON: Final = target(
    "json",
    "the deserializer of JSON",
    [
        deserializers.json(kind, max_values=_LIMIT)
        for kind in (
            Any,
            Struct,
            list[Struct],
            dict[int, int],
            set[int],
            set[Decimal],
            set[Point],
            set[tuple[int, int]],
        )
    ],
    _json_seeds(),
    _WORDS,
)
PYDANTIC: Final = target(
    "pydantic",
    "the deserializer of JSON that pydantic validates",
    [deserializers.pydantic(kind, max_values=_LIMIT) for kind in (Model, list[Model], dict[int, int], set[Decimal])],
    _json_seeds(),
    _WORDS,
)
AVRO: Final = target(
    "avro",
    "the deserializer of Avro",
    [deserializers.avro(schema, max_values=_LIMIT) for schema in SCHEMAS],
    _avro_seeds(),
    (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x80\x80\x80\x80\x80\x80\x80\x80\x20"),
)
SCHEMA: Final = Target(
    "schema",
    "Avro by a schema of a registry",
    check_schema,
    _schema_seeds,
    dictionary=(
        b'"type":',
        b'"record"',
        b'"array"',
        b'"items":',
        b'"fields":[',
        b'"logicalType":"decimal"',
        b'"size":',
    ),
    budget=STEP,
)
PROTOBUF: Final = target(
    "protobuf",
    "the deserializer of Protobuf",
    [
        deserializers.protobuf(descriptor_pb2.FileDescriptorProto),
        deserializers.protobuf(descriptor_pb2.DescriptorProto),
    ],
    [descriptor_pb2.DESCRIPTOR.serialized_pb[:500], b"\x1a\x00" * 100, b"\x1a\x02" * 200],
    (b"\x1a\x02", b"\xff\xff\xff\xff\x0f"),
)
TEXT: Final = target(
    "text",
    "the deserializer of text",
    [
        deserializers.text(name)
        for name in (
            "utf-8",
            "utf-16",
            "utf-7",
            "punycode",
            "idna",
            "unicode_escape",
            "iso2022_jp_2004",
            "hz",
            "gb18030",
        )
    ],
    [b"abc", b"maana-pta", b"xn--maana-pta.", b"\x1b$B!!", b"\\N{DIGIT ONE}", b"+AGEAYg-", b"-b" * 100],
    (b"xn--", b"\\N{", b"\x1b$"),
)
COMPRESSED: Final = target(
    "compressed",
    "the deserializers of gzip and Zstandard",
    [
        deserializers.gzip(deserializers.raw, max_size=_MAX_SIZE),
        deserializers.zstd(deserializers.raw, max_size=_MAX_SIZE),
        deserializers.gzip(
            deserializers.gzip(deserializers.json(max_values=_LIMIT), max_size=_MAX_SIZE), max_size=_MAX_SIZE
        ),
    ],
    _compressed_seeds(),
    (b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"\x50\x2a\x4d\x18"),
)
REGISTRIES: Final = target(
    "registries",
    "the headers of schema registries, with schemas by id",
    [
        deserializers.confluent(deserializers.by_schema({7: '"long"', 8: json.dumps(_NODE)}, deserializers.avro)),
        deserializers.confluent(deserializers.raw, message_index=True),
        deserializers.glue(
            deserializers.by_schema({uuid.UUID(int=0): '"long"'}, deserializers.avro), max_size=_MAX_SIZE
        ),
        deserializers.glue(deserializers.raw, message_index=True, max_size=_MAX_SIZE),
    ],
    [struct.pack(">bI", 0, 7) + b"\x02", struct.pack(">bI", 0, 8) + b"\x02" * 9, _GLUE, _GLUE[:18] + b"\x02\x00"],
    (b"\0\0\0\0\x07", b"\x03\x05"),
)
CLOUD_EVENTS: Final = target(
    "cloudevents",
    "the deserializer of CloudEvents",
    [deserializers.cloudevents(deserializers.json(max_values=_LIMIT)), deserializers.cloudevents(deserializers.raw)],
    _event_seeds(),
    (*_WORDS, b'"specversion":"1.0"', b'"data_base64":"', b'"datacontenttype":"'),
)
TARGETS: Final = (
    JSON, PYDANTIC, AVRO, SCHEMA, PROTOBUF, TEXT, COMPRESSED, REGISTRIES, CLOUD_EVENTS,
)  # fmt: skip
