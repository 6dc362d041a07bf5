"""JSON, validated by pydantic."""

from __future__ import annotations

from typing import Any, Final, TypeVar, overload

from efo.checks import check_count, shown
from efo.deserializers.base import Deserializer, missing_extra, refused
from efo.deserializers.json_bounds import MAX_VALUES, JsonBounds
from efo.deserializers.json_data import name_of_kind
from efo.deserializers.pydantic_facts import facts_of
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
