"""Secrets in files of their own: for every secret KEY of the settings, KEY_file is a file that has it.

Files are what Kubernetes, systemd and vaults renew while a process runs: see `SecretFiles`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic.fields import FieldInfo

from efo.errors import ConfigurationError
from efo.text import decode
from efo_service.config.section import absolute, is_proxy, is_secret, section_of, variable

SUFFIX: Final = "_file"
_MAX_BYTES: Final = 64 * 1024


def with_secrets(tables: Mapping[str, Any], fields: Mapping[str, FieldInfo], *names: str) -> dict[str, Any]:
    """Return tables in which each KEY_file of a secret is replaced by the KEY. Raises ConfigurationError."""
    found = dict(tables)
    for key, field in fields.items():
        if (section := section_of(field)) is not None:
            if isinstance(inner := found.get(key), Mapping):
                found[key] = with_secrets(inner, section.model_fields, *names, key)
        elif has_file(field) and (path := found.pop(key + SUFFIX, None)) is not None:
            where = f"[{'.'.join(names)}] {key}{SUFFIX}"
            if key in found:
                raise ConfigurationError(f"{where}: {key} is set too ({variable(*names, key)}): remove one of them")
            found[key] = _read(path, where)
    return found


def secret_files(tables: Mapping[str, Any], fields: Mapping[str, FieldInfo]) -> Iterator[Path]:
    """Yield the files that `with_secrets` reads."""
    for key, field in fields.items():
        if (section := section_of(field)) is not None:
            if isinstance(inner := tables.get(key), Mapping):
                yield from secret_files(inner, section.model_fields)
        elif has_file(field) and isinstance(path := tables.get(key + SUFFIX), str):
            yield absolute(path)


def has_file(field: FieldInfo) -> bool:
    """Return whether a setting may be in a file: a secret, or the URL of a proxy, which may have a password."""
    return is_secret(field) or is_proxy(field)


def _read(path: object, where: str) -> str:
    """Return the secret of a file: its only line. Raises ConfigurationError, which has no part of it."""
    if not isinstance(path, str):
        raise ConfigurationError(f"{where}: expected the path of a file")
    try:
        with absolute(path).open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
        text = decode(content).removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise ConfigurationError(f"{where}: {absolute(path)} cannot be read: {error.strerror}") from None
    except ValueError:
        raise ConfigurationError(f"{where}: {absolute(path)} is not a text") from None
    if not text or len(text.splitlines()) != 1 or len(content) > _MAX_BYTES:
        raise ConfigurationError(f"{where}: {absolute(path)} must have one line, which is the secret")
    return text
