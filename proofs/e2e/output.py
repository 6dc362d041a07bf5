"""What relays write to and Spark reads from, as the run needs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from efo_service.demo.children import Child
from efo_service.demo.verify import Row


class Output(Protocol):
    """The log, or a topic of a broker."""

    @property
    def name(self) -> str:
        """Its name in the run's result."""
        ...

    @property
    def relay(self) -> str:
        """Its configuration: the table [relay] and those under it."""
        ...

    @property
    def pipeline(self) -> str:
        """Lines of the table [pipeline]."""
        ...

    @property
    def servers(self) -> Sequence[Child]:
        """What must run for it; the run kills these too."""
        ...

    @property
    def relay_failures(self) -> int:
        """How often a relay may end by itself and is started again, as an orchestrator does."""
        ...

    @property
    def spark_failures(self) -> int:
        """The same for Spark."""
        ...

    async def prepare(self) -> None:
        """Make what readers look for before the relay is there; the servers run."""

    async def count(self) -> int:
        """Return how many records there are so far."""

    async def rows(self) -> list[Row]:
        """Return all records."""
