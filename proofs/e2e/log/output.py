"""The embedded log as the output of a run."""

from __future__ import annotations

from pathlib import Path

import trio

from efo_service.demo.verify import Row, log_rows, log_size
from proofs.e2e.run import STREAM


class LogOutput:
    """See `Output`. A relay that ends by itself has failed; Spark's Python workers have ten seconds to start."""

    name = "log"
    relay = '[relay]\ndirectory = "log"\nupkeep_seconds = 3'
    pipeline = ""
    servers = ()
    relay_failures = 0
    spark_failures = 20

    def __init__(self, directory: Path) -> None:
        self._log = directory / "log"

    async def prepare(self) -> None:
        """Do nothing: the relay makes it."""

    async def count(self) -> int:
        """Return how many records there are so far."""
        return await trio.to_thread.run_sync(log_size, self._log, STREAM)

    async def rows(self) -> list[Row]:
        """Return all records."""
        rows, _ = await trio.to_thread.run_sync(log_rows, self._log, STREAM)
        return rows
