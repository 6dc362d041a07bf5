"""Checks of arguments and settings, so that a mistake is rejected where it is made. Each raises ConfigurationError."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from math import inf, isfinite
from pathlib import PurePath
from typing import Any, Final
from unicodedata import category

from efo.errors import ConfigurationError


def check_text(name: str, value: object, what: str) -> None:
    """Check that the value is a text that is not empty. `what`: what the text is, for the message."""
    if not isinstance(value, str):
        raise ConfigurationError(f"{name}={shown(value)}: expected {what}")
    if not value.strip():
        raise ConfigurationError(f"{name} is empty: expected {what}")
    if not is_clean(value):
        raise ConfigurationError(f"{name}: expected {what}, without blanks around it and control characters")


def is_clean(text: str) -> bool:
    """Return whether a text has neither blanks around it nor control characters."""
    return text == text.strip() and text.isprintable()


def check_type(name: str, value: object, kind: type | tuple[type, ...], what: str) -> None:
    """Check that the value is an instance of this class, or of one of these. `what`: what is expected.

    Of a text, the message names only that it is one: it may be a key of a record.
    """
    if not isinstance(value, kind):
        raise ConfigurationError(f"{name}={'<str>' if isinstance(value, str) else shown(value)}: expected {what}")


def check_callable(name: str, value: object, what: str, *parameters: str) -> None:
    """Check that the value is an ordinary function that accepts these positional arguments.

    `what`: what is expected, for the message.
    """
    if not callable(value) or isinstance(value, type) or is_async(value) or _is_generator(value):
        raise ConfigurationError(f"{name}={shown(value)}: expected {what}")
    _check_parameters(value, name, parameters)


def check_count(name: str, value: object, *, minimum: int = 1, maximum: int | None = None, unit: str = "") -> None:
    """Check that the value is an integer of at least `minimum`."""
    is_count = isinstance(value, int) and not isinstance(value, bool)
    if not is_count or value < minimum or (maximum is not None and value > maximum):  # type: ignore[operator]
        limits = f"{minimum} or more" if maximum is None else f"{minimum} to {maximum}"
        raise ConfigurationError(f"{name}={shown(value)}: expected {limits}{unit}")


def check_number(name: str, value: object, *, zero: bool = False, infinite: bool = False, unit: str = "") -> None:
    """Check that the value is a number above 0. `zero`, `infinite`: whether these are allowed too."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not (isfinite(value) or (infinite and value == inf))
        or value < 0
        or (value == 0 and not zero)
    ):
        raise ConfigurationError(f"{name}={shown(value)}: expected {'0 or more' if zero else 'a number above 0'}{unit}")


def check_tags(name: str, value: object) -> None:
    """Check that the value is a mapping that AWS accepts as the tags of a fan-out consumer (AWS: TagResource)."""
    if not isinstance(value, Mapping) or not all(isinstance(text, str) for tag in value.items() for text in tag):
        raise ConfigurationError(f"{name}={shown(value)}: expected texts by texts, such as {{'team': 'billing'}}")
    if len(value) > MAX_TAGS:
        raise ConfigurationError(f"{name} has {len(value)} tags: expected at most {MAX_TAGS}")
    for key, content in value.items():
        if not 0 < len(key) <= _MAX_TAG_KEY or len(content) > _MAX_TAG_VALUE or key.lower().startswith("aws:"):
            raise ConfigurationError(
                f"{name}: the tag {shown(key)} is invalid: expected a key of 1 to {_MAX_TAG_KEY} characters that does "
                f"not begin with aws:, and a value of {_MAX_TAG_VALUE} at most"
            )
        if wrong := next((char for char in key + content if not _is_for_tags(char)), None):
            raise ConfigurationError(
                f"{name}: the tag {shown(key)} has the character {wrong!r}: expected letters, digits, blanks and "
                "_.:/=+-@"
            )


def _is_for_tags(char: str) -> bool:
    return char in "_.:/=+-@" or category(char)[0] in "LNZ"


