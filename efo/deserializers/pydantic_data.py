"""JSON, validated by pydantic."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar, overload

from efo.checks import check_count, shown
from efo.deserializers.base import Deserializer, missing_extra, refused
from efo.deserializers.json_bounds import MAX_VALUES, Facts, JsonBounds
from efo.deserializers.json_data import name_of_kind
from efo.errors import ConfigurationError
from efo.model import Record
from efo.third_party_errors import reason_of

T = TypeVar("T")

_MAX_ERRORS: Final = 100
"""How many errors of one record are made to Python's objects, to name the first of them."""


@overload
def pydantic(kind: type[T], *, strict: bool | None = None, max_values: int = MAX_VALUES) -> Deserializer[T]: ...
@overload
def pydantic(kind: Any, *, strict: bool | None = None, max_values: int = MAX_VALUES) -> Deserializer[Any]: ...
def pydantic(kind: Any, *, strict: bool | None = None, max_values: int = MAX_VALUES) -> Deserializer[Any]:
    """Return a deserializer of JSON to a pydantic model, or to any other type that pydantic knows.

    `strict`: as in pydantic's `validate_json`; None: as the model says. `max_values`: as for `json`. Raises
    MissingExtraError without pydantic, and ConfigurationError for a type that it does not know.
    """
    try:
        from pydantic import PydanticSchemaGenerationError, TypeAdapter, ValidationError  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise missing_extra("pydantic", "pydantic", "pydantic") from error
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(kind)
    except (PydanticSchemaGenerationError, NameError, TypeError) as error:
        raise ConfigurationError(
            f"pydantic({shown(kind)}): pydantic cannot use this type: {reason_of(error)}"
        ) from None
    check_count("max_values", max_values)
    fields = {one.alias or name for name, one in getattr(kind, "model_fields", {}).items()}
    bounds: JsonBounds | None = None

    def deserialize(record: Record) -> Any:
        nonlocal bounds
        if bounds is None:  # a model may name classes that are defined later
            bounds = JsonBounds(facts_of(adapter.core_schema), max_values, is_msgspec=False)
        if len(record.data) > bounds.small and (problem := bounds.problem(record.data)):
            raise refused(record, problem)
        try:
            return adapter.validate_json(record.data, strict=strict)
        except ValidationError as error:
            # The texts of these errors contain data, and so do the names of fields that the model does not have.
            if (count := error.error_count()) > _MAX_ERRORS:
                raise refused(record, f"not JSON that fits {name_of_kind(kind)}: {count:,} errors") from None
            found = error.errors(include_url=False, include_context=False, include_input=False)
            reasons = [_reason(one["type"], one["loc"][:1], fields) for one in found[:3]]
            reason = ", ".join([*reasons, *(["..."] if len(found) > len(reasons) else [])])
            raise refused(record, f"not JSON that fits {name_of_kind(kind)}: {reason}") from None

    return deserialize


def _reason(kind: str, place: tuple[int | str, ...], fields: set[str]) -> str:
    return f"{kind} at {place[0]}" if place and place[0] in fields else kind


_Schema = Mapping[str, Any]

_OBJECTS: Final = frozenset({"model", "model-fields", "dataclass", "dataclass-args", "typed-dict", "dict"})
_ARRAYS: Final = frozenset({"list", "tuple", "set", "frozenset", "generator", "named-tuple"})
_HASHED: Final = frozenset({"model", "dataclass"})
_WEAK: Final = frozenset({"int", "decimal", "uuid", "any", "tuple", "frozenset", "call", *_HASHED})
"""Keys whose hashes data can choose."""
_NO_SCHEMAS: Final = frozenset({"metadata", "serialization", "default", "config", "expected"})
_INNER: Final = ("schema", "json_schema", "lax_schema", "fields")


def facts_of(schema: Any) -> Facts:
    """Return the facts of a type by its core schema."""
    nodes = list(_nodes(schema))
    named = {each["ref"]: each for each in nodes if "ref" in each}
    keys = [key for each in nodes for key in _keys_of(each)]
    weak = [each["type"] for key in keys for each in _nodes(key, named) if each.get("type") in _WEAK]
    is_recursive = any(each.get("type") == "definition-ref" for each in nodes)
    unions = [each for each in nodes if each.get("type") == "union"] if is_recursive else []
    return Facts(
        fields=max((_defaults_of(each) for each in nodes), default=0),
        hashes=bool(weak),
        hashes_objects=not _HASHED.isdisjoint(weak),
        objects=max([1, *(_count(each, named, _OBJECTS.__contains__) for each in unions)]),
        arrays=max([1, *(_count(each, named, _ARRAYS.__contains__) for each in unions)]),
    )


def _nodes(schema: Any, named: Mapping[str, _Schema] = {}) -> Iterator[_Schema]:
    """Yield a schema and all that are in it, also those that it refers to by the names of `named`."""
    stack, seen = [schema], set()
    while stack:
        node = stack.pop()
        if isinstance(node, list | tuple):
            stack += node
        elif isinstance(node, Mapping) and id(node) not in seen:
            seen.add(id(node))
            yield node
            stack += [value for name, value in node.items() if name not in _NO_SCHEMAS]
            if node.get("type") == "definition-ref" and node.get("schema_ref") in named:
                stack.append(named[node["schema_ref"]])


def _keys_of(node: _Schema) -> Iterator[_Schema]:
    if node.get("type") in ("set", "frozenset"):
        yield node.get("items_schema", {"type": "any"})
    elif node.get("type") == "dict" and "keys_schema" in node:
        yield node["keys_schema"]


def _defaults_of(node: _Schema) -> int:
    if node.get("type") not in ("model-fields", "dataclass-args"):
        return 0
    fields = node.get("fields", ())
    each = fields.values() if isinstance(fields, Mapping) else fields
    return sum(field["schema"].get("type") == "default" for field in each)


def _count(union: _Schema, named: Mapping[str, _Schema], is_wanted: Callable[[str], bool]) -> int:
    """Return how many alternatives of a union data of one form is tried as: all objects, or all arrays."""
    stack, seen, count = [union], set(), 0
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        kind = node.get("type", "")
        if is_wanted(kind):
            count += 1
        elif kind == "union":
            stack += [choice[0] if isinstance(choice, tuple) else choice for choice in node["choices"]]
        elif kind == "definition-ref":
            stack += [named[node["schema_ref"]]] if node["schema_ref"] in named else []
        else:
            stack += [inner for name in _INNER if isinstance(inner := node.get(name), Mapping)]
    return count
