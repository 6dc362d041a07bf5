"""What is wrong with the process, apart from its streams, until it is over: for /status, the page and the metric."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal, get_args

import msgspec
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from efo.telemetry.instruments import SCHEMA_URL
from efo_service.web.problems import LastError, continued

Kind = Literal["reload_refused", "restart_needed", "certificate_not_renewed", "connections_not_accepted"]
"""What may be wrong: one of each at a time."""
_SYSTEMS: Final[Mapping[Kind, tuple[str, str]]] = {
    "reload_refused": (
        "configuration",
        "correct what the text names: a changed secret is read at once, the rest at SIGHUP",
    ),
    "certificate_not_renewed": (
        "certificate",
        "write a certificate and a key that fit: they are read at the next connection",
    ),
    "connections_not_accepted": ("web", "raise the limit of open files of the process (ulimit -n), or free memory"),
}
"""Of each kind that is an error: what failed, and the remedy."""
NAME: Final = "efo.process.problem"
KIND: Final = "efo.problem"


class ProcessProblems:
    """The problems of a process, in the order in which they began. None of them stops the reading.

    `clock`: seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._texts: dict[Kind, str] = {}
        self._errors: dict[Kind, LastError] = {}

    def began(self, kind: Kind, text: str) -> bool:
        """Note what is wrong, in a sentence with its remedy, or that it is still wrong. Return whether it is new."""
        is_new = kind not in self._texts
        self._texts = {**self._texts, kind: text}  # exporters' threads read it
        if kind in _SYSTEMS:
            system, remedy = _SYSTEMS[kind]
            error = LastError(system, kind, text, round(self._clock(), 3), 1, remedy, is_over=False)
            self._errors = {**self._errors, kind: continued(error, self._errors.get(kind))}
        return is_new

    def ended(self, kind: Kind) -> None:
        """Note that it is over, if it was wrong."""
        if kind not in self._texts:
            return
        self._texts = {known: text for known, text in self._texts.items() if known != kind}
        if kind in self._errors:
            over = msgspec.structs.replace(self._errors[kind], is_over=True)
            self._errors = {**self._errors, kind: over}

    def last_errors(self) -> tuple[LastError, ...]:
        """Return the last error of the configuration, the certificate and the web server, of those that had one."""
        return tuple(self._errors.values())

    def texts(self) -> tuple[str, ...]:
        """Return the sentences."""
        return tuple(self._texts.values())

    def measure(self, provider: MeterProvider) -> None:
        """Export whether each kind of problem is there."""

        def observe(_options: CallbackOptions) -> Iterable[Observation]:
            return [Observation(int(kind in self._texts), {KIND: kind}) for kind in get_args(Kind)]

        provider.get_meter("efo.service", schema_url=SCHEMA_URL).create_observable_up_down_counter(
            NAME, [observe], "{problem}", "1 while the process has this problem, as /status says, otherwise 0."
        )
