"""The last diagnostic events, as the sentences of efo's log, for the page."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from time import time
from typing import Final

import msgspec

from efo.events import Event, WorkerStarted
from efo.telemetry.log import LoggingObserver

KEPT: Final = 200


class Sentence(msgspec.Struct, frozen=True):
    """An event. `number`: grows with each one of a worker. `at`: seconds since the epoch. `level`: as in the log."""

    number: int
    at: float
    level: str
    text: str
    worker: str = ""


class RecentEvents:
    """An observer that keeps the last events that an operator should see. Sentences have neither data nor keys."""

    def __init__(self, *, clock: Callable[[], float] = time) -> None:
        self._clock = clock
        self._kept: deque[Sentence] = deque(maxlen=KEPT)
        self._count = 0
        self._worker = ""
        # Not by getLogger: nothing else writes to it, it has no parent, and another service has another one.
        logger = logging.Logger(__name__, logging.INFO)  # noqa: LOG001
        logger.addHandler(_Handler(self._add))
        self._observe = LoggingObserver(logger)

    def observes(self, event_type: type) -> bool:
        """Whether an event of this type may become a sentence (see `combine_observers`)."""
        return self._observe.observes(event_type)

    def __call__(self, event: Event) -> None:
        """Keep one event, if it is worth a sentence."""
        if isinstance(event, WorkerStarted):
            self._worker = event.worker_id  # in a field of its own, instead of at the beginning of each sentence
        else:
            self._observe(event)

    def sentences(self) -> tuple[Sentence, ...]:
        """Return the last events, the oldest first."""
        return tuple(self._kept)

    def note(self, level: str, text: str) -> None:
        """Keep a sentence that is no event of a consumer: what an operator did."""
        self._count += 1
        self._kept.append(Sentence(self._count, round(self._clock(), 3), level, text, self._worker))

    def _add(self, record: logging.LogRecord) -> None:
        self.note(record.levelname.lower(), record.getMessage())


class _Handler(logging.Handler):
    def __init__(self, add: Callable[[logging.LogRecord], None]) -> None:
        super().__init__()
        self._add = add

    def emit(self, record: logging.LogRecord) -> None:
        self._add(record)
