"""Protobuf messages, by the class that protoc generated."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from efo.checks import shown
from efo.deserializers.base import Deserializer, refused
from efo.errors import ConfigurationError
from efo.model import Record

T = TypeVar("T")


def protobuf(message: type[T]) -> Deserializer[T]:
    """Return a deserializer of Protobuf messages of this class. Raises ConfigurationError if it is none.

    Protobuf cannot see everything: bytes of another message may be valid, with unknown fields.
    """
    from google.protobuf.message import DecodeError, Message  # noqa: PLC0415 - loaded only if it is used

    kind: object = message
    if not isinstance(kind, type) or not issubclass(kind, Message):
        raise ConfigurationError(f"protobuf({shown(message)}): expected a class of messages that protoc generated")
    parse = cast("Any", message).FromString

    def deserialize(record: Record) -> T:
        try:
            return cast("T", parse(record.data))
        except (DecodeError, ValueError, RecursionError):  # the last two from protobuf's parser in Python
            raise refused(record, f"not a Protobuf message that fits {message.__name__}") from None

    return deserialize
