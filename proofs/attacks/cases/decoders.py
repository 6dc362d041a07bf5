"""Records that a decoder in C or Rust would crash or stand still by: one record each, in a real consumer."""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from collections.abc import Callable
from typing import Final
from uuid import UUID

from backports import zstd

from proofs.attacks.consuming import refused
from proofs.situations.situation import CANARY, Cases, Outcome

cases = Cases("decoders", seconds=300)

_MIB: Final = 1 << 20
_MODULUS: Final = 2**61 - 1
_RIGHT: Final = "refused as the record's failure, the process lives, no step of 50 ms"
_NODE: Final = {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]}
_TREE: Final = {"type": "record", "name": "N", "fields": [{"name": "all", "type": {"type": "array", "items": "N"}}]}
_NAMED: Final = {"type": "record", "name": "N", "fields": [{"name": "all", "type": {"type": "map", "values": "N"}}]}
_DECIMAL: Final = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}
_EMPTY: Final = {"type": "array", "items": {"type": "record", "name": "E", "fields": []}}


def _number(value: int) -> bytes:
    """Return a number in Avro's encoding."""
    value, encoded = (value << 1) ^ (value >> 63), b""
    while value > 127:
        encoded += bytes([value & 127 | 128])
        value >>= 7
    return encoded + bytes([value])


def _doubled(levels: int) -> object:
    schema: object = "null"
    for level in range(levels):
        inner = schema if isinstance(schema, str) else f"L{level - 1}"
        fields = [{"name": "a", "type": schema}, {"name": "b", "type": inner}]
        schema = {"type": "record", "name": f"L{level}", "fields": fields}
    return schema


def _avro(schema: object) -> str:
    return f"read = d.avro({json.dumps(schema)!r})"


def _keys(encode: Callable[[int], str], count: int = 20_000) -> bytes:
    return ("[" + ",".join(encode(number * _MODULUS) for number in range(count)) + "]").encode()


_MODELS: Final = """
import pydantic
class A(pydantic.BaseModel):
    c: typing.Optional["A | B"] = None
class B(pydantic.BaseModel):
    c: typing.Optional["A | B"] = None
    x: int = 0
A.model_rebuild()
"""
_BY_SCHEMA: Final = "read = d.confluent(d.by_schema({schemas}, d.avro))"
_HEADER: Final = struct.pack(">bI", 0, 7)

