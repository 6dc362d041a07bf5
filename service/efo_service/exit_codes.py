"""The exit code for each error (codes of sysexits.h, as Vector uses them)."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from enum import IntEnum
from typing import Final

from rich.console import Console

from efo.checks import printable
from efo.errors import ConfigurationError, EfoError, WrongEndpointError
from efo.exception_groups import leaf_exceptions
from efo.third_party_errors import traceback_of
from efo_service.errors import DrainDeadlineError, UsageError, missing_package


class Exit(IntEnum):
    """Exit codes of the process."""

    OK = 0
    USAGE = 64
    UNAVAILABLE = 69
    INTERNAL = 70
    DRAIN_DEADLINE = 75
    CONFIGURATION = 78
    INTERRUPTED = 130


# The first match counts. Every other EfoError means that something efo needs is unavailable.
_CODES: Final[tuple[tuple[type[BaseException], Exit], ...]] = (
    (UsageError, Exit.USAGE),
    (ConfigurationError, Exit.CONFIGURATION),
    (WrongEndpointError, Exit.CONFIGURATION),
    (DrainDeadlineError, Exit.DRAIN_DEADLINE),
    (EfoError, Exit.UNAVAILABLE),
    (KeyboardInterrupt, Exit.INTERRUPTED),
    (BaseException, Exit.INTERNAL),
)


def code_of(error: BaseException) -> Exit:
    """Return the exit code of an error. For an exception group, return the most severe code of its members."""
    return most_severe(_code_of_one(leaf) for leaf in leaf_exceptions(error))


_BY_SEVERITY: Final = [Exit.OK, *(code for _, code in _CODES)]


def most_severe(codes: Iterable[Exit]) -> Exit:
    """Return the most severe of the exit codes; OK if there are none."""
    return max(codes, key=_BY_SEVERITY.index, default=Exit.OK)


def _code_of_one(error: BaseException) -> Exit:
    if missing_package(error) is not None:
        return Exit.UNAVAILABLE
    return next(code for kind, code in _CODES if isinstance(error, kind))


def report(error: BaseException) -> Exit:
    """Print the error on stderr for an operator, and return the exit code.

    Only an internal error shows its traceback, since it is a defect of efo.
    """
    code = code_of(error)
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    if code is Exit.INTERNAL:
        sys.stderr.write(traceback_of(error))
        console.print("[bold red]efo:[/] internal error: this is a defect, please report it with the lines above")
    else:
        for message in dict.fromkeys(_message(leaf) for leaf in leaf_exceptions(error) if _code_of_one(leaf) is code):
            console.print(f"[bold red]efo:[/] {_escaped(message) or 'interrupted'}")
    return code


def _message(error: BaseException) -> str:
    return missing_package(error) or str(error)


def _escaped(message: str) -> str:
    """Return a message without markup and control characters. A further line is indented: no name can fake one."""
    return "\n     ".join(map(printable, message.splitlines())).replace("[", r"\[")
