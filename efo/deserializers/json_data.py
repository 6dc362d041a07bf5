"""JSON, decoded by msgspec: to its Structs, dataclasses, TypedDicts and the types of Python."""

from __future__ import annotations

import re
from typing import Any, Final, TypeVar, overload

import msgspec

from efo.checks import check_count, shown
from efo.deserializers.base import Deserializer, refused
from efo.deserializers.json_bounds import MAX_VALUES, JsonBounds, facts_of
from efo.errors import ConfigurationError
from efo.model import Record
from efo.third_party_errors import reason_of

T = TypeVar("T")

_SAFE: Final = re.compile(
    r"(Expected .*?|JSON is malformed: .*?|Input data was truncated|Object missing required field `.*?`)"
    r"( - at `\$[^`]*`)?$"
)
"""The messages of msgspec that contain nothing of the data. Others name a value, or a field that the data has."""
_PLACE: Final = re.compile(r" - at `\$[^`]*`$")


@overload
def json(kind: type[T], *, strict: bool = True, max_values: int = MAX_VALUES) -> Deserializer[T]: ...
@overload
def json(kind: Any = Any, *, strict: bool = True, max_values: int = MAX_VALUES) -> Deserializer[Any]: ...
def json(kind: Any = Any, *, strict: bool = True, max_values: int = MAX_VALUES) -> Deserializer[Any]:
    """Return a deserializer of JSON.

    `kind`: what the value is: a msgspec Struct, a dataclass, a TypedDict, `dict[str, int]`, a union of Structs with
    tags; by default whatever the JSON is. `strict`: False also accepts "1" for an integer. `max_values`: JSON of more
    values than this is refused. Raises ConfigurationError for a type that msgspec cannot decode.
    """
    check_kind("json", kind)
    check_count("max_values", max_values)
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind, strict=strict)
    bounds = JsonBounds(facts_of(kind), max_values, is_msgspec=True)
    small = bounds.small

    def deserialize(record: Record) -> Any:
        if len(record.data) > small and (problem := bounds.problem(record.data)):
            raise refused(record, problem)
        try:
            return decoder.decode(record.data)
        except (ValueError, RecursionError) as error:  # msgspec's own errors are ValueErrors
            raise refused(record, f"not JSON that fits {name_of_kind(kind)}: {safe_reason(error)}") from None

    return deserialize


def check_kind(name: str, kind: Any) -> None:
    """Check that msgspec can make values of this type. Raises ConfigurationError."""
    if hasattr(kind, "__pydantic_validator__"):
        raise ConfigurationError(
            f"{name}({name_of_kind(kind)}): a type of pydantic; JSON of it is efo.deserializers.pydantic"
        )
    if isinstance(kind, str):
        raise ConfigurationError(f"{name}({shown(kind)}): expected the type itself, not its name")
    try:
        info = msgspec.inspect.type_info(kind)
    except Exception as error:  # noqa: BLE001 - annotations are evaluated here, and may raise anything
        raise ConfigurationError(f"{name}({shown(kind)}): msgspec cannot use this type: {reason_of(error)}") from None
    if isinstance(info, msgspec.inspect.CustomType):
        raise ConfigurationError(f"{name}({shown(kind)}): expected a type that msgspec decodes, such as a Struct")


def name_of_kind(kind: Any) -> str:
    """Return how messages name a type."""
    return "any value" if kind is Any else str(getattr(kind, "__name__", None) or kind)


def safe_reason(error: Exception) -> str:
    """Return what an error of msgspec says, without anything that the data contains."""
    if not isinstance(error, msgspec.MsgspecError):
        return type(error).__name__
    text = str(error)
    if _SAFE.match(text):
        return text
    place = _PLACE.search(text)
    return "invalid value" + (place[0] if place else "")
