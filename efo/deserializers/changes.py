"""Changes of tables: of DynamoDB, as its streams to Kinesis put them, and of any database, as AWS DMS puts them."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final, Generic, TypeVar, overload

import msgspec

from efo.checks import check_callable, check_count
from efo.deserializers.base import Deserializer, refused, with_data
from efo.deserializers.json_bounds import MAX_VALUES, Facts, JsonBounds, facts_of, tree_problem
from efo.deserializers.json_data import check_kind, name_of_kind, safe_reason
from efo.model import Record

T = TypeVar("T")

_INTEGER: Final = re.compile(r"-?\d{1,40}")
_MAX_DIGITS: Final = 60
"""Characters of a number of DynamoDB, which has at most 38 digits, a sign, a point and an exponent."""
_MAX_EXPONENT: Final = 130
"""Its numbers are from 1E-130 to 9.9E+125: one of an exponent that is far larger would fill the memory as an int."""
_MICROSECONDS: Final = 10**6
_MILLISECONDS: Final = 10**3


class DynamoDbChange(msgspec.Struct, Generic[T], frozen=True):
    """A change of an item of DynamoDB.

    `event_name`: INSERT, MODIFY or REMOVE. `keys`: the item's key. `new`, `old`: the item after and before the change;
    None if there was none, or it was not put. `at`: about when it happened, UTC. `user_identity`: who changed it, if
    that was DynamoDB itself, because the item expired.
    """

    event_id: str
    event_name: str
    table: str
    keys: Mapping[str, Any]
    new: T | None
    old: T | None
    at: datetime | None
    user_identity: Mapping[str, Any] | None = None


class _Image(msgspec.Struct, frozen=True, rename="pascal"):
    keys: dict[str, Any]
    new_image: dict[str, Any] | None = None
    old_image: dict[str, Any] | None = None
    approximate_creation_date_time: int | float | None = None
    approximate_creation_date_time_precision: str = "MILLISECOND"


class _DynamoDbEvent(
    msgspec.Struct,
    frozen=True,
    rename={"event_id": "eventID", "event_name": "eventName", "table": "tableName", "identity": "userIdentity"},
):
    event_id: str
    event_name: str
    dynamodb: _Image
    table: str = ""
    identity: dict[str, Any] | None = None


@overload
def dynamodb(kind: type[T], *, max_values: int = MAX_VALUES) -> Deserializer[DynamoDbChange[T]]: ...
@overload
def dynamodb(kind: Any = Any, *, max_values: int = MAX_VALUES) -> Deserializer[DynamoDbChange[Any]]: ...
def dynamodb(kind: Any = Any, *, max_values: int = MAX_VALUES) -> Deserializer[DynamoDbChange[Any]]:
    """Return a deserializer of what Kinesis Data Streams for DynamoDB puts: one change of one item.

    `kind`: what an item is: a msgspec Struct, a dataclass, a TypedDict; by default a dict. Numbers are int, or Decimal
    if they have a fraction or exponent, sets are sets, binary values are bytes. `max_values`: as for `json`. Raises
    ConfigurationError. A stream may have a change twice, and changes of an item in another order: compare `at`.
    """
    check_kind("dynamodb", kind)
    check_count("max_values", max_values)
    decoder = msgspec.json.Decoder(_DynamoDbEvent)
    bounds, facts = JsonBounds(Facts(), max_values, is_msgspec=True), facts_of(kind)

    def item(record: Record, image: dict[str, Any] | None) -> Any:
        if image is None:
            return None
        plain = {name: _plain(record, value) for name, value in image.items()}
        if kind is Any:
            return plain
        if problem := tree_problem(plain, facts):
            raise refused(record, problem)
        return msgspec.convert(plain, kind)

    def deserialize(record: Record) -> DynamoDbChange[Any]:
        if problem := bounds.problem(record.data):
            raise refused(record, problem)
        try:
            event = decoder.decode(record.data)
            image = event.dynamodb
            return DynamoDbChange(
                event.event_id,
                event.event_name,
                event.table,
                {name: _plain(record, value) for name, value in image.keys.items()},
                item(record, image.new_image),
                item(record, image.old_image),
                _time(image.approximate_creation_date_time, image.approximate_creation_date_time_precision),
                event.identity,
            )
        except (ValueError, ArithmeticError, RecursionError, OSError) as error:
            reason = safe_reason(error)
            raise refused(record, f"not a change of DynamoDB that fits {name_of_kind(kind)}: {reason}") from None

    return deserialize


def _time(at: float | None, precision: str) -> datetime | None:
    units = _MICROSECONDS if precision == "MICROSECOND" else _MILLISECONDS
    return None if at is None else datetime.fromtimestamp(at / units, UTC)


def _plain(record: Record, value: Any) -> Any:
    """Return an attribute value as a value of Python."""
    if isinstance(value, dict) and len(value) == 1:
        ((kind, content),) = value.items()
        match kind, content:
            case "L", list():
                return [_plain(record, each) for each in content]
            case "M", dict():
                return {name: _plain(record, each) for name, each in content.items()}
            case (("SS" | "NS" | "BS"), list()):
                if problem := tree_problem(content, _SETS):
                    raise refused(record, problem)
                return {_SCALARS[kind[0]](each) for each in content}
            case "BOOL", bool():
                return content
            case "NULL", _:
                return None
            case (("S" | "N" | "B"), str()):
                return _SCALARS[kind](content)
    raise refused(record, "not a change of DynamoDB: something is no attribute value")


def _number(content: str) -> int | Decimal:
    if _INTEGER.fullmatch(content):
        return int(content)
    number = Decimal(content) if len(content) <= _MAX_DIGITS else Decimal("NaN")
    if not number.is_finite() or abs(number.adjusted()) > _MAX_EXPONENT:
        raise ValueError("no number of DynamoDB")
    return number


_SETS: Final = Facts(hashes=True)
_SCALARS: Final[Mapping[str, Callable[[str], Any]]] = {
    "S": str,
    "N": _number,
    "B": lambda content: b64decode(content, validate=True),
}


class DmsChange(msgspec.Struct, Generic[T], frozen=True):
    """A change of a row that AWS Database Migration Service put, or one of its control records.

    `operation`: load, insert, update or delete; of a control record such as create-table. `data`: the row, as the inner
    deserializer returns it; None in a control record. `before`: the row before the change, if the endpoint puts it.
    `metadata`: all that DMS says of it.
    """

    operation: str
    schema: str
    table: str
    data: T | None
    before: T | None
    metadata: Mapping[str, Any]
    is_control: bool = False


class _DmsRecord(msgspec.Struct, frozen=True, rename="kebab"):
    metadata: dict[str, Any]
    data: msgspec.Raw = msgspec.Raw()
    before_image: msgspec.Raw = msgspec.Raw()


def dms(inner: Deserializer[T]) -> Deserializer[DmsChange[T]]:
    """Return a deserializer of what AWS DMS puts into a stream: `dms(json(Row))`.

    `inner`: gets the row in JSON, and the one before the change. DMS's control records have no row: `is_control` tells
    them. Raises ConfigurationError.
    """
    check_callable("inner", inner, "a deserializer", "record")
    decoder = msgspec.json.Decoder(_DmsRecord)
    bounds = JsonBounds(Facts(), MAX_VALUES, is_msgspec=True)

    def row(record: Record, raw: msgspec.Raw) -> T | None:
        data = bytes(raw)
        return None if data in (b"", b"null") else inner(with_data(record, data))

    def deserialize(record: Record) -> DmsChange[T]:
        if problem := bounds.problem(record.data):
            raise refused(record, problem)
        try:
            found = decoder.decode(record.data)
        except (ValueError, RecursionError) as error:
            raise refused(record, f"not a record of DMS: {safe_reason(error)}") from None
        names = [found.metadata.get(name, "") for name in ("operation", "schema-name", "table-name", "record-type")]
        operation, schema, table, kind = (name if isinstance(name, str) else "" for name in names)
        if not operation or kind not in ("data", "control"):
            raise refused(record, "not a record of DMS: its metadata has no operation, or another record-type")
        if is_control := kind == "control":
            return DmsChange(operation, schema, table, None, None, found.metadata, is_control)
        data, before = row(record, found.data), row(record, found.before_image)
        return DmsChange(operation, schema, table, data, before, found.metadata)

    return deserialize
