"""What JSON may make a decoder do, checked before one in C or Rust begins: it cannot be interrupted.

The data decides how many values are made, and a few forms of it cost far more than their bytes: numbers that are slow
to read, keys whose hashes are equal, and unions whose alternatives are tried one within the other. How much of each a
type allows, its `Facts` say. Most records are small enough for all of it: then nothing is counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from itertools import islice
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

MAX_VALUES: Final = 100_000
"""How many objects and arrays the data of one record may be by default. Four other values count as one."""
UNITS: Final = 4
"""What an object or array counts, while a text or number counts 1: about the ratio of the times that they take."""
MAX_DEPTH: Final = 200
"""How deep values may be nested where the decoder itself has no such limit, or one that is the thread's stack."""
MAX_EXPONENTS: Final = 2_000
"""How many numbers may have an exponent of three digits: msgspec needs some 10 µs for one of them."""
MAX_TRIES: Final = 20_000
"""How many alternatives of unions a record may make pydantic try: some 0.5 µs each, and 5 µs if none fits."""
MAX_ALIKE: Final = 20
MAX_HASHED_OBJECTS: Final = 500
"""How many different keys, or members of a set, may have one hash, each of which is compared with all others; and how
many objects a set may have: their hashes are not known before they are made. Python's hashes of numbers have no secret:
any two that are equal modulo 2**61 - 1 have the same one."""

_FIELDS_OF_A_VALUE: Final = 10
"""A field that is left out gets its default, in a tenth of the time of a value."""
_SHORTEST_EXPONENT: Final = len(b"1e300,")
_PIECE: Final = 1024 * 1024
"""Bytes that are counted at once. Most of what has too many values shows it in the first of them."""
_SHORTEST_KEY: Final = 19
"""Digits of 2**61 - 1: no shorter numbers are equal modulo it."""
_FEW_KEYS: Final = 500
"""So many keys may all have one hash: to compare them takes some 10 ms."""
_LONGEST_KEY: Final = 4300
"""Python makes no integer of more digits (`sys.int_info`), and a megabyte holds few decimals that have more."""
_UUID_LENGTHS: Final = range(32, 46)

_EXPONENT: Final = re.compile(rb"[\[,:\s]-?\d[\d.]*[eE][+-]?0*[1-9]\d\d")
_TREE: Final = msgspec.json.Decoder(float_hook=str)


class Facts(NamedTuple):
    """What of a type makes data expensive.

    `fields`: the largest number of fields with defaults that an object of it has. `hashes`: whether it has sets, or
    mappings with keys, whose hashes data can choose. `hashes_objects`: whether such keys are objects. `objects`,
    `arrays`: how many alternatives of a union an object, and an array, may be tried as, one within the other; 1 if the
    time for that does not grow with the depth.
    """

    fields: int = 0
    hashes: bool = False
    hashes_objects: bool = False
    objects: int = 1
    arrays: int = 1


