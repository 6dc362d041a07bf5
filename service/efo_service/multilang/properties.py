"""Reads Java's properties format: `key = value`, comments, continued lines, escapes. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from efo.errors import ConfigurationError

_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_PAIR: Final = re.compile(r"((?:\\.|[^\\\s:=])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.)|$)", re.DOTALL)
_BAD_ESCAPE: Final = re.compile(r"(?<!\\)(?:\\\\)*\\u(?![0-9a-fA-F]{4})")


def parse(text: str) -> dict[str, str]:
    """Return the values by their keys; of a key that is there twice, the last, as in Java.

    Values are stripped of blanks at their ends, which Java keeps. Raises ConfigurationError, with the line's number.
    """
    values: dict[str, str] = {}
    for number, line in _logical_lines(text):
        if _BAD_ESCAPE.search(line):
            raise ConfigurationError(f"line {number}: \\u needs four hexadecimal digits")
        match = _PAIR.match(line)
        if match is not None and match[1]:
            values[_unescaped(match[1])] = _unescaped(match[2]).strip()
    return values


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that are no comments, with their numbers; those that a backslash continues as one."""
    held, began = "", 0
    for number, natural in enumerate(re.split(r"\r\n|\n|\r", text), 1):
        line = natural.lstrip(" \t\f")
        if not held and (not line or line[0] in "#!"):
            continue
        began = began if held else number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            held += line[:-1]
            continue
        yield began, held + line
        held = ""
    if held:
        yield began, held


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)) if found[1] else _escaped_by(found[2] or ""), text)


def _escaped_by(letter: str) -> str:
    return _ESCAPES.get(letter, letter)
