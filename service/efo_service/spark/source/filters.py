"""Which ranges a batch query needs, by the filters that Spark pushes down. Pure.

Filters on `partition` and `offset` leave out ranges, and so does `topic`. Spark evaluates each of them again, so a
range may be larger than what the filters select, but never smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from efo_service.spark.source.offsets import Range

COLUMNS: Final = ("topic", "partition", "offset")


def is_useful(found: Filter) -> bool:
    """Return whether a filter can leave out ranges."""
    return type(found) in _BOUNDS and found.attribute in {(name,) for name in COLUMNS}  # type: ignore[attr-defined]


def narrowed(whole: Iterable[Range], filters: Iterable[Filter]) -> list[Range]:
    """Return the ranges without the records that these filters leave out at their ends."""
    found = list(whole)
    for each in filters:
        found = [part for one in found if (part := _narrowed(one, each)) is not None]
    return found


def _narrowed(one: Range, found: Any) -> Range | None:
    column = found.attribute[0]
    first, last = _BOUNDS[type(found)](found.value)
    if column == "offset":
        start = one.start if first is None else max(one.start, first)
        end = one.end if last is None else min(one.end, last + 1)
        return one._replace(start=start, end=end) if start < end else None
    value = one.topic if column == "topic" else one.partition
    inside = (first is None or value >= first) and (last is None or value <= last)
    if isinstance(found, In):
        inside = value in found.value
    return one if inside else None


Bounds = tuple[Any, Any]
"""The least and the greatest value that a filter lets pass, both included; None: no limit. A filter that excludes its
value lets it pass here, too."""


def _limits(values: list[Any]) -> Bounds:
    return (min(values), max(values)) if values else (None, None)


_BOUNDS: Final[Mapping[type[Filter], Callable[[Any], Bounds]]] = {
    EqualTo: lambda value: (value, value),
    EqualNullSafe: lambda value: (value, value),
    In: lambda values: _limits([value for value in values if value is not None]),
    GreaterThan: lambda value: (value, None),
    GreaterThanOrEqual: lambda value: (value, None),
    LessThan: lambda value: (None, value),
    LessThanOrEqual: lambda value: (None, value),
}