def check_async(function: object, name: str, *parameters: str) -> None:
    """Check that the function is async and accepts these positional arguments.

    `name`: the argument that the function was passed as, for the message.
    """
    if not callable(function):
        raise ConfigurationError(
            f"{name} is {shown(function)}: expected an async function of ({', '.join(parameters)})"
        )
    if isinstance(function, type):
        raise ConfigurationError(f"{name} {name_of(function)} is a class: pass a function, or an instance")
    if _is_generator(function):
        raise ConfigurationError(f"{name} {name_of(function)} is a generator function: it must not contain `yield`")
    if not is_async(function):
        raise ConfigurationError(
            f"{name} {name_of(function)} is not an async function: write `async def`, or pass "
            f"efo.in_thread({name_of(function)}) for code that blocks"
        )
    _check_parameters(function, name, parameters)


def _check_parameters(function: Callable[..., object], name: str, parameters: tuple[str, ...]) -> None:
    if (signature := signature_of(function)) is None:
        return
    try:
        signature.bind(*parameters)
    except TypeError as error:
        raise ConfigurationError(
            f"{name} {name_of(function)}{signature} cannot be called with ({', '.join(parameters)}): {error}"
        ) from None


def is_async(function: Callable[..., object]) -> bool:
    """Return whether a call of the function gives a coroutine: also through partials, wrappers and `__call__`."""
    return any(
        inspect.iscoroutinefunction(layer) or inspect.iscoroutinefunction(type(layer).__call__)
        for layer in _layers(function)
    )


def _is_generator(function: Callable[..., object]) -> bool:
    return any(inspect.isgeneratorfunction(layer) or inspect.isasyncgenfunction(layer) for layer in _layers(function))


def _layers(function: Callable[..., object]) -> Iterator[Callable[..., object]]:
    """Yield a function, and those that it wraps as `functools.wraps` and `functools.partial` tell."""
    layer: Any = function
    while layer is not None:
        yield layer
        layer = layer.func if isinstance(layer, functools.partial) else getattr(layer, "__wrapped__", None)


def name_of(function: object) -> str:
    """Return the qualified name of a function, for messages."""
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)


def signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return the signature of a function; None for builtins and compiled code that have none.

    Of a wrapper that passes on whatever it gets, it is that of the wrapped function.
    """
    try:
        own = inspect.signature(function, follow_wrapped=False)
        passes_on = all(parameter.kind in _VARIADIC for parameter in own.parameters.values())
        return inspect.signature(function) if passes_on else own
    except (TypeError, ValueError):
        return None


def shown(value: object) -> str:
    """Return a value as a message shows it, at most 200 characters.

    Only plain values are shown, and functions and classes by their names. Anything else may hold records or secrets,
    and gives its class. Nothing is shown of a text with a password.
    """
    if isinstance(value, type) or inspect.isroutine(value) or isinstance(value, functools.partial):
        return name_of(value)
    if not _is_plain(value):
        return f"<{type(value).__name__}>"
    text = repr(value)
    if _PASSWORD.search(text):
        return "<a text with a password>"
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def printable(text: str) -> str:
    """Return a text without line breaks and control characters: they could change a terminal, or fake a line.

    Names come from others: of records, lease stores, endpoints and files. Each is escaped, as Python would.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _is_plain(value: object) -> bool:
    if isinstance(value, list | tuple | set | frozenset) and type(value).__module__ == "builtins":
        return all(isinstance(item, _PLAIN) for item in value)
    return isinstance(value, _PLAIN)


_MAX_SHOWN: Final = 200
_PLAIN: Final = (str, int, float, type(None), Enum, PurePath)
_PASSWORD: Final = re.compile(r"://[^/\s]*@|passw|secret|token", re.IGNORECASE)
MAX_TAGS: Final = 50
"""The maximum number of tags of a stream or a consumer."""
_MAX_TAG_KEY: Final = 128
_MAX_TAG_VALUE: Final = 256
"""In characters (AWS: TagKey, TagValue)."""
_VARIADIC: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
