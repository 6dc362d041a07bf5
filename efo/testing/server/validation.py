"""Checks the members of a request against the service model, with AWS's error messages.

A value of the wrong type is a SerializationException. A missing value, or one that violates a constraint, is a
ValidationException, which lists all violations (AWS: JSON 1.1 protocol; constraint traits).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from efo.testing.errors import FakeError, serialization, validation

Kind = Literal["string", "integer", "timestamp", "boolean", "blob", "list", "map", "structure"]
_MAX_QUOTED: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The type and the constraints of a member.

    `minimum`, `maximum`: limits of an integer's value, or of the length of any other type. `values`: the values of an
    enumeration. `members`: the members of a structure, by name. `element`: the items of a list or the values of a map.
    `keys`: the keys of a map.
    """

    kind: Kind
    required: bool = False
    minimum: int | None = None
    maximum: int | None = None
    pattern: str | None = None
    values: tuple[str, ...] = ()
    members: Mapping[str, Shape] = field(default_factory=dict)
    element: Shape | None = None
    keys: Shape | None = None


def required(shape: Shape) -> Shape:
    """Return the shape as a required member."""
    return replace(shape, required=True)


def check(members: object, shape: Shape) -> None:
    """Raise SerializationException or ValidationException if `members`, a request body, does not have this shape."""
    _check_type(members, shape, "the body")
    violations = list(_violations(members, shape, ""))
    if violations:
        count = f"{len(violations)} validation error{'s' if len(violations) > 1 else ''} detected"
        raise validation(f"{count}: {'; '.join(violations)}")


# --- types -----------------------------------------------------------------------------------------------------


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_FITS: Final[dict[Kind, Callable[[object], bool]]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "timestamp": _is_number,
    "boolean": lambda value: isinstance(value, bool),
    "blob": lambda value: isinstance(value, str | bytes),
    "list": lambda value: isinstance(value, list),
    "map": lambda value: isinstance(value, dict),
    "structure": lambda value: isinstance(value, dict),
}
_LAST_OF_ONE_BYTE: Final = frozenset("AQgw")
_LAST_OF_TWO_BYTES: Final = frozenset("AEIMQUYcgkosw048")
_TOKENS: Final[tuple[tuple[type, str], ...]] = (
    (bool, "BOOLEAN_VALUE"),
    (str, "STRING_VALUE"),
    (int, "NUMBER_VALUE"),
    (float, "DECIMAL_VALUE"),
    (bytes, "BLOB_VALUE"),
    (list, "START_ARRAY"),
    (dict, "START_OBJECT"),
)


def _check_type(value: object, shape: Shape, path: str) -> None:
    if value is None and path != "the body":
        return
    if not _FITS[shape.kind](value):
        raise _wrong_type(value, shape, path)
    if shape.kind == "blob" and isinstance(value, str) and not _is_canonical(value):
        raise serialization(f"'{path}' can not be converted to a Blob: Invalid last non-pad Base64 character dectected")
    if isinstance(value, dict):
        for name, member in value.items():
            if shape.kind == "map" and shape.element is not None:
                _check_type(member, shape.element, str(name))
            elif name in shape.members:
                _check_type(member, shape.members[name], str(name))
    elif isinstance(value, list) and shape.element is not None:
        for item in value:
            _check_type(item, shape.element, path)


def _is_canonical(text: str) -> bool:
    """Return whether the unused bits of the last character of this base64 are zero. The decoder checks the rest."""
    if text.endswith("=="):
        return text[-3:-2] in _LAST_OF_ONE_BYTE
    return not text.endswith("=") or text[-2:-1] in _LAST_OF_TWO_BYTES


def _wrong_type(value: object, shape: Shape, path: str) -> FakeError:
    token = next((name for kind, name in _TOKENS if isinstance(value, kind)), "NULL_VALUE")
    return serialization(f"{token} can not be converted to a {shape.kind.capitalize()}: {path}")


# --- constraints -----------------------------------------------------------------------------------------------


def _violations(value: Any, shape: Shape, path: str) -> Iterator[str]:
    """Yield the violated constraints of a value of the right type, and of its members."""
    if value is None:
        if shape.required:
            yield _violation("null", path, "Member must not be null")
        return
    quoted = _quote(value, shape)
    yield from (_violation(quoted, path, rule) for rule in _broken_rules(value, shape))
    for name, member in shape.members.items():
        yield from _violations(value.get(name), member, f"{path}.{_member(name)}" if path else _member(name))
    if shape.element is not None and isinstance(value, list):
        for number, item in enumerate(value, 1):
            yield from _violations(item, shape.element, f"{path}.{number}.member")
    if shape.element is not None and shape.keys is not None and isinstance(value, dict):
        for key, item in value.items():
            yield from _violations(key, shape.keys, f"{path}.key")
            yield from _violations(item, shape.element, f"{path}.{key}.member")


def _broken_rules(value: Any, shape: Shape) -> Iterator[str]:
    if shape.values and value not in shape.values:
        yield f"Member must satisfy enum value set: [{', '.join(shape.values)}]"
    if shape.pattern is not None and not re.fullmatch(shape.pattern, value):
        yield f"Member must satisfy regular expression pattern: {shape.pattern}"
    measure, size = ("value", value) if shape.kind == "integer" else ("length", _length(value, shape))
    if shape.maximum is not None and size > shape.maximum:
        yield f"Member must have {measure} less than or equal to {shape.maximum}"
    if shape.minimum is not None and size < shape.minimum:
        yield f"Member must have {measure} greater than or equal to {shape.minimum}"


def _length(value: Any, shape: Shape) -> int:
    if shape.kind == "blob" and isinstance(value, str):  # base64
        return len(value) * 3 // 4 - value[-2:].count("=")
    return len(value) if isinstance(value, str | bytes | list | dict) else 0


def _quote(value: object, shape: Shape) -> str:
    """Return a value as AWS quotes it: never data, and no more than 256 characters."""
    text = "java.nio.HeapByteBuffer" if shape.kind == "blob" else str(value)
    return f"'{text[:_MAX_QUOTED]}'"


def _violation(value: str, path: str, rule: str) -> str:
    return f"Value {value} at '{path}' failed to satisfy constraint: {rule}"


def _member(name: str) -> str:
    """Return a member's name as in AWS's messages: StreamName as streamName, StreamARN as streamARN."""
    return name[0].lower() + name[1:]
