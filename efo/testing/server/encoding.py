"""The two encodings of requests and responses: JSON 1.1, and the CBOR of the AWS SDKs for Java.

In JSON, a blob is base64 and a timestamp is a number of seconds. In CBOR, a blob is a byte string and a timestamp is
tag 1 with *milliseconds*: RFC 8949 specifies seconds, but the SDKs for Java write and read milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from efo.testing.errors import serialization, unreadable
from efo.testing.server.shapes import INPUTS
from efo.testing.server.validation import check

JSON: Final = "application/x-amz-json-1.1"
CBOR: Final = "application/x-amz-cbor-1.1"

_TIME_TAG: Final = 1
_MIN_MILLIS: Final = 1e11  # in seconds, this would be the year 5138

T = TypeVar("T")


def content_type(headers: Mapping[str, str]) -> str:
    """Return the encoding of a request, JSON or CBOR. Raises SerializationException for any other."""
    kind = headers.get("content-type", JSON).partition(";")[0].strip().lower()
    if kind not in {JSON, CBOR}:
        raise serialization(f"Content-Type {kind[:100]!r}: expected {JSON} or {CBOR}")
    return kind


def decode(body: bytes, kind: str, operation: str, type_: type[T]) -> T:
    """Return a request body as a value of `type_`, after checking it against the operation's shape.

    Raises SerializationException: the body cannot be decoded, or a value has the wrong type. Raises
    ValidationException: a constraint is violated.
    """
    members = _from_cbor(body) if kind == CBOR else _from_json(body)
    check(members, INPUTS[operation])
    try:
        return msgspec.convert(members, type_, builtin_types=(bytes,) if kind == CBOR else ())
    except msgspec.ValidationError as error:  # invalid base64, or text instead of a blob in CBOR
        raise serialization(str(error)) from None


def encode(members: Any, kind: str) -> bytes:
    """Return a response body."""
    return _to_cbor(members) if kind == CBOR else msgspec.json.encode(members)


def _from_json(body: bytes) -> object:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise unreadable() from None


def _from_cbor(body: bytes) -> object:
    import cbor2  # noqa: PLC0415 - only CBOR clients need it

    try:
        return cbor2.loads(body, semantic_decoders={_TIME_TAG: _seconds})
    except (cbor2.CBORDecodeError, RecursionError):
        raise unreadable() from None


def _seconds(value: object, _immutable: bool) -> object:  # noqa: FBT001 - the signature that cbor2 requires
    if isinstance(value, int | float) and abs(value) >= _MIN_MILLIS:
        return value / 1000
    return value


def _to_cbor(members: Any) -> bytes:
    import cbor2  # noqa: PLC0415 - only CBOR clients need it

    plain = msgspec.to_builtins(members, builtin_types=(bytes,))
    encoded: bytes = cbor2.dumps(_with_times(plain))
    return encoded


def _with_times(value: Any) -> Any:
    """Return the value with CBOR tags on all timestamps."""
    import cbor2  # noqa: PLC0415 - only CBOR clients need it

    if isinstance(value, list):
        return [_with_times(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: cbor2.CBORTag(_TIME_TAG, round(member * 1000)) if name.endswith("Timestamp") else _with_times(member)
        for name, member in value.items()
    }
