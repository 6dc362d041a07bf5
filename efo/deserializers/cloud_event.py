"""CloudEvents 1.0: in structured mode, as one JSON object, and in binary mode, with attributes in the tags of a record.

CloudEvents has no binding for Kinesis, whose records have no headers. Only the user records of KPL aggregates have
tags. They are used here as the Kafka binding uses headers: `ce_id`, `ce_source` and so on, and `content-type`.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Generic, TypeVar

import msgspec

from efo.checks import check_callable
from efo.deserializers.base import Deserializer, refused, with_data
from efo.deserializers.json_bounds import MAX_VALUES, Facts, JsonBounds
from efo.deserializers.json_data import safe_reason
from efo.model import Record

T = TypeVar("T")

_VERSION: Final = "1.0"
_PREFIX: Final = "ce_"
_REQUIRED: Final = ("id", "source", "type")
_MAX_ATTRIBUTES: Final = 1000
"""The specification has some ten, and allows extensions; the data may claim any number."""


class CloudEvent(msgspec.Struct, Generic[T], frozen=True):
    """A CloudEvent. The attributes are those of the specification, as the event has them.

    `data`: the value of the inner deserializer; None if the event has no data. `extensions`: all other attributes.
    """

    id: str
    source: str
    type: str
    data: T | None = None
    time: datetime | None = None
    subject: str | None = None
    datacontenttype: str | None = None
    dataschema: str | None = None
    extensions: Mapping[str, Any] = {}


def cloudevents(inner: Deserializer[T]) -> Deserializer[CloudEvent[T]]:
    """Return a deserializer of CloudEvents. `inner` gets the event's data: JSON as JSON, other data as bytes.

    A record with the tag `ce_specversion` is in binary mode; any other one is in structured mode. A batch of events in
    one record is refused. Raises ConfigurationError.
    """
    check_callable("inner", inner, "a deserializer", "record")
    decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
    bounds = JsonBounds(Facts(), MAX_VALUES, is_msgspec=True)

    def deserialize(record: Record) -> CloudEvent[T]:
        tags = dict(record.tags)
        if f"{_PREFIX}specversion" in tags:
            attributes: dict[str, Any] = {
                name.removeprefix(_PREFIX): value for name, value in tags.items() if name.startswith(_PREFIX)
            }
            attributes.setdefault("datacontenttype", tags.get("content-type"))
            _check_attributes(record, attributes)
            data: bytes | None = record.data or None
        else:
            try:
                members = decoder.decode(record.data)
                data = _data(members)
                _check_attributes(record, members)
                if problem := bounds.problem(b",".join(map(bytes, members.values()))):
                    raise refused(record, problem)
                attributes = {name: msgspec.json.decode(value) for name, value in members.items()}
            except (ValueError, RecursionError) as error:
                raise refused(record, f"not a CloudEvent in JSON: {safe_reason(error)}") from None
        return _event(record, attributes, None if data is None else inner(with_data(record, data)))

    return deserialize


def _check_attributes(record: Record, attributes: Mapping[str, object]) -> None:
    if len(attributes) > _MAX_ATTRIBUTES:
        raise refused(record, f"not a CloudEvent: more than {_MAX_ATTRIBUTES:,} attributes")


def _data(members: dict[str, msgspec.Raw]) -> bytes | None:
    """Take the data out of an event. Data that is not JSON is a text, or in base64."""
    kind = members.get("datacontenttype")
    data, encoded = members.pop("data", None), members.pop("data_base64", None)
    if encoded is not None:
        return b64decode(msgspec.json.decode(encoded, type=str), validate=True)
    if data is None or bytes(data) == b"null":
        return None
    if kind is not None and not _is_json(msgspec.json.decode(kind, type=str)) and bytes(data).startswith(b'"'):
        return msgspec.json.decode(data, type=str).encode()
    return bytes(data)


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind.endswith(("/json", "+json"))


def _event(record: Record, attributes: dict[str, Any], data: T | None) -> CloudEvent[T]:
    version = attributes.pop("specversion", None)
    if version != _VERSION:
        found = "missing" if version is None else "another"
        raise refused(record, f"not a CloudEvent of version {_VERSION}: the attribute specversion is {found}")
    for name in _REQUIRED:
        if not isinstance(attributes.get(name), str) or not attributes[name]:
            raise refused(record, f"not a CloudEvent: the attribute {name} is missing, empty or no text")
    known = {name: attributes.pop(name, None) for name in ("time", "subject", "datacontenttype", "dataschema")}
    required = {name: attributes.pop(name) for name in _REQUIRED}
    try:
        event = msgspec.convert({**required, **known, "extensions": attributes}, CloudEvent[Any])
    except ValueError as error:
        raise refused(record, f"not a CloudEvent: {safe_reason(error)}") from None
    return msgspec.structs.replace(event, data=data)
