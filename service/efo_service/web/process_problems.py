"""What is wrong with the process, apart from its streams, until it is over: for /status, the page and the metric."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, get_args

from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from efo.telemetry.instruments import SCHEMA_URL

Kind = Literal["reload_refused", "restart_needed", "certificate_not_renewed"]
"""What may be wrong: one of each at a time."""
NAME: Final = "efo.process.problem"
KIND: Final = "efo.problem"


class ProcessProblems:
    """The problems of a process, in the order in which they began. None of them stops the reading."""

    def __init__(self) -> None:
        self._texts: dict[Kind, str] = {}

    def began(self, kind: Kind, text: str) -> None:
        """Note what is wrong, in a sentence with its remedy."""
        self._texts = {**self._texts, kind: text}  # exporters' threads read it

    def ended(self, kind: Kind) -> None:
        """Note that it is over, if it was wrong."""
        self._texts = {known: text for known, text in self._texts.items() if known != kind}

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
