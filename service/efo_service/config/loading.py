"""Loads the settings. Errors name the location of a wrong setting and what to write instead."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import EnvSettingsSource, SettingsError

from efo.arn import parse_stream
from efo.errors import ConfigurationError
from efo.text import decode
from efo.third_party_errors import reason_of
from efo_service.config.mistakes import Locations, messages, suggest, variable_of
from efo_service.config.secret_files import secret_files, with_secrets
from efo_service.config.section import PREFIX, is_credential, is_proxy, is_secret, relative_to, section_of
from efo_service.config.settings import KinesisSettings, Settings
from efo_service.config.streams import (
    SECTIONS,
    TABLE,
    Configuration,
    StreamSettings,
    clashes,
    merged,
    table_problems,
    variable_part,
)


def load(path: Path | None, stream: str | None = None) -> Settings:
    """Return the settings of one stream, from a TOML file and the environment; from the latter alone if `path` is None.

    `stream`: its name in [streams], None if it is the only one. Raises ConfigurationError, which names every wrong
    setting with its location, or the streams if one is to be chosen.
    """
    return load_all(path).one(stream)


def load_all(path: Path | None) -> Configuration:
    """Return the settings of all streams of a TOML file and the environment. Relative paths are made absolute.

    The layers of a stream, each over the one before: the top-level sections, EFO_<SECTION>__<KEY>, [streams.NAME], and
    EFO_STREAMS__<NAME>__<SECTION>__<KEY>. Raises ConfigurationError, which names every wrong setting with its location.
    """
    text = _read(path) if path else ""
    tables = _parse(path, text)
    with relative_to(_directory(path, tables)):
        return _configuration(path, text, tables)


def _configuration(path: Path | None, text: str, tables: dict[str, Any]) -> Configuration:
    streams = tables.pop(TABLE, None)
    if streams is None:
        _refuse_unknown_variables(os.environ, ())
        return Configuration.of(_validated(tables, PREFIX, Locations(path, text, os.environ)))
    locations = Locations(path, text, os.environ)
    if problems := list(table_problems(streams)):
        raise ConfigurationError("\n".join(f"{locations.of_table(*where)}: {what}" for where, what in problems))
    _refuse_unknown_variables(os.environ, streams)
    defaults = _with_environment(tables, PREFIX)
    if "stream" in defaults.get("kinesis", {}):
        raise ConfigurationError(
            f"{locations.of(('kinesis', 'stream'))}: with [{TABLE}], each stream has its own: write it below "
            f"[{TABLE}.NAME.kinesis]. The default is NAME"
        )
    configuration = Configuration(dict(_each_stream(path, text, defaults, streams)), has_tables=True)
    if found := list(clashes(configuration.streams)):
        raise ConfigurationError("\n".join(f"{locations.of(())}: {clash}" for clash in found))
    return configuration


def load_tables(tables: Mapping[str, Any]) -> Configuration:
    """Return the settings of one stream, from tables that no file of efo's has, and the environment over them.

    Raises ConfigurationError.
    """
    _refuse_unknown_variables(os.environ, ())
    with relative_to(_directory(None, tables)):
        return Configuration.of(_validated(tables, PREFIX, Locations(None, "", os.environ)))


def load_for_stream(path: Path | None, stream: str | None) -> Settings:
    """Return the settings for a stream that goes before the configured one: its name in [streams], its name or its ARN.

    None: the only configured one. A stream that is not configured has the top-level settings. Without another region,
    that of the configured stream's ARN stays. Raises ConfigurationError.
    """
    if stream is None:
        return load(path)
    text = _read(path) if path else ""
    if TABLE in (tables := _parse(path, text)):
        configured = load_all(path).streams
        named = [s for name, s in configured.items() if stream in {name, s.kinesis.stream, s.kinesis.stream_name}]
        if named:
            return named[0]
        del tables[TABLE]
    else:
        _refuse_unknown_variables(os.environ, ())
    tables.setdefault("kinesis", {}).setdefault("stream", stream)
    with relative_to(_directory(path, tables)):
        settings = _validated(tables, PREFIX, Locations(path, text, os.environ))
    found, other = parse_stream(stream)[1], parse_stream(settings.kinesis.stream)[1]
    values = settings.kinesis.model_dump() | {"stream": stream}
    values["region"] = settings.kinesis.region or (None if found else other)
    try:
        return settings.model_copy(update={"kinesis": KinesisSettings(**values)})
    except ValidationError as error:
        raise ConfigurationError(f"{stream}: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None


def _directory(path: Path | None, tables: Mapping[str, Any]) -> Path:
    """Return the directory to which relative paths are relative: [service] directory, else that of the file."""
    service = tables.get("service")
    chosen = service.get("directory") if isinstance(service, dict) else None
    variables = {name.upper(): value for name, value in os.environ.items() if value}
    chosen = variables.get(variable_of("service", "directory"), chosen)
    # Another type is refused with the other mistakes.
    return home_of(path) / chosen if isinstance(chosen, str) else home_of(path)


def home_of(path: Path | None) -> Path:
    """Return the directory of a file of settings; without one, that in which efo is started."""
    return Path.cwd() if path is None else path.absolute().parent


def _each_stream(
    path: Path | None, text: str, defaults: Mapping[str, Any], streams: Mapping[str, Any]
) -> Iterator[tuple[str, Settings]]:
    """Yield the streams by name. Raises ConfigurationError, with the mistakes of all of them."""
    problems: dict[str, None] = {}  # a wrong default is a mistake of each stream, and reported once
    for name, table in streams.items():
        prefix = variable_of(TABLE, name) + "__"
        own = merged(merged({"kinesis": {"stream": name}}, defaults), table)
        try:
            yield name, _validated(own, prefix, Locations(path, text, os.environ, name))
        except ConfigurationError as error:
            problems |= dict.fromkeys(str(error).splitlines())
    if problems:
        raise ConfigurationError("\n".join(problems))


def _with_environment(tables: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return tables with the environment variables that begin with `prefix` over them. Raises ConfigurationError."""
    with _environment_errors(prefix):
        found = merged(tables, EnvSettingsSource(Settings, env_prefix=prefix)())
    return _with_empty_proxies(found, prefix, Settings.model_fields)


