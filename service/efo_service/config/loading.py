"""Loads the settings. Errors name the location of a wrong setting and what to write instead."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import SettingsError

from efo.arn import parse_stream
from efo.errors import ConfigurationError
from efo_service.config.credentials import is_credential
from efo_service.config.section import PREFIX, Section, is_secret, section_of, variable
from efo_service.config.settings import KinesisSettings, Settings

_CREDENTIAL = re.compile(r"access_?key|secret|session_?token|password|credential", re.IGNORECASE)
_RENAMED: Final[dict[tuple[str, ...], str]] = {
    ("consumer", "give_up_seconds"): "unsubscribe_idle_seconds",
    ("consumer", "park_faults"): 'on_service_error = "isolate"',
    ("leases", "look_seconds"): "scan_interval_seconds",
    ("relay", "upkeep_seconds"): "maintenance_seconds",
}
"""Settings of earlier releases, and what they are called now."""


def load(path: Path | None) -> Settings:
    """Return the settings of a TOML file and the environment, or of the environment only if `path` is None.

    Raises ConfigurationError, which names every wrong setting with its location.
    """
    return _load(path)


def load_for_stream(path: Path | None, stream: str | None) -> Settings:
    """Return the settings as `load` does, for a stream that goes before the configured one; None: that one.

    Without another region, that of the configured stream's ARN stays. Raises ConfigurationError.
    """
    if stream is None:
        return _load(path)
    settings = _load(path, stream)
    found, configured = parse_stream(stream)[1], parse_stream(settings.kinesis.stream)[1]
    values = settings.kinesis.model_dump() | {"stream": stream}
    values["region"] = settings.kinesis.region or (None if found else configured)
    try:
        return settings.model_copy(update={"kinesis": KinesisSettings(**values)})
    except ValidationError as error:
        raise ConfigurationError(f"{stream}: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None


def _load(path: Path | None, stream: str | None = None) -> Settings:
    """`stream`: the stream if none is configured."""
    text = _read(path) if path else ""
    _refuse_unknown_variables(os.environ)
    tables = _parse(path, text)
    if stream is not None:
        tables.setdefault("kinesis", {}).setdefault("stream", stream)
    try:
        return Settings(**tables)
    except RecursionError:
        nested = [name for name in sorted(os.environ) if name.startswith(PREFIX) and _is_nested_too_deep(name)]
        raise ConfigurationError(f"environment {', '.join(nested)}: the value is nested too deep") from None
    except SettingsError as error:
        raise ConfigurationError(f"environment: {error}: write {PREFIX}<SECTION>__<KEY> instead") from error
    except ValidationError as error:
        locations = _Locations(path, text, os.environ)
        # `from None`: the inputs in pydantic's error could include a secret that was written in the wrong place.
        raise ConfigurationError("\n".join(_messages(error, locations))) from None


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigurationError(f"{path}: cannot read the configuration: {reason}") from error


def _parse(path: Path | None, text: str) -> dict[str, Any]:
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path}: not TOML: {error}") from error
    except ValueError:  # Python's limit for the digits of a number
        raise ConfigurationError(f"{path}: a number has too many digits") from None
    except RecursionError:
        raise ConfigurationError(f"{path}: a value is nested too deep") from None
    for name, value in tables.items():
        if name in Settings.model_fields and not isinstance(value, dict):
            raise ConfigurationError(f"{path}: {name} is a table: write [{name}] and its keys below")
    _refuse_secrets(path, tables, Settings.model_fields)
    return tables


def _refuse_secrets(path: Path | None, tables: Mapping[str, Any], fields: Mapping[str, FieldInfo], *names: str) -> None:
    """Refuse a secret in the file, since files are copied, mounted and committed."""
    for name in tables.keys() & fields.keys():
        if is_secret(fields[name]):
            raise ConfigurationError(
                f"{path}: [{'.'.join(names)}] {name} is a secret: remove it from the file, and set"
                f" {variable(*names, name)} in the environment instead"
            )
        if not isinstance(tables[name], dict):
            continue
        if (section := section_of(fields[name])) is not None:
            _refuse_secrets(path, tables[name], section.model_fields, *names, name)
        else:
            _refuse_credentials(path, tables[name], *names, name)


def _refuse_credentials(path: Path | None, options: Mapping[str, Any], *names: str) -> None:
    """Refuse credentials among the options of Spark, for the same reason."""
    for option, value in options.items():
        if is_credential(option, str(value)):
            raise ConfigurationError(
                f"{path}: [{'.'.join(names)}] {option} is a credential: remove it from the file, and set"
                f""" {variable(*names)}='{{"{option}": "..."}}' in the environment, merged with the file's options"""
            )


