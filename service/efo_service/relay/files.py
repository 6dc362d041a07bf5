"""Reads the small files of a log. Anything may be in their place: a damaged file, a FIFO, a loop of links."""

from __future__ import annotations

import errno
import json
import re
import stat
from pathlib import Path
from typing import Any, Final

_DIGITS: Final = re.compile(r"[0-9]{1,20}")
_YEAR_9999: Final = 253_370_764_800.0


def check_regular(path: Path) -> None:
    """Raise OSError if the path is no regular file: opening a FIFO would wait for ever. Links are followed."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))


def read_regular(path: Path) -> bytes:
    """Return the content of a regular file. Raises OSError."""
    check_regular(path)
    return path.read_bytes()


def parse_json(content: bytes | str) -> Any:
    """Return the parsed JSON. Raises ValueError, also if it is nested too deep for the parser."""
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def whole_number(value: object, limit: int = 2**63) -> int:
    """Return a number of JSON, or the digits of a key or a name, as an int of 0 to `limit` - 1. Raises ValueError."""
    text = str(value) if type(value) is int or isinstance(value, str) else ""
    if not _DIGITS.fullmatch(text) or int(text) >= limit:
        raise ValueError(f"{text[:40] or type(value).__name__!r} is not a whole number from 0 to {limit - 1}")
    return int(text)


def epoch_seconds(value: object) -> float:
    """Return a time in seconds since the epoch. Raises ValueError if it is no number, or not from 1970 to 9999."""
    seconds = float(value) if isinstance(value, (int, float, str)) else -1.0
    if not 0 <= seconds < _YEAR_9999:
        raise ValueError(f"{str(value)[:40]!r} is not a time in seconds since 1970")
    return seconds