def _with_empty_proxies(tables: Mapping[str, Any], prefix: str, fields: Mapping[str, FieldInfo]) -> dict[str, Any]:
    """Return tables with the empty variables of proxies, which mean none: other empty variables do not count."""
    found = dict(tables)
    empty = {name.upper() for name, value in os.environ.items() if not value}
    for name, field in fields.items():
        variable = f"{prefix}{name}".upper()
        if is_proxy(field) and variable in empty:
            found[name] = ""
            continue
        section, inner = section_of(field), found.get(name, {})
        if section is not None and isinstance(inner, dict):
            inner = _with_empty_proxies(inner, f"{variable}__", section.model_fields)
            found |= {name: inner} if inner else {}
    return found


def _validated(tables: Mapping[str, Any], prefix: str, locations: Locations) -> Settings:
    """Return the settings of tables, with the environment variables that begin with `prefix` over them."""
    merged_tables = _with_environment(tables, prefix)
    found = with_secrets(merged_tables, Settings.model_fields)
    try:
        settings = StreamSettings(**found)
    except ValidationError as error:
        # `from None`: the inputs in pydantic's error could include a secret that was written in the wrong place.
        raise ConfigurationError("\n".join(messages(error, locations))) from None
    settings.note_secret_files(secret_files(merged_tables, Settings.model_fields))
    return settings


@contextmanager
def _environment_errors(prefix: str) -> Iterator[None]:
    """Translate the errors of values that are not what their variable needs."""
    try:
        yield
    except RecursionError:
        nested = [name for name in sorted(os.environ) if name.startswith(PREFIX) and _is_nested_too_deep(name)]
        raise ConfigurationError(f"environment {', '.join(nested)}: the value is nested too deep") from None
    except SettingsError as error:
        raise ConfigurationError(f"environment: {_setting_of(error)}: write {prefix}<SECTION>__<KEY> instead") from None


