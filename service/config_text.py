"""Settings as TOML: the resolved ones for `efo check-config`, all defaults for config/efo.full.toml."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from service.config import Section, Settings

_HEAD = """\
# Every setting of efo with its default. Written by `efo check-config --defaults`; a test keeps it so.
# Each can be overridden by an environment variable: EFO_<SECTION>__<KEY>, for example EFO_SERVICE__PORT=9090.
# Relative paths are relative to the directory that efo is started in.
"""


def resolved(settings: Settings) -> dict[str, dict[str, Any]]:
    """Return every setting that has a value, as plain values; secrets are masked by their type."""
    return {
        name: {key: _plain(value) for key in type(section).model_fields if (value := getattr(section, key)) is not None}
        for name in Settings.model_fields
        if isinstance(section := getattr(settings, name), Section)
    }


def to_toml(tables: dict[str, dict[str, Any]]) -> str:
    """Return plain tables as TOML text."""
    return "\n".join(
        f"[{name}]\n" + "".join(f"{key} = {_literal(value)}\n" for key, value in table.items())
        for name, table in tables.items()
    )


def defaults() -> str:
    """Return the text of config/efo.full.toml. Settings without a default are shown by an example."""
    return _HEAD + "".join(_table(name, field) for name, field in Settings.model_fields.items())


def _table(name: str, field: FieldInfo) -> str:
    section = field.annotation
    if not (isinstance(section, type) and issubclass(section, Section)):
        raise TypeError(f"{name} is not a section")
    return f"\n# {section.__doc__}\n[{name}]\n" + "".join(
        f"{line}\n" for key, item in section.model_fields.items() for line in _setting(key, item)
    )


def _setting(key: str, field: FieldInfo) -> Iterator[str]:
    yield f"# {field.description}"
    if field.is_required() or field.default_factory or field.default is None:
        example = _literal((field.examples or [""])[0])
        yield f"{key} = {example}" if field.is_required() else f"# {key} = {example}"
    else:
        yield f"{key} = {_literal(_plain(field.default))}"


def _plain(value: object) -> str | int | float | bool:
    match value:
        case bool() | int() | float():
            return value
        case str() | Path() | SecretStr():
            return str(value)  # a SecretStr shows itself as asterisks
        case _:
            raise TypeError(f"a setting of type {type(value).__name__} has no TOML form yet")


def _literal(value: object) -> str:
    """Return a TOML literal: JSON's strings, numbers and booleans are TOML's."""
    return json.dumps(value, ensure_ascii=False)
