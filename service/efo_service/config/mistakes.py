"""Where a wrong setting is written, and what to write instead. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from efo_service.config.section import Section, section_of, variable
from efo_service.config.settings import Settings
from efo_service.config.streams import TABLE, variable_part

_CREDENTIAL = re.compile(r"access_?key|secret|session_?token|password|credential", re.IGNORECASE)


class Locations:
    """Finds where a setting was written. `text`: of the file `path`. `environ`: the environment variables."""

    def __init__(self, path: Path | None, text: str, environ: Mapping[str, str], stream: str | None = None) -> None:
        """`stream`: the name of the stream whose settings they are, if the file has several."""
        self._path = path
        # What is written for the stream goes before what is written for all.
        self._scopes: list[tuple[str, ...]] = [()] if stream is None else [(TABLE, stream), ()]
        self._lines = text.splitlines()
        self._environ = {name.upper() for name in environ}

    def of(self, loc: Sequence[str]) -> str:
        """Return the environment variable of a setting, or its file, line and table. `loc`: see pydantic's errors.

        If `loc` is empty, the error concerns no single setting: return only the file.
        """
        if not loc:
            file = "environment" if self._path is None else str(self._path)
            return f"{file}: [{'.'.join(self._scopes[0])}]" if self._scopes[0] else file
        names, keys = _tables(loc)
        found = (self._written(*scope, *names, keys=keys) for scope in self._scopes)
        return next(filter(None, found), None) or self.of_table(*self._scopes[0], *names, keys=keys)

    def of_table(self, *names: str, keys: Sequence[str] = ()) -> str:
        """Return the file and the table of a setting, with the line if the table is written there."""
        table = f"[{'.'.join(names)}]" + (f" {keys[0]}" if keys else "")
        if self._path is None:
            return table
        line = self._line(".".join(names))
        return f"{self._path}:{line}: {table}" if line else f"{self._path}: {table}"

    def _written(self, *names: str, keys: Sequence[str]) -> str | None:
        """Return where a setting is written, None if it is not."""
        if keys and (name := variable_of(*names, keys[0])) in self._environ:
            return f"environment {name}"
        table = f"[{'.'.join(names)}]" + (f" {keys[0]}" if keys else "")
        line = None if self._path is None else self._line(".".join([*names, *keys[:1]]))
        return f"{self._path}:{line}: {table}" if line else None

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


def messages(error: ValidationError, locations: Locations) -> Iterator[str]:
    """Yield a message for each mistake that pydantic found, without the values: they may be secrets."""
    for detail in error.errors(include_url=False, include_input=False):
        loc = [str(part) for part in detail["loc"]]
        location = locations.of(loc)
        match detail["type"]:
            case "extra_forbidden":
                yield f"{location}: {_unknown(loc)}"
            case "missing":
                yield f'{location}: missing: write [kinesis] stream = "NAME or ARN", or set EFO_KINESIS__STREAM'
            case _:
                yield f"{location}: {expected(detail['type'], detail['msg'])}"


def expected(kind: str, text: str) -> str:
    """Return what pydantic says, in the words of all other messages."""
    if kind == "path_not_file":
        return "no such file: expected the path of a file that exists"
    text = text.removeprefix("Value error, ").replace("String should match pattern", "expected like")
    return text.replace("Input should be", "expected")


def _unknown(loc: Sequence[str]) -> str:
    if _CREDENTIAL.search(loc[-1]):
        return "credentials are not settings: remove them and use the AWS chain (environment, profile or role)"
    if len(loc) == 1:
        return f"unknown table{suggest(loc[0], Settings.model_fields)}"
    known: Mapping[str, FieldInfo] = Settings.model_fields
    for name in _tables(loc)[0]:
        section = _section(known, name)
        known = section.model_fields if section else {}
    return f"unknown key{suggest(loc[-1], known)}"


def suggest(name: str, known: Collection[str]) -> str:
    """Return a suggestion to append to an error: the nearest known name, or all of them."""
    near = get_close_matches(name.lower(), known, n=1)
    return f": did you mean {near[0]!r}?" if near else f": expected one of {', '.join(known)}"


def variable_of(*names: str) -> str:
    """Return the environment variable of a setting, of all streams or of one."""
    return variable(*(variable_part(name) for name in names))
