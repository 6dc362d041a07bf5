"""The outcome of a check: what was found, and what to do about it. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from efo.exception_groups import leaf_exceptions
from efo.third_party_errors import reason_of
from efo_service.exit_codes import Exit, code_of

Result = Literal["passed", "failed", "not tested"]

_ADVICE: Final = re.compile(
    r"[;:.,] (?=(?:as the owner|check|choose|correct|create|expected|free|give|grant|install|renew|restore|set|the"
    r" credentials need|pip install|the principal needs|upgrade|use)\b)",
    re.IGNORECASE,
)
"""Where the remedy begins in the message of an error: efo's messages say what, where, and then what to do."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a check found.

    `detail`: what was found, or why it was not tested. `remedy`: what to do if it failed. `code`: the exit code that
    a failure asks for.
    """

    result: Result
    detail: str
    remedy: str = ""
    code: Exit = Exit.OK


def passed(detail: str) -> Outcome:
    """Return the outcome of a check that found no problem."""
    return Outcome("passed", detail)


def not_tested(reason: str) -> Outcome:
    """Return the outcome of a check that did not test anything."""
    return Outcome("not tested", reason)


def failed(detail: str, remedy: str, code: Exit = Exit.UNAVAILABLE) -> Outcome:
    """Return the outcome of a check that found a problem: something is unavailable, unless `code` says otherwise."""
    return Outcome("failed", detail, remedy, code)


def failed_by(error: BaseException, remedy: str) -> Outcome:
    """Return the outcome of a check that raised an error. `remedy`: used if the error's message has none.

    The exit code is that with which another command would report the error.
    """
    code = code_of(error)
    leaf = next(leaf_exceptions(error))
    if isinstance(leaf, OSError):
        where = f"{leaf.filename}: " if isinstance(leaf.filename, str) else ""
        return failed(f"{where}{reason_of(leaf)}", remedy)
    if code is Exit.INTERNAL:
        return failed(reason_of(leaf), "this is a defect of efo: please report it", code)
    detail, advice = split_advice(" ".join(str(leaf).split()))
    return failed(detail, advice or remedy, code)


def split_advice(message: str) -> tuple[str, str]:
    """Return what an error's message says happened, and the remedy that follows it; "" if it has none."""
    found = _ADVICE.search(message)
    return (message, "") if found is None else (message[: found.start()], message[found.end() :])
