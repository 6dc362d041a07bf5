"""What a situation is, and what was seen in it.

A module of cases registers functions with `Cases.case`. Each function runs in a process of its own, with an empty home
and without any variable of AWS, and returns an Outcome. The log is written at DEBUG to stderr. The runner looks for
`CANARY` in all that the process printed: a case plants it in each secret, key and payload that it makes.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import trio

CANARY: Final = "CaNaRy7h3"
"""Every secret of a case contains this text; no output of efo may."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What efo did in a situation.

    `did`: in a few words. `is_right`: whether that is right. `counts`: numbers for the summary, by its names, such as
    `{"records_lost_silently": 2}`; those whose names end with `_worst` are not added up, the largest counts.
    """

    did: str
    is_right: bool
    counts: Mapping[str, float] = field(default_factory=dict)


Try = Callable[[], Outcome | Awaitable[Outcome]]


@dataclass(frozen=True, slots=True)
class Situation:
    """A situation. `kind`: the group in which it is shown. `name`: unique. `right`: what efo must do in it.

    `seconds`: after which its process is killed, and counts as hung.
    """

    kind: str
    name: str
    right: str
    seconds: float
    function: Try

    def run(self) -> Outcome:
        """Try it in this process."""
        if not inspect.iscoroutinefunction(self.function):
            outcome = self.function()
        else:
            function: Any = self.function
            outcome = trio.run(function)
        if not isinstance(outcome, Outcome):
            raise TypeError(f"{self.name} returned {outcome!r}: expected an Outcome")
        return outcome


class Cases:
    """The situations of one kind: `cases = Cases("clock")`, then `@cases.case(...)` on each function.

    `seconds`: after which a process counts as hung, for those that say nothing else.
    """

    def __init__(self, kind: str, *, seconds: float = 60.0) -> None:
        self.kind = kind
        self._seconds = seconds
        self.situations: list[Situation] = []

    def case(self, right: str, *, seconds: float | None = None, name: str | None = None) -> Callable[[Try], Try]:
        """Register a function, synchronous or for trio, that tries a situation.

        `right`: what efo must do. `name`: by default that of the function, with blanks for underscores.
        """

        def register(function: Try) -> Try:
            title = name or getattr(function, "__name__", "").replace("_", " ").strip()
            self.situations.append(Situation(self.kind, title, right, seconds or self._seconds, function))
            return function

        return register
