"""What efo shows of an exception of other code: its class, and facts that can hold no secret; never its text.

The texts of libraries quote what they were given: headers with a session token, URLs with a password, bodies, records.
So no text of theirs reaches a message, the log, a span or `/status`, but for the few forms and words that are known.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from traceback import extract_tb, format_tb, walk_stack
from types import FrameType
from typing import Any, Final

from efo.errors import EfoError, class_name_of

_CODE: Final = re.compile(r"[0-9A-Z]{5}|[A-Z_]{1,64}")
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}")
_TEXTS: Final = (
    re.compile(  # msgspec, without the values of the data
        r"(?:Expected `[\w |]+`(?:, got `[\w |]+`)?|Object missing required field `\w+`|JSON is malformed: [a-z ]+"
        r"|Input data was truncated|Invalid base64 encoded string)(?: - at `[$\w.\[\]]*`| \(byte \d+\))?"
    ),
    re.compile(  # the interpreter, of types and names
        r"'[\w.]{1,99}' object [a-z ]{1,60}(?:'\w{1,99}')?|[\w.<>]{1,99}\(\) (?:missing|takes|got) [\w ,']{1,150}"
        r"|unsupported operand type\(s\) for \S{1,4}: '\w+' and '\w+'|name '\w+' is not defined"
        r"|No module named '[\w.]+'|cannot import name '\w+' from '[\w.]+'.*"
    ),
    re.compile(r"[A-Z][a-z ,]+(?:: line \d+ column \d+ \(char \d+\)| \(at line \d+, column \d+\))"),  # json, tomllib
)
"""The forms of texts that are made of fixed words, types and numbers."""
_PHRASES: Final = re.compile(
    r"connection refused|connection reset by peer|timeout expired|no route to host|timed out"
    r"|could not translate host name|server closed the connection unexpectedly|lost connection"
    r"|password authentication failed|authentication (?:failed|required)|invalid username-password pair"
    r"|certificate verify failed|the database system is (?:starting up|shutting down)|too many clients"
    r"|(?:database|relation|table|column) \"[\w.-]{1,64}\" does not exist|permission denied for \w{1,20} [\w.-]{1,64}"
    r"|no permissions|Hash slot not served|the cluster is down|embedded null (?:byte|character)"
    r"|read-only transaction|statement timeout|deadlock detected|database is locked|disk I/O error"
    r"|unable to open database file|no such table|attempt to write a readonly database"
    r"|maximum recursion depth exceeded|exceeds the limit \(\d+ digits\)|unknown encoding"
    r"|\b(?:NOAUTH|WRONGPASS|NOPERM|READONLY|MISCONF|LOADING|OOM|BUSY|MASTERDOWN|CLUSTERDOWN|WRONGTYPE)\b",
    re.IGNORECASE,
)
"""What is wrong with a server, a file or a permission, in fixed words: of them, nothing else of the text is shown."""
_CODES: Final = ("sqlite_errorname", "sqlstate")
"""Attributes with a code: of sqlite3 and psycopg."""


_LIBRARIES: Final = frozenset({"efo", "outcome", "trio"}) | sys.stdlib_module_names
_MAX_FRAMES: Final = 100
_MAX_PLACES: Final = 5
_OF_LIBRARIES: Final = re.compile(r"[/\\](?:efo|efo_service|trio|outcome|asyncio)[/\\]|(?:contextlib|functools)\.py$")


def reason_of(error: BaseException) -> str:
    """Return what may be shown of an exception: of one of efo, its text; of another one, its class and safe facts."""
    if isinstance(error, EfoError):
        return str(error)
    facts = dict.fromkeys(fact for fact in _facts(error) if fact)
    name = class_name_of(error)
    return f"{', '.join(facts)} ({name})" if facts else name


def chain_of(error: BaseException) -> str:
    """Return the classes of an exception and of its causes with the places that raised them, for a line at DEBUG."""
    return ", from ".join(f"{class_name_of(link)}{_place_of(link)}" for link in links_of(error))


def places_of(error: BaseException) -> tuple[str, ...]:
    """Return where an exception was raised: "file:line function" of the application's frames, the innermost last.

    Of an exception that the application has no part in, the innermost frame.
    """
    frames = extract_tb(error.__traceback__, limit=-_MAX_FRAMES)
    own = [frame for frame in frames if not _OF_LIBRARIES.search(frame.filename)] or frames[-1:]
    return tuple(f"{PurePath(frame.filename).name}:{frame.lineno} {frame.name}" for frame in own[-_MAX_PLACES:])


def places_on(frame: FrameType | None) -> tuple[str, ...]:
    """Return the places of the application in a running stack, the innermost first; if it has none, the innermost."""
    stack = list(walk_stack(frame)) if frame is not None else []
    own = [(at, line) for at, line in stack if is_of_application(at)] or stack[:1]
    return tuple(f"{PurePath(at.f_code.co_filename).name}:{line} {at.f_code.co_name}" for at, line in own[:_MAX_PLACES])


def is_of_application(frame: FrameType) -> bool:
    """Return whether a frame is neither efo's nor of another library: what is installed, and the standard library."""
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return package not in _LIBRARIES and "site-packages" not in frame.f_code.co_filename


