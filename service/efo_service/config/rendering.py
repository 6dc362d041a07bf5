"""Settings as TOML: the resolved ones for `efo check-config`, all defaults for config/efo.full.toml."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from efo_service.config.credentials import is_credential
from efo_service.config.section import Section, is_secret, section_of, variable
from efo_service.config.settings import Settings

_HEAD = """\
# Every setting of efo with its default. Written by `efo check-config --defaults`; a test keeps it so.
# Each can be overridden by an environment variable: EFO_<SECTION>__<KEY>, for example EFO_SERVICE__PORT=9090.
# Relative paths are relative to the directory that efo is started in.
"""
_MASK: Final = str(SecretStr("x"))


def resolved(settings: Settings) -> dict[str, dict[str, Any]]:
    """Return every setting that has a value, as plain values; secrets and credentials among options are masked.

    A table within another is a value of it.
    """
    return {
        name: _values(section)
        for name in Settings.model_fields
        if isinstance(section := getattr(settings, name), Section)
    }


def _values(section: Section) -> dict[str, Any]:
    found = ((key, getattr(section, key)) for key in type(section).model_fields)
    return {
        key: _values(value) if isinstance(value, Section) else _plain(value)
        for key, value in found
        if value is not None
    }


def to_toml(tables: dict[str, dict[str, Any]]) -> str:
    """Return plain tables as TOML text."""
    return "\n".join(_table_text(name, table) for name, table in tables.items())


def _table_text(name: str, table: dict[str, Any]) -> str:
    lines = "".join(f"{_key(key)} = {_literal(value)}\n" for key, value in table.items() if not isinstance(value, dict))
    inner = (_table_text(f"{name}.{key}", value) for key, value in table.items() if isinstance(value, dict))
    return "\n".join([f"[{name}]\n{lines}", *inner])


def defaults() -> str:
    """Return the text of config/efo.full.toml. Settings without a default are shown by an example."""
    return _HEAD + "".join(_table(name, field) for name, field in Settings.model_fields.items())


def _table(name: str, field: FieldInfo) -> str:
    section = section_of(field)
    if section is None:
        raise TypeError(f"{name} is not a section")
    settings = {key: item for key, item in section.model_fields.items() if section_of(item) is None}
    inner = {key: item for key, item in section.model_fields.items() if key not in settings}
    lines = "".join(f"{line}\n" for key, item in settings.items() for line in _setting(name, key, item))
    return f"\n# {section.__doc__}\n[{name}]\n{lines}" + "".join(
        _table(f"{name}.{key}", item) for key, item in inner.items()
    )


def _setting(table: str, key: str, field: FieldInfo) -> Iterator[str]:
    yield f"# {field.description}"
    if is_secret(field):
        yield f"# environment: {variable(*table.split('.'), key)}"
    elif field.is_required() or field.default_factory or field.default is None:
        example = _literal((field.examples or [""])[0])
        yield f"{key} = {example}" if field.is_required() else f"# {key} = {example}"
    else:
        yield f"{key} = {_literal(_plain(field.default))}"


def _plain(value: object) -> str | int | float | bool | dict[str, str]:
    match value:
        case bool() | int() | float():
            return value
        case dict():
            return {name: _MASK if is_credential(name, text) else text for name, text in value.items()}
        case str() | Path() | SecretStr():
            return str(value)  # a SecretStr shows itself as asterisks
        case _:
            raise TypeError(f"a setting of type {type(value).__name__} has no TOML form yet")


def _key(name: str) -> str:
    """Return a TOML key; the options of others have dots in their names."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _literal(name)


def _literal(value: object) -> str:
    """Return a TOML literal: JSON's strings, numbers and booleans are TOML's, and so is its empty object."""
    return json.dumps(value, ensure_ascii=False)
