"""What relays write to and Spark reads from, as the run needs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from service.demo.children import Child
from service.demo.verify import Row


class Output(Protocol):
    """The log, or a topic of a broker.

    `name`: in the run's result. `relay`: its configuration, the table [relay] and those under it. `pipeline`: lines of
    the table [pipeline]. `servers`: what must run for it, victims too. `relay_failures`, `spark_failures`: how often
    these may end by themselves and are started again, as an orchestrator does.
    """

    name: str
    relay: str
    pipeline: str
    servers: Sequence[Child]
    relay_failures: int
    spark_failures: int

    async def prepare(self) -> None:
        """Make what readers look for before the relay is there; the servers run."""

    async def count(self) -> int:
        """Return how many records there are so far."""

    async def rows(self) -> list[Row]:
        """Return all records."""