def _setting_of(error: SettingsError) -> str:
    """Return which setting has a value that is not what it needs; the value may be a secret."""
    found = re.search(r'field "(\w+)"', str(error))
    return f"the value of {found[1] if found else 'a setting'} cannot be read"


def _read(path: Path) -> str:
    try:
        return decode(path.read_bytes())
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot read the configuration: {error.strerror}") from error
    except ValueError as error:
        raise ConfigurationError(f"{path}: cannot read the configuration: {error}") from None


def _parse(path: Path | None, text: str) -> dict[str, Any]:
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path}: not TOML: {reason_of(error)}") from None
    except ValueError:  # Python's limit for the digits of a number
        raise ConfigurationError(f"{path}: a number has too many digits") from None
    except RecursionError:
        raise ConfigurationError(f"{path}: a value is nested too deep") from None
    for name, value in tables.items():
        if name in Settings.model_fields and not isinstance(value, dict):
            raise ConfigurationError(f"{path}: {name} is a table: write [{name}] and its keys below")
    _refuse_secrets(path, tables, Settings.model_fields)
    streams = tables.get(TABLE)
    for name, own in streams.items() if isinstance(streams, dict) else ():
        if isinstance(own, dict):
            _refuse_secrets(path, own, Settings.model_fields, TABLE, name)
    return tables


def _refuse_secrets(path: Path | None, tables: Mapping[str, Any], fields: Mapping[str, FieldInfo], *names: str) -> None:
    """Refuse a secret in the file, since files are copied, mounted and committed."""
    for name in tables.keys() & fields.keys():
        if is_secret(fields[name]):
            raise ConfigurationError(
                f"{path}: [{'.'.join(names)}] {name} is a secret: remove it from the file, and set"
                f" {variable_of(*names, name)} in the environment instead, or {name}_file to a file that has it"
            )
        if is_proxy(fields[name]) and "@" in str(tables[name]):
            raise ConfigurationError(
                f"{path}: [{'.'.join(names)}] {name} has a user and a password: remove them from the file, and set"
                f" {variable_of(*names, name)} in the environment instead"
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
                f""" {variable_of(*names)}='{{"{option}": "..."}}' in the environment, merged with the file's options"""
            )


def _refuse_unknown_variables(environ: Mapping[str, str], streams: Collection[str]) -> None:
    """Refuse `EFO_<SECTION>__<KEY>` with an unknown section or stream, which pydantic-settings would ignore."""
    parts = {variable_part(name).lower(): name for name in streams}
    for name in sorted(environ):
        section, separator, rest = name.removeprefix(PREFIX).lower().partition("__")
        if not (name.startswith(PREFIX) and separator):
            continue
        if section == TABLE:
            stream, _, rest = rest.partition("__")
            section, separator, _ = rest.partition("__")
            if stream not in parts:
                raise ConfigurationError(f"environment {name}: {_unknown_stream(stream, parts)}")
            if not separator and section in {"", *SECTIONS}:
                raise ConfigurationError(
                    f"environment {name}: it names no setting: write EFO_{TABLE.upper()}__<NAME>__<SECTION>__<KEY>"
                )
            if section == "service":
                raise ConfigurationError(
                    f"environment {name}: these settings are the process's: set {variable_of(*rest.split('__'))}"
                )
            if section not in SECTIONS:
                raise ConfigurationError(f"environment {name}: unknown section{suggest(section, SECTIONS)}")
            if rest == "leases__worker_id":
                raise ConfigurationError(
                    f"environment {name}: the worker id is the process's: set EFO_LEASES__WORKER_ID"
                )
        elif section not in Settings.model_fields:
            raise ConfigurationError(f"environment {name}: unknown section{suggest(section, Settings.model_fields)}")


def _unknown_stream(part: str, streams: Mapping[str, str]) -> str:
    if not streams:
        return f"the configuration has no [{TABLE}]: write EFO_<SECTION>__<KEY> for its only stream"
    return f"the configuration has no stream {part!r}{suggest(part, streams)}"


def _is_nested_too_deep(name: str) -> bool:
    try:
        json.loads(os.environ[name])
    except RecursionError:
        return True
    except ValueError:
        return False
    return False
