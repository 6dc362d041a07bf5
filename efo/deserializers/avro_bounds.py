"""What Avro may make fastavro do, found in the bytes before its C code reads them.

That code has no limit of depth, so that ten kilobytes end the process, and it believes every count: nine bytes may
claim 2**60 items that have no bytes. `AvroBounds` goes through a value by its schema, makes nothing of it, and stops at
the first limit. Most records cannot reach one, and are not gone through: only those of a schema that contains itself,
of one with items without bytes, and very large ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import repeat
from math import inf
from typing import Any, Final

from efo.deserializers.json_bounds import MAX_DEPTH, UNITS
from efo.errors import InvalidValueError

MAX_DECIMAL: Final = 512
"""Bytes of a decimal, which are some 1,200 digits. The time for one grows with the square of its bytes."""

_NUMBER, _BYTES, _SIZED, _UNION, _RECORD, _ARRAY, _MAP = range(7)
"""The first three: a number of variable length, or an enum; a length and as many bytes; as many as the schema says."""
_SIZES: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_KINDS: Final = {"int": _NUMBER, "long": _NUMBER, "enum": _NUMBER, "bytes": _BYTES, "string": _BYTES}
_MORE: Final = 0x80
"""The bit of a byte of a number that says whether another one follows."""
_CONTINUES: Final = bytes(range(_MORE, 0x100))
_MAX_NUMBER: Final = 10
"""Bytes of a number of 64 bits."""
_FEW: Final = 16
_UNITS_OF: Final = {"decimal": 8, "uuid": 12}
"""What values of logical types count, where it is most."""


@dataclass(slots=True)
class _Node:
    """A type of the schema.

    `units`: what a value of it counts. `size`: of `_SIZED`, bytes. `depth`: of `_SIZED`, how deep its records are
    nested. `inner`: the types of its alternatives, fields or items.
    """

    kind: int
    units: int = UNITS
    size: int = 0
    depth: int = 0
    inner: list[_Node] = field(default_factory=list)


class AvroBounds:
    """The bounds of values with this schema, as `fastavro.parse_schema` returns it. `named`: its named types.

    `reader_fields`: the most fields that a record is given by the schema of a reader. Raises ValueError, KeyError,
    TypeError or RecursionError for a schema that cannot be used, such as one that is itself nested too deep.
    """

    def __init__(self, schema: Any, named: Mapping[str, Any], max_values: int, reader_fields: int = 0) -> None:
        self._max_values = max_values
        self._max_units = max_values * UNITS
        self._root = _Compiler(named, UNITS + reader_fields).node(schema)
        self.small = self._smallest_problem()
        """Data of no more bytes than this has no problem."""

    def _smallest_problem(self) -> float:
        costs = _Costs()
        root = costs.of(self._root)
        if root.depth > MAX_DEPTH:
            raise InvalidValueError(f"nested in more than {MAX_DEPTH} levels")
        if costs.is_endless or root.units > self._max_units:
            return -1
        per_byte = root.per_byte + costs.units_of_recursive
        small = (self._max_units - root.units) / per_byte if per_byte else inf
        return min(small, MAX_DEPTH // root.depth - 1) if costs.is_recursive else small

    def problem(self, data: bytes) -> str | None:
        """Return why the data is refused, without anything of it; None if fastavro may read it."""
        if len(data) <= self.small:
            return None
        try:
            _Skimmer(data, self._max_units).skim(self._root)
        except _DepthError:
            return f"Avro nested in more than {MAX_DEPTH} levels"
        except OverflowError:
            return f"Avro of more than {self._max_values:,} values: set max_values if that is right"
        except (IndexError, ValueError):  # it ends early, or has a length that is none
            return "not Avro that fits the schema"
        return None


class _DepthError(Exception):
    """The data is nested too deep."""


class _Skimmer:
    """Goes through one value. A frame of the stack: the types that follow; of a list its items, and if it is a map."""

    def __init__(self, data: bytes, max_units: int) -> None:
        self._data = data
        self._at = 0
        self._room = max_units
        self._stack: list[tuple[Iterator[_Node], _Node | None, bool]] = []

    def skim(self, root: _Node) -> None:
        """Raise _DepthError, OverflowError for too many values, or IndexError or ValueError for what is not Avro."""
        stack = self._stack
        stack.append((iter((root,)), None, False))
        while stack:
            following, items, is_map = stack[-1]
            node = next(following, None)
            if node is not None:
                if is_map:
                    self._skip_bytes()
                self._value(node)
            elif items is not None:
                self._block(items, is_map=is_map)
            else:
                stack.pop()
        if self._at > len(self._data):
            raise IndexError

    def _value(self, node: _Node) -> None:
        while node.kind == _UNION:
            index = self._number()
            if index < 0:
                raise ValueError
            self._count(1)
            node = node.inner[index]
        self._count(node.units)
        if node.kind == _NUMBER:
            self._number()
        elif node.kind == _BYTES:
            self._skip_bytes()
        elif node.kind == _SIZED:
            self._at += node.size
        elif len(self._stack) > MAX_DEPTH:
            raise _DepthError
        elif node.kind == _RECORD:
            self._stack.append((iter(node.inner), None, False))
        else:
            self._stack.append((iter(()), node.inner[0], node.kind == _MAP))

    def _block(self, items: _Node, *, is_map: bool) -> None:
        """Begin with the next block of a list, or end the list."""
        count = self._number()
        self._count(UNITS)  # a list may have very many blocks
        if count < 0:
            count = -count
            self._number()  # its bytes
        if not count:
            self._stack.pop()
        elif is_map or items.kind not in (_NUMBER, _BYTES, _SIZED):
            self._count(count)  # each is at least one, and the loop of so many steps is not begun
            self._stack[-1] = repeat(items, count), items, is_map
        else:
            self._count(count * items.units)
            if items.kind == _SIZED:
                self._at += items.size * count
            elif items.kind == _NUMBER:
                self._skip_numbers(count)
            else:
                self._skip_texts(count)

    def _count(self, units: int) -> None:
        self._room -= units
        if self._room < 0:
            raise OverflowError

    def _number(self) -> int:
        data, at = self._data, self._at
        byte = value = data[at]
        if byte >= _MORE:
            value, shift, last = byte - _MORE, 7, at + _MAX_NUMBER - 1
            while byte >= _MORE:
                if at == last:
                    raise ValueError
                at += 1
                byte = data[at]
                value |= (byte & ~_MORE) << shift
                shift += 7
        self._at = at + 1
        return (value >> 1) ^ -(value & 1)

    def _skip_bytes(self) -> None:
        length = self._number()
        if not 0 <= length <= len(self._data) - self._at:
            raise ValueError
        self._at += length

    def _skip_texts(self, count: int) -> None:
        """Skip so many lengths and what follows them. Most lengths have one byte."""
        data, at = self._data, self._at
        for _ in range(count):
            length = data[at]
            if length >= _MORE or length & 1:
                self._at = at
                self._skip_bytes()
                at = self._at
            else:
                at += 1 + (length >> 1)
        self._at = at

    def _skip_numbers(self, count: int) -> None:
        """Skip so many numbers: each has one byte that no other follows."""
        while count > _FEW:
            piece = self._data[self._at : self._at + count]
            if len(piece) < count:
                raise IndexError
            self._at += count
            count -= len(piece.translate(None, _CONTINUES))
        for _ in range(count):
            self._number()


class _Compiler:
    """Makes the nodes of a schema. A named type is made once, so that a schema may contain itself."""

    def __init__(self, named: Mapping[str, Any], record_units: int) -> None:
        self._named = named
        self._record_units = record_units
        self._records: dict[str, _Node] = {}

    def node(self, schema: Any) -> _Node:
        if isinstance(schema, list):
            return _Node(_UNION, inner=[self.node(each) for each in schema])
        kind: str = schema if isinstance(schema, str) else schema["type"]
        if kind in ("array", "map"):
            items = self.node(schema["items" if kind == "array" else "values"])
            return _Node(_ARRAY if kind == "array" else _MAP, inner=[items])
        if kind == "fixed":
            return self._fixed(schema)
        if kind in _SIZES or kind in _KINDS:
            of_data = _KINDS.get(kind, _SIZED)
            return _Node(of_data, _units(schema, of_data), _SIZES.get(kind, 0))
        if isinstance(schema, str):
            return self._records.get(schema) or self.node(self._named[schema])
        record = self._records[schema["name"]] = _Node(_RECORD, self._record_units)
        inner = [self.node(each["type"]) for each in schema["fields"]]
        if all(each.kind == _SIZED for each in inner):  # so it is one too, which counts for all of its fields at once
            record.kind = _SIZED
            record.units += sum(each.units for each in inner)
            record.size = sum(each.size for each in inner)
            record.depth = 1 + max((each.depth for each in inner), default=0)
        else:
            record.inner += inner
        return record

    @staticmethod
    def _fixed(schema: Mapping[str, Any]) -> _Node:
        size = schema["size"]
        if type(size) is not int or size < 0:
            raise InvalidValueError("the size of a fixed type is no number")
        if size > MAX_DECIMAL and "logicalType" in schema:
            raise InvalidValueError(f"a {schema['logicalType']} of more than {MAX_DECIMAL} bytes")
        return _Node(_SIZED, _units(schema, _SIZED), size)


def _units(schema: Any, kind: int) -> int:
    """Return what a text or number counts: about as long as fastavro needs for it, beside a number."""
    logical = str(schema.get("logicalType", "")) if isinstance(schema, Mapping) else ""
    if logical:  # it becomes another type
        return _UNITS_OF.get(logical.removeprefix("efo-"), 6)
    return 2 if kind == _BYTES else 1


@dataclass(frozen=True, slots=True)
class _Cost:
    """What a value of a type can be, without the values of its own type in it.

    `smallest`: its fewest bytes. `units`: what is counted for a value of few bytes; each further byte may make
    `per_byte` more. `depth`: how deep it is nested.
    """

    smallest: float = 0
    units: float = 1
    per_byte: float = 0
    depth: int = 0


class _Costs:
    """The costs of a schema.

    `is_endless`: a value may have no end. `is_recursive`: a type contains itself; each value of it has at least one
    byte, so that each byte may make `units_of_recursive` more.
    """

    def __init__(self) -> None:
        self.is_endless = self.is_recursive = False
        self.units_of_recursive: float = 0
        self._known: dict[int, _Cost] = {}
        self._open: dict[int, bool] = {}  # and whether it was found in itself

    def of(self, node: _Node) -> _Cost:
        if id(node) in self._known:
            return self._known[id(node)]
        if id(node) in self._open:
            self._open[id(node)] = self.is_recursive = True
            return _Cost(inf, 0)
        self._open[id(node)] = False
        cost = self._known[id(node)] = self._cost(node, [self.of(each) for each in node.inner])
        if self._open.pop(id(node)):
            self.units_of_recursive += cost.units
        return cost

    def _cost(self, node: _Node, inner: list[_Cost]) -> _Cost:
        depth = max((each.depth for each in inner), default=0)
        per_byte = max((each.per_byte for each in inner), default=0)
        if node.kind == _UNION:
            smallest = min((each.smallest for each in inner), default=0)
            units = 1 + max((each.units for each in inner), default=0)
            return _Cost(1 + smallest, units, per_byte, depth)
        if node.kind == _RECORD:
            smallest = sum(each.smallest for each in inner)
            self.is_endless |= smallest == inf
            return _Cost(smallest, node.units + sum(each.units for each in inner), per_byte, depth + 1)
        if node.kind in (_ARRAY, _MAP):
            keys = node.kind == _MAP
            size, units = inner[0].smallest + keys, inner[0].units + keys
            return _Cost(1, node.units, per_byte + (units / size if size else inf), depth + 1)
        return _Cost(node.size if node.kind == _SIZED else 1, node.units, depth=node.depth)
