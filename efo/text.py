"""The text of files that people write: UTF-8, with or without a byte order mark. Editors of Windows write others."""

from __future__ import annotations

import codecs
from typing import Final

_MARKS: Final = {codecs.BOM_UTF32_LE: "UTF-32", codecs.BOM_UTF32_BE: "UTF-32"} | dict.fromkeys(
    (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE), "UTF-16"
)
"""How files in other encodings begin. That of UTF-32 begins like UTF-16's, so it goes first."""


def without_mark(content: bytes) -> bytes:
    """Return bytes without the byte order mark of UTF-8, which is no part of the text."""
    return content.removeprefix(codecs.BOM_UTF8)


def other_encoding(content: bytes) -> str | None:
    """Return the encoding that a byte order mark shows, None if it may be UTF-8."""
    return next((name for mark, name in _MARKS.items() if content.startswith(mark)), None)


def decode(content: bytes) -> str:
    """Return the text of a file. Raises ValueError, which says what the file is instead, and in which line."""
    unmarked = "UTF-16" if b"\0" in content[:2] else None  # a letter of ASCII, and a zero
    if encoding := other_encoding(content) or unmarked:
        raise ValueError(f"it is {encoding} text: save it as UTF-8")
    try:
        return without_mark(content).decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start + len(content) - len(without_mark(content))) + 1
        raise ValueError(
            f"line {line}: it is not UTF-8 text, but maybe Latin-1 or Windows-1252: save it as UTF-8"
        ) from None
