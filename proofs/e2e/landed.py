"""The Parquet files of Spark's file sink: their rows are counted, and they are the destination of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pyarrow.parquet as pq
import trio

from efo_service.demo.load import FoundRecord, committed_files, parquet_rows


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


class ParquetFiles:
    """See `Destination`. `directory`: of the run."""

    pipeline_config = 'output = "parquet"\ncheckpoint = "checkpoint"'
    environment: Mapping[str, str] = MappingProxyType({})

    def __init__(self, directory: Path) -> None:
        self._output = directory / "parquet" / "records"
        self._landed = LandedRows(self._output)

    async def count(self) -> int:
        """Return how many rows Spark has committed."""
        return await self._landed.count()

    async def rows(self) -> list[FoundRecord]:
        """Return all rows."""
        return await trio.to_thread.run_sync(parquet_rows, self._output)
