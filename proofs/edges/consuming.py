"""A consumer of the library on a fake in memory, in virtual time: what it delivers, and what it tells."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import trio
import trio.testing

import efo
from efo import events
from efo.telemetry.log import LOGGER, LoggingObserver
from efo.testing import FakeKinesis

STREAM = "orders"

T = TypeVar("T")


class Reported(logging.Handler):
    """The lines of the logger `efo` at WARNING and above, and all diagnostic events."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        self.events: list[events.Event] = []
        logging.getLogger(LOGGER).addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        self.lines.append(record.getMessage())

    def lines_with(self, text: str) -> list[str]:
        """Return the lines that have this text."""
        return [line for line in self.lines if text in line]

    def reported(self, kind: type[T]) -> list[T]:
        """Return the events of a type."""
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def observer(self) -> efo.events.Observer:
        """An observer that keeps the events, and writes them to the log as the library does by default."""
        return efo.telemetry.combine_observers(LoggingObserver(clock=trio.current_time), self.events.append)


class Consumed:
    """What a handler got. `data`: of each record, with the number of times. `reported`: what was reported."""

    def __init__(self) -> None:
        self.data: Counter[bytes] = Counter()
        self.reported = Reported()

    async def handle(self, batch: efo.Batch) -> None:
        """Keep the records of a batch."""
        self.data.update(record.data for record in batch)

    def lost(self, put: Counter[bytes]) -> int:
        """Return how many of the records that were put were not delivered."""
        return sum((put - self.data).values())

    def repeated(self, put: Counter[bytes]) -> int:
        """Return how many deliveries were too many."""
        return sum((self.data - put).values())


def in_virtual_time(main: Callable[[], Awaitable[T]]) -> T:
    """Run a function of trio; where nothing happens, the clock jumps."""
    result: T = trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    return result


async def consume(
    fake: FakeKinesis,
    seconds: float = 30.0,
    *,
    reader: Any = None,
    leases: efo.leases.LeaseStore | None = None,
    during: Callable[[], Awaitable[object]] | None = None,
    open_with: dict[str, Any] | None = None,
    **settings: Any,
) -> Consumed:
    """Read the stream for some seconds, and drain.

    `reader`: instead of a handler that keeps the records. `during`: called meanwhile. `open_with`: further arguments of
    `open_consumer`. `settings`: of the consumer.
    """
    consumed = Consumed()
    opening = efo.open_consumer(
        fake.kinesis(STREAM),
        application="edges",
        leases=efo.leases.MemoryLeaseStore() if leases is None else leases,
        settings=efo.ConsumerSettings(**settings),
        observer=consumed.reported.observer,
        **(open_with or {}),
    )
    async with opening as consumer, trio.open_nursery() as nursery:
        nursery.start_soon(consumer.run, efo.Handler(consumed.handle) if reader is None else reader)
        if during is not None:
            await during()
        await trio.sleep(seconds)
        consumer.drain()
    return consumed
