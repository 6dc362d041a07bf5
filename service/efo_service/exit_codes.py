"""Exit codes: the one table from errors to what the process returns (sysexits.h, as Vector uses it)."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Final

from rich.console import Console

from efo.errors import ConfigurationError, EfoError
from efo_service.errors import DrainDeadlineError, UsageError


class Exit(IntEnum):
    """What the process returns."""

    OK = 0
    USAGE = 64
    UNAVAILABLE = 69
    INTERNAL = 70
    DRAIN_DEADLINE = 75
    CONFIGURATION = 78
    INTERRUPTED = 130


# The first match counts. Whatever else efo raises on purpose is about something that it needs and cannot have.
_CODES: Final[tuple[tuple[type[BaseException], Exit], ...]] = (
    (UsageError, Exit.USAGE),
    (ConfigurationError, Exit.CONFIGURATION),
    (DrainDeadlineError, Exit.DRAIN_DEADLINE),
    (EfoError, Exit.UNAVAILABLE),
    (KeyboardInterrupt, Exit.INTERRUPTED),
    (BaseException, Exit.INTERNAL),
)


def code_of(error: BaseException) -> Exit:
    """Return the exit code of an error; of a group, that of its most surprising member."""
    return most_surprising(_code_of_one(leaf) for leaf in leaf_exceptions(error))


_SURPRISE: Final = [Exit.OK, *(code for _, code in _CODES)]


def most_surprising(codes: Iterable[Exit]) -> Exit:
    """Return the exit code that stands for several; for none, OK."""
    return max(codes, key=_SURPRISE.index, default=Exit.OK)


def _code_of_one(error: BaseException) -> Exit:
    return next(code for kind, code in _CODES if isinstance(error, kind))


def leaf_exceptions(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors in a group of groups; an error that is no group is its own only leaf."""
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from leaf_exceptions(member)
    else:
        yield error


def report(error: BaseException) -> Exit:
    """Say on stderr what went wrong, in a message for an operator, and return the exit code.

    Only an internal error shows its traceback: it is a defect of efo, and the traceback is what we need to know.
    """
    code = code_of(error)
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    if code is Exit.INTERNAL:
        sys.excepthook(type(error), error, error.__traceback__)
        console.print("[bold red]efo failed inside:[/] this is a defect; please report it with the lines above.")
    else:
        for message in dict.fromkeys(str(leaf) for leaf in leaf_exceptions(error) if _code_of_one(leaf) is code):
            console.print(f"[bold red]efo:[/] {_escaped(message or 'interrupted')}")
    return code


def _escaped(message: str) -> str:
    return message.replace("[", r"\[")
