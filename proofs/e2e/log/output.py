"""The embedded log as the output of a run."""

from __future__ import annotations

from pathlib import Path

import trio

from efo_service.demo.load import FoundRecord, log_rows, log_size
from proofs.e2e.run import STREAM


class LogOutput:
    """See `Output`. Only Spark may end without a kill: its Python workers have ten seconds to start."""

    name = "log"
    relay_config = '[relay]\ndirectory = "log"\nmaintenance_seconds = 3'
    pipeline_config = ""
    servers = ()
    max_relay_restarts = 0
    max_spark_restarts = 20

    def __init__(self, directory: Path) -> None:
        self._log = directory / "log"

    async def prepare(self) -> None:
        """Do nothing: the relay creates the log."""

    async def count(self) -> int:
        """Return how many records the log holds so far."""
        return await trio.to_thread.run_sync(log_size, self._log, STREAM)

    async def rows(self) -> list[FoundRecord]:
        """Return all records."""
        rows, _ = await trio.to_thread.run_sync(log_rows, self._log, STREAM)
        return rows
