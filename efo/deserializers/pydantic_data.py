"""JSON, validated by pydantic."""

from __future__ import annotations

from typing import Any, TypeVar, overload

from efo.checks import shown
from efo.deserializers.base import Deserializer, missing_extra, refused
from efo.deserializers.json_data import name_of_kind
from efo.errors import ConfigurationError
from efo.foreign_errors import reason_of
from efo.model import Record

T = TypeVar("T")


@overload
def pydantic(kind: type[T], *, strict: bool | None = None) -> Deserializer[T]: ...
@overload
def pydantic(kind: Any, *, strict: bool | None = None) -> Deserializer[Any]: ...
def pydantic(kind: Any, *, strict: bool | None = None) -> Deserializer[Any]:
    """Return a deserializer of JSON to a pydantic model, or to any other type that pydantic knows.

    `strict`: as in pydantic's `validate_json`; None: as the model says. Raises MissingExtraError without pydantic, and
    ConfigurationError for a type that it does not know.
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
    fields = {one.alias or name for name, one in getattr(kind, "model_fields", {}).items()}

    def deserialize(record: Record) -> Any:
        try:
            return adapter.validate_json(record.data, strict=strict)
        except ValidationError as error:
            # The texts of these errors contain data, and so do the names of fields that the model does not have.
            found = error.errors(include_url=False, include_context=False, include_input=False)
            reasons = [_reason(one["type"], one["loc"][:1], fields) for one in found[:3]]
            reason = ", ".join([*reasons, *(["..."] if len(found) > len(reasons) else [])])
            raise refused(record, f"not JSON that fits {name_of_kind(kind)}: {reason}") from None

    return deserialize


def _reason(kind: str, place: tuple[int | str, ...], fields: set[str]) -> str:
    return f"{kind} at {place[0]}" if place and place[0] in fields else kind
