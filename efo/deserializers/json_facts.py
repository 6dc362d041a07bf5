"""What of a type of msgspec makes data expensive."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from efo.deserializers.json_bounds import Facts


def facts_of(kind: Any) -> Facts:
    """Return the facts of a type that msgspec decodes."""
    types = list(_types_of(msgspec.inspect.type_info(kind)))
    keys = [key for each in types if (key := _key_of(each)) is not None]
    return Facts(
        fields=max((_defaults_of(each) for each in types), default=0),
        hashes=any(map(_is_weak, keys)),
        hashes_objects=any(isinstance(each, _OBJECTS) for key in keys for each in _types_of(key)),
    )


_OBJECTS: Final = (msgspec.inspect.StructType, msgspec.inspect.DataclassType)
_COMPOSITE: Final = (
    *_OBJECTS, msgspec.inspect.NamedTupleType, msgspec.inspect.TupleType, msgspec.inspect.VarTupleType,
    msgspec.inspect.FrozenSetType,
)  # fmt: skip
_STRONG: Final = (msgspec.inspect.StrType, msgspec.inspect.BytesType)
_WEAK: Final = (
    msgspec.inspect.IntType, msgspec.inspect.DecimalType, msgspec.inspect.UUIDType, msgspec.inspect.AnyType,
)  # fmt: skip


def _is_weak(key: msgspec.inspect.Type) -> bool:
    """Return whether data can choose the hashes of such keys. For those of texts and bytes Python has a secret."""
    types = list(_types_of(key))
    if any(isinstance(each, _COMPOSITE) for each in types):
        return any(not isinstance(each, (*_COMPOSITE, *_STRONG)) for each in types)
    return any(isinstance(each, _WEAK) for each in types)


def _key_of(info: msgspec.inspect.Type) -> msgspec.inspect.Type | None:
    if isinstance(info, msgspec.inspect.SetType | msgspec.inspect.FrozenSetType):
        return info.item_type
    if isinstance(info, msgspec.inspect.DictType) and not isinstance(info.key_type, msgspec.inspect.AnyType):
        return info.key_type
    return None  # any key of JSON and of Avro is a text


def _defaults_of(info: msgspec.inspect.Type) -> int:
    if isinstance(info, msgspec.inspect.TypedDictType):
        return 0  # what is left out is left out
    return sum(not field.required for field in getattr(info, "fields", ()))


def _types_of(info: msgspec.inspect.Type) -> Iterable[msgspec.inspect.Type]:
    """Yield a type and all that are in it."""
    stack: list[Any] = [info]
    seen: dict[int, Any] = {}
    while stack:
        each = stack.pop()
        if isinstance(each, tuple):
            stack += each
        elif isinstance(each, msgspec.inspect.Type | msgspec.inspect.Field) and id(each) not in seen:
            seen[id(each)] = each
            if isinstance(each, msgspec.inspect.Type):
                yield each
            stack += [getattr(each, name) for name in each.__struct_fields__ if name not in {"default", "cls"}]