def traceback_of(error: BaseException) -> str:
    """Return the traceback of an exception and of its causes as Python writes it, with `reason_of` for each text."""
    parts = [
        "".join(["Traceback (most recent call last):\n", *format_tb(link.__traceback__), f"{_named(link)}\n"])
        for link in links_of(error)
    ]
    return "\nThe above exception was the cause of the following one:\n\n".join(reversed(parts))


def _named(error: BaseException) -> str:
    name, reason = class_name_of(error), reason_of(error)
    return name if reason == name else f"{name}: {reason.removesuffix(f' ({name})')}"


def links_of(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception, and those that caused it or were being handled; of a group, its exceptions."""
    waiting, seen = [error], set[int]()
    while waiting and len(seen) < _MAX_LINKS:
        link = waiting.pop(0)
        if id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        if isinstance(link, BaseExceptionGroup):
            waiting += link.exceptions
        cause = link.__cause__ or link.__context__
        if cause is not None:
            waiting.append(cause)


def _place_of(error: BaseException) -> str:
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return "" if at is None else f" at {PurePath(at.tb_frame.f_code.co_filename).name}:{at.tb_lineno}"


_MAX_LINKS: Final = 8


def _facts(error: BaseException) -> Iterator[str]:
    yield from _of_botocore(error)
    for name in _CODES:
        code = getattr(error, name, None)
        yield code if isinstance(code, str) and _CODE.fullmatch(code) else ""
    if isinstance(error, OSError):
        yield _of_os(error)
        return
    yield _number(error)
    yield _known_text(error)
    if isinstance(cause := error.__cause__ or error.__context__, OSError):
        yield _of_os(cause)


def _of_os(error: OSError) -> str:
    """Return the reason of the operating system, or of OpenSSL; of several attempts to connect, that of the first."""
    if message := getattr(error, "verify_message", None):
        return str(message)[:_MAX_TEXT]
    if reason := _word(getattr(error, "reason", None)):  # OpenSSL's name, such as WRONG_VERSION_NUMBER
        return reason
    if type(error).__name__ == "gaierror":  # whose numbers are of another kind
        return "the name of the host was not resolved"
    if error.errno is not None and error.errno in errno.errorcode and not hasattr(error, "library"):  # not OpenSSL's
        return os.strerror(error.errno)
    cause = error.__cause__ or error.__context__
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    return _of_os(cause) if isinstance(cause, OSError) and cause is not error else _known_text(error)


_MAX_TEXT: Final = 100


def _of_botocore(error: BaseException) -> Iterator[str]:
    """Yield the operation, the code and the status of an error response; what a setting of AWS lacks."""
    response = getattr(error, "response", None)
    if isinstance(response, Mapping):
        details: Mapping[str, Any] = response.get("Error") or {}
        status = (response.get("ResponseMetadata") or {}).get("HTTPStatusCode")
        operation = _word(getattr(error, "operation_name", None))
        code = _word(details.get("Code")) or "an error"
        said = f"{operation} was answered with {code}" if operation else code
        yield f"{said} (HTTP {status})" if isinstance(status, int) else said
    given = getattr(error, "kwargs", None)
    if isinstance(given, Mapping):
        for name in ("profile", "path", "cred_var", "region_name"):  # names of the user's own configuration
            if name in given and str(given[name]).isprintable():
                yield f"{name} {str(given[name])[:_MAX_TEXT]}"
        if isinstance(inner := given.get("error"), BaseException) and inner is not error:
            yield reason_of(inner)


def _number(error: BaseException) -> str:
    """Return the number of an error of PyMySQL, which is its first argument."""
    number = error.args[0] if error.args and type(error).__module__.startswith("pymysql") else None
    return f"error {number}" if isinstance(number, int) and not isinstance(number, bool) else ""


def _known_text(error: BaseException) -> str:
    """Return the text if it has a form that can hold nothing secret, or else the words of it that are known."""
    try:
        text = str(error).strip()
    except Exception:  # noqa: BLE001 - the text of an exception of other code
        return ""
    if any(form.fullmatch(text) for form in _TEXTS):
        return text
    phrase = _PHRASES.search(text[:_MAX_SEARCHED])
    return phrase[0] if phrase else ""


_MAX_SEARCHED: Final = 10_000


def _word(value: object) -> str:
    """Return a value if it is a single word, such as the name of an error code."""
    return value if isinstance(value, str) and _WORD.fullmatch(value) else ""
