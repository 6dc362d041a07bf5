"""Counts the rows that Spark has written so far."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import trio

from efo_service.demo.verify import committed_files


class LandedRows:
    """Counts the rows in a file sink's directory. Reads the footer of each file once."""

    def __init__(self, output: Path) -> None:
        self._output = output
        self._rows: dict[Path, int] = {}

    async def count(self) -> int:
        """Return how many rows Spark has committed, by its own list of files."""
        return await trio.to_thread.run_sync(self._count)

    def _count(self) -> int:
        for path in committed_files(self._output):
            if path not in self._rows:
                self._rows[path] = pq.read_metadata(path).num_rows
        return sum(self._rows.values())
