"""The JSON Schema of the file, for editors: config/efo.schema.json. Draft 7, which editors of TOML support.

An editor completes and explains settings, and marks most mistakes. `efo check-config` finds all of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic.fields import FieldInfo

from efo_service.config.secret_files import SUFFIX, has_file
from efo_service.config.section import Section, is_secret, section_of, variable
from efo_service.config.settings import Settings
from efo_service.config.streams import MAX_LENGTH, NAME_PATTERN, SECTIONS, TABLE

_REFERENCE: Final = "#/definitions/{model}"
_NOISE: Final = frozenset({"title", "required", "writeOnly"})
"""What says nothing: titles made of names; and what is required, which the environment may have."""


def schema() -> str:
    """Return the text of config/efo.schema.json."""
    return json.dumps(_schema(), indent=2) + "\n"


def _schema() -> dict[str, Any]:
    found = Settings.model_json_schema(ref_template=_REFERENCE)
    definitions = {name: _cleaned(definition) for name, definition in found["$defs"].items()}
    for names, section in _sections((), Settings.model_fields):
        for key, field in section.model_fields.items():
            if is_secret(field):
                definitions[section.__name__]["properties"][key] = _secret(field, variable(*names, key))
            if has_file(field):
                definitions[section.__name__]["properties"][key + SUFFIX] = _file_of(key)
    properties = {name: _cleaned(value) for name, value in found["properties"].items()}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "efo",
        "description": "The configuration of efo. A key that is not set has its default, or is in the environment.",
        "type": "object",
        "additionalProperties": False,
        "properties": {**properties, TABLE: _streams(properties)},
        "if": {"required": [TABLE]},
        "then": {"properties": {"kinesis": {"not": {"required": ["stream"]}}}},
        "definitions": definitions,
    }


def _streams(properties: Mapping[str, Any]) -> dict[str, Any]:
    sections = {name: properties[name] for name in SECTIONS}
    sections["leases"] = {"allOf": [sections["leases"], {"not": {"required": ["worker_id"]}}]}  # it is the process's
    return {
        "description": "Several streams: each table has the name of one, and overrides the sections of the top level.",
        "type": "object",
        "minProperties": 1,
        "propertyNames": {"pattern": f"^{NAME_PATTERN}$", "maxLength": MAX_LENGTH},
        "additionalProperties": {"type": "object", "additionalProperties": False, "properties": sections},
    }


def _sections(
    names: tuple[str, ...], fields: Mapping[str, FieldInfo]
) -> Iterator[tuple[tuple[str, ...], type[Section]]]:
    """Yield each section with the names of its tables."""
    for name, field in fields.items():
        if (section := section_of(field)) is not None:
            yield (*names, name), section
            yield from _sections((*names, name), section.model_fields)


def _secret(field: FieldInfo, name: str) -> dict[str, Any]:
    return {"description": f"{field.description} A secret: set {name} in the environment, not in the file.", "not": {}}


def _file_of(key: str) -> dict[str, Any]:
    return {"description": f"File that has {key} in its only line. It is read again when it changes.", "type": "string"}


def _cleaned(value: Any) -> Any:
    """Return a part of pydantic's schema without what TOML does not have, and what says nothing."""
    if isinstance(value, list):
        return [_cleaned(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        return {"$ref": value["$ref"]}  # draft 7 ignores what is beside it
    kept = {key: item for key, item in value.items() if key not in _NOISE or isinstance(item, dict)}
    kinds = [kind for kind in kept.pop("anyOf", []) if kind.get("type") != "null"]
    if len(kinds) == 1:
        kept = {**kinds[0], **kept}
    elif kinds:
        kept["anyOf"] = kinds
    if kept.get("default", ...) is None:
        del kept["default"]
    return {key: _cleaned(item) for key, item in kept.items()}