_RECORDS: Final[dict[str, tuple[str, Callable[[], bytes], str]]] = {
    "avro: 10 KB of nested nodes": (_avro(_NODE), lambda: b"\x02" * 10_000 + b"\0", "levels"),
    "avro: arrays within arrays": (_avro(_TREE), lambda: b"\x02" * 100_000 + b"\0" * 100_001, "levels"),
    "avro: maps within maps": (_avro(_NAMED), lambda: b"\x02\0" * 50_000 + b"\0" * 50_001, "levels"),
    "avro: nine bytes claim 2**60 empty items": (_avro(_EMPTY), lambda: _number(2**60) + b"\0", "values"),
    "avro: half a million blocks of one empty item": (_avro(_EMPTY), lambda: b"\x02" * 500_000 + b"\0", "values"),
    "avro: a million numbers": (
        _avro({"type": "array", "items": {"type": "long", "logicalType": "timestamp-millis"}}),
        lambda: _number(_MIB - 99) + bytes(_MIB - 99) + b"\0",
        "values",
    ),
    "avro: a schema whose values double 60 times": (_avro(_doubled(60)), lambda: b"", "values"),
    "avro: a decimal of 900 kB": (_avro(_DECIMAL), lambda: _number(900_000) + b"\x7f" * 900_000, "decimal"),
    "avro: nodes by a schema that the record chose": (
        _BY_SCHEMA.format(schemas={7: json.dumps(_NODE)}), lambda: _HEADER + b"\x02" * 50_000 + b"\0", "levels",
    ),
    "avro: a schema of the registry without an end": (
        _BY_SCHEMA.format(schemas='{7: \'{"type":"array","items":\' * 50_000}'), lambda: _HEADER + b"\0", "schema 7",
    ),
    "avro: a schema of the registry of 20 MB": (
        _BY_SCHEMA.format(schemas="{7: '\"long\"' + ' ' * 20_000_000}"), lambda: _HEADER + b"\0", "schema 7",
    ),
    "text: 900 kB of punycode": ('read = d.text("punycode")', lambda: b"-" + b"b" * 900_000, "punycode"),
    "text: 900 kB of idna": ('read = d.text("idna")', lambda: b"xn--a9." * 128_000, "idna"),
    "json: nested 500,000 times": ("read = d.json()", lambda: b"[" * 500_000, "JSON"),
    "json: a megabyte of lists in lists": ("read = d.json()", lambda: b"[" + b"[[]]," * 200_000 + b"0]", "values"),
    "json: 170,000 numbers like 1e308": ("read = d.json()", lambda: b"[" + b"1e308," * 170_000 + b"0]", "exponents"),
    "json: keys that are equal modulo 2**61 - 1": (
        "read = d.json(dict[int, int])",
        lambda: json.dumps({str(number * _MODULUS): 0 for number in range(20_000)}).encode(),
        "hash",
    ),
    "json: a set of UUIDs of one hash": (
        "read = d.json(set[uuid.UUID])", lambda: _keys(lambda number: f'"{UUID(int=number)}"'), "hash",
    ),
    "json: a set of pairs of one hash": (
        "read = d.json(set[tuple[int, int]])", lambda: _keys(lambda number: f"[0,{number}]"), "hash",
    ),
    "json: objects of 300 fields that are left out": (
        "import msgspec; read = d.json(list[msgspec.defstruct('S', [(f'f{n}', int, 0) for n in range(300)])])",
        lambda: b"[" + b"{}," * 300_000 + b"{}]",
        "values",
    ),
    "pydantic: 300 bytes of unions in unions": (
        _MODELS + "read = d.pydantic(A)", lambda: b'{"c":' * 60 + b'{"c":1}' + b"}" * 60, "alternatives",
    ),
    "pydantic: a set of numbers of one hash": ("read = d.pydantic(set[int])", lambda: _keys(str), "hash"),
    "pydantic: 90,000 errors": (
        "read = d.pydantic(list[int])", lambda: b"[" + b'"x",' * 90_000 + b"0]", "errors",
    ),
    "pydantic: 300,000 models": (
        _MODELS + "read = d.pydantic(list[B])", lambda: b"[" + b"{}," * 300_000 + b"{}]", "values",
    ),
    "protobuf: messages within messages": (
        "from google.protobuf import descriptor_pb2\nread = d.protobuf(descriptor_pb2.DescriptorProto)",
        lambda: _nested_messages(5000),
        "Protobuf",
    ),
    "cloudevents: 60,000 attributes": (
        "read = d.cloudevents(d.json())",
        lambda: json.dumps({"specversion": "1.0", "id": "1"} | {f"{n:x}": 0 for n in range(60_000)}).encode(),
        "attributes",
    ),
    "cloudevents: an attribute of numbers like 1e308": (
        "read = d.cloudevents(d.json())",
        lambda: b'{"specversion":"1.0","a":[' + b"1e308," * 150_000 + b"0]}",
        "exponents",
    ),
    "gzip: 17 KB become 17 MiB": ("read = d.gzip(d.raw)", lambda: gzip.compress(bytes(17 * _MIB)), "more than"),
    "gzip: 50,000 members": ("read = d.gzip(d.raw)", lambda: gzip.compress(b"") * 50_000, "parts"),
    "gzip: 73 KB become 8 million lists": (
        "read = d.gzip(d.json())", lambda: gzip.compress(b"[" + b"[]," * (5 * _MIB) + b"0]"), "values",
    ),
    "gzip: three layers": (
        "read = d.gzip(d.gzip(d.gzip(d.raw)))",
        lambda: gzip.compress(gzip.compress(gzip.compress(bytes(40 * _MIB)))),
        "more than",
    ),
    "zstd: 600 bytes become 17 MiB": ("read = d.zstd(d.raw)", lambda: zstd.compress(bytes(17 * _MIB)), "more than"),
    "zstd: 100,000 frames to skip": ("read = d.zstd(d.raw)", lambda: b"\x50\x2a\x4d\x18\0\0\0\0" * 100_000, "parts"),
    "glue: zlib of 20 MiB": (
        "read = d.glue(d.raw)", lambda: bytes([3, 5]) + bytes(16) + zlib.compress(bytes(20 * _MIB)), "more than",
    ),
}  # fmt: skip
"""By the name of the case: what makes the deserializer, the record, and a word of the reason that it is refused for."""


def _nested_messages(levels: int) -> bytes:
    data = b""
    for _ in range(levels):
        length, encoded = len(data), b""
        while length > 127:
            encoded += bytes([length & 127 | 128])
            length >>= 7
        data = b"\x1a" + encoded + bytes([length]) + data
    return data


def _register(name: str, make: str, data: Callable[[], bytes], reason: str) -> None:
    @cases.case(_RIGHT, name=name)
    def _() -> Outcome:
        return refused(make, data(), reason=reason)


for _name, (_make, _data, _reason) in _RECORDS.items():
    _register(_name, _make, _data, _reason)


@cases.case("refused, without anything of the data", name="secrets: no reason quotes the data")
def _() -> Outcome:
    return refused(
        "import msgspec\nclass S(msgspec.Struct, forbid_unknown_fields=True):\n    a: int = 0\nread = d.json(S)",
        json.dumps({CANARY: 1}).encode(),
        json.dumps({"a": CANARY}).encode(),
        f'{{"a": {CANARY}}}'.encode(),
    )