def _refuse_unknown_variables(environ: Mapping[str, str]) -> None:
    """Refuse `EFO_<SECTION>__<KEY>` with an unknown section, which pydantic-settings would ignore."""
    for name in sorted(environ):
        section, separator, _ = name.removeprefix(PREFIX).lower().partition("__")
        if name.startswith(PREFIX) and separator and section not in Settings.model_fields:
            raise ConfigurationError(f"environment {name}: unknown section{_suggest(section, Settings.model_fields)}")


def _is_nested_too_deep(name: str) -> bool:
    try:
        json.loads(os.environ[name])
    except RecursionError:
        return True
    except ValueError:
        return False
    return False


class _Locations:
    """Finds where a setting was written."""

    def __init__(self, path: Path | None, text: str, environ: Mapping[str, str]) -> None:
        self._path = path
        self._lines = text.splitlines()
        self._environ = {name.upper() for name in environ}

    def of(self, loc: Sequence[str]) -> str:
        """Return the environment variable of a setting, or its file, line and table. `loc`: see pydantic's errors.

        If `loc` is empty, the error concerns no single setting: return only the file.
        """
        if not loc:
            return "environment" if self._path is None else str(self._path)
        names, keys = _tables(loc)
        if keys and (name := variable(*names, keys[0])) in self._environ:
            return f"environment {name}"
        table = f"[{'.'.join(names)}]" + (f" {keys[0]}" if keys else "")
        if self._path is None:
            return table
        line = self._line(".".join([*names, *keys[:1]]))
        return f"{self._path}:{line}: {table}" if line else f"{self._path}: {table}"

    def _line(self, name: str) -> int | None:
        table = ""
        for number, line in enumerate(self._lines, 1):
            if header := re.match(r"\s*\[\s*([^\[\]]+?)\s*\]", line):
                table = f"{header[1]}."
                if header[1] == name:
                    return number
            elif (key := re.match(r"""\s*["']?([\w-]+)["']?\s*=""", line)) and table + key[1] == name:
                return number
        return None


def _tables(loc: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the location of a setting into its tables and its key, with what pydantic appends to the key."""
    names, section = [loc[0]], _section(Settings.model_fields, loc[0])
    for name in loc[1:]:
        inner = _section(section.model_fields if section else {}, name)
        if inner is None:
            break
        names.append(name)
        section = inner
    return names, list(loc[len(names) :])


def _section(fields: Mapping[str, FieldInfo], name: str) -> type[Section] | None:
    return section_of(fields[name]) if name in fields else None


def _messages(error: ValidationError, locations: _Locations) -> Iterator[str]:
    for detail in error.errors(include_url=False, include_input=False):
        loc = [str(part) for part in detail["loc"]]
        location = locations.of(loc)
        match detail["type"]:
            case "extra_forbidden":
                yield f"{location}: {_unknown(loc)}"
            case "missing":
                yield f'{location}: missing: write [kinesis] stream = "NAME or ARN", or set EFO_KINESIS__STREAM'
            case _:
                yield f"{location}: {detail['msg'].removeprefix('Value error, ')}"


def _unknown(loc: Sequence[str]) -> str:
    if _CREDENTIAL.search(loc[-1]):
        return "credentials are not settings: remove them and use the AWS chain (environment, profile or role)"
    if len(loc) == 1:
        return f"unknown table{_suggest(loc[0], Settings.model_fields)}"
    if renamed := _RENAMED.get(tuple(loc)):
        return f"this setting was renamed: write {renamed}"
    known: Mapping[str, FieldInfo] = Settings.model_fields
    for name in _tables(loc)[0]:
        section = _section(known, name)
        known = section.model_fields if section else {}
    return f"unknown key{_suggest(loc[-1], known)}"


def _suggest(name: str, known: Mapping[str, object]) -> str:
    """Return a suggestion to append to an error: the nearest known name, or all of them."""
    near = get_close_matches(name.lower(), known, n=1)
    return f": did you mean {near[0]!r}?" if near else f": expected one of {', '.join(known)}"