class JsonBounds:
    """The bounds of JSON that becomes a value of a type.

    `is_msgspec`: whether that is the decoder. pydantic needs twice as long for a model, longer still for a text or
    number that does not fit, and no longer for numbers with large exponents.
    """

    def __init__(self, facts: Facts, max_values: int, *, is_msgspec: bool) -> None:
        self._facts = facts
        self._max_values = max_values
        self._max_units = UNITS * max_values
        self._is_msgspec = is_msgspec
        self._units_of_plain = 1 if is_msgspec else UNITS
        self._units_of_object = UNITS * ((1 if is_msgspec else 2) + facts.fields // _FIELDS_OF_A_VALUE)
        bounds = [self._max_units * 2 // self._units_of_plain, self._max_units * 3 // (2 + self._units_of_object)]
        if is_msgspec:
            bounds.append(MAX_EXPONENTS * _SHORTEST_EXPONENT)
        if facts.hashes:
            bounds.append(_FEW_KEYS * _SHORTEST_KEY)
        if facts.objects > 1 or facts.arrays > 1:
            bounds.append(0)
        self.small = min(bounds)
        """Data of no more bytes than this has no problem."""

    def problem(self, data: bytes) -> str | None:
        """Return why the data is refused, without anything of it; None if a decoder may read it."""
        if len(data) <= self.small:
            return None
        problem = self._text_problem(data[:_PIECE])
        if problem is None and len(data) > _PIECE:
            problem = self._text_problem(data)
        if problem is None and self._needs_tree(data):
            try:
                tree = _TREE.decode(data)
            except (ValueError, RecursionError):
                return "not JSON"
            problem = tree_problem(tree, self._facts)
        return problem

    def _text_problem(self, data: bytes) -> str | None:
        if self._has_many(data):
            return f"JSON of more than {self._max_values:,} values: set max_values if that is right"
        if self._is_msgspec and data.count(b"e") + data.count(b"E") > MAX_EXPONENTS:
            beyond = next(islice(_EXPONENT.finditer(data), MAX_EXPONENTS, None), None)
            return beyond and f"JSON with more than {MAX_EXPONENTS:,} numbers whose exponents have three digits"
        return None

    def _has_many(self, data: bytes) -> bool:
        if self._units(data) <= self._max_units:
            return False
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
        units, is_text = 0, False
        for at in range(0, len(data), _PIECE):
            parts = data[at : at + _PIECE].split(b'"')
            units += self._units(b"".join(parts[is_text::2]))  # commas in texts begin no value
            if units > self._max_units:
                return True
            is_text ^= len(parts) % 2 == 0
        return False

    def _units(self, data: bytes) -> int:
        """Return what the values in the data count at most, if no text in it has any of these bytes."""
        plain = self._units_of_plain * data.count(b",")
        return plain + UNITS * data.count(b"[") + self._units_of_object * data.count(b"{")

    def _needs_tree(self, data: bytes) -> bool:
        facts = self._facts
        if facts.hashes and len(data) > _FEW_KEYS * _SHORTEST_KEY:
            return True
        if facts.objects == facts.arrays == 1:
            return False
        objects, arrays = data.count(b"{"), data.count(b"[")
        tries = facts.objects ** min(objects, 64) * facts.arrays ** min(arrays, 64)
        return bool(tries * (objects + arrays + data.count(b",")) > MAX_TRIES)


def tree_problem(tree: Any, facts: Facts) -> str | None:
    """Return why a decoded value must not become one of the type; None if it may."""
    if facts.hashes and _has_alike(tree, hashes_objects=facts.hashes_objects):
        return f"more than {MAX_ALIKE} keys, or members of a set, with the same hash"
    if (facts.objects > 1 or facts.arrays > 1) and _tries(tree, facts) > MAX_TRIES:
        return f"values in unions, nested so that more than {MAX_TRIES:,} alternatives would be tried"
    return None


def _tries(tree: Any, facts: Facts) -> int:
    """Return how many alternatives are tried: those of a value for each of those of the value around it."""
    total = 0
    stack: list[tuple[Any, int]] = [(tree, 1)]
    while stack and total <= MAX_TRIES:
        node, tries = stack.pop()
        if isinstance(node, dict):
            tries *= facts.objects
            stack += [(value, tries) for value in node.values()]
        elif isinstance(node, list):
            tries *= facts.arrays
            stack += [(value, tries) for value in node]
        total += tries
    return total


def _has_alike(tree: Any, *, hashes_objects: bool) -> bool:
    stack: list[Any] = [tree]
    while stack:
        node = stack.pop()
        inner = node.values() if isinstance(node, dict) else node
        stack += [value for value in inner if isinstance(value, dict | list)] if isinstance(node, dict | list) else ()
        if isinstance(node, dict | list) and len(node) > MAX_ALIKE:
            if hashes_objects and sum(isinstance(each, dict) for each in node) > MAX_HASHED_OBJECTS:
                return True
            hashes = {str(each): _hash_of(each) for each in node}  # by texts, whose hashes have a secret
            counts = Counter(each for each in hashes.values() if each is not None)
            if counts and max(counts.values()) > MAX_ALIKE:
                return True
    return False


def _hash_of(value: Any) -> int | None:
    """Return the hash of a value as a key; None if no data can choose it."""
    if isinstance(value, str):
        return _hash_of_text(value) if _SHORTEST_KEY <= len(value) <= _LONGEST_KEY or "e" in value.lower() else None
    if isinstance(value, list | tuple):
        return hash(tuple(_hash_of(each) or hash(each) for each in value if not isinstance(each, dict)))
    if isinstance(value, int | Decimal | UUID):
        return hash(value)
    return None


def _hash_of_text(text: str) -> int | None:
    if len(text) in _UUID_LENGTHS:
        with suppress(ValueError):
            return hash(UUID(text))
    try:
        return hash(Decimal(text))
    except (InvalidOperation, ValueError, TypeError):  # a signalling NaN has no hash
        return None


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
