"""Attributes of DynamoDB items, for layouts that efo's lease store does not know."""

from __future__ import annotations

from typing import Any, Final

from efo.checks import shown
from efo_service.operations.migration.layout import Row, RowError

_ABSENT: Final[tuple[dict[str, bool], ...]] = ({}, {"NULL": True})


def text(item: Row, name: str) -> str | None:
    """Return a string; None if it is absent or null. Raises RowError for another type."""
    return _value(item, name, "S")


def number(item: Row, name: str) -> str | None:
    """Return a number, as text; None if it is absent or null. Raises RowError for another type."""
    return _value(item, name, "N")


def _value(item: Row, name: str, kind: str) -> str | None:
    value: Any = item.get(name, {})
    if value in _ABSENT:
        return None
    if not isinstance(value, dict) or not isinstance(value.get(kind), str):
        raise RowError(f"{name} is {shown(value)}: expected the type {kind}")
    return str(value[kind])
