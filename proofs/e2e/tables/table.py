"""A table as the destination of a run: its rows are counted in its metadata, and read by its own Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import obstore
import psycopg
import pyarrow.parquet as pq
import trio
from obstore.store import S3Store

from efo.errors import EfoError
from efo.exception_groups import collapse_groups
from efo_service.demo.load import FoundRecord
from proofs.e2e.tables.formats import Place
from proofs.local_servers.object_stores import BUCKET, ENVIRONMENT
from proofs.paths import ROOT

NAME: Final = "orders"
_ERROR_LINES: Final = 30


class Table:
    """See `Destination`: the table of the query `records`. `directory`: of the run."""

    def __init__(self, place: Place, directory: Path) -> None:
        self._place = place
        self._directory = directory
        self._store = S3Store(
            BUCKET,
            endpoint=place.store,
            region="us-east-1",
            access_key_id=ENVIRONMENT["AWS_ACCESS_KEY_ID"],
            secret_access_key=ENVIRONMENT["AWS_SECRET_ACCESS_KEY"],
            client_options={"allow_http": True},
        )
        self._delta_commits: dict[str, int] = {}
        self.environment: Mapping[str, str] = place.environment()
        self.pipeline_config = place.pipeline_config(NAME)
        self.read_result: dict[str, Any] = {}

    async def count(self) -> int:
        """Return how many rows have been committed, by the table's metadata."""
        count = self._delta if self._place.format == "delta" else self._iceberg
        return await trio.to_thread.run_sync(count)

    def _delta(self) -> int:
        """Add up the files of each commit: `add` without `remove`, since nobody compacts during the run."""
        prefix = f"delta/{NAME}/tables/records/_delta_log/"
        for batch in obstore.list(self._store, prefix):
            for meta in batch:
                path = meta["path"]
                if path.endswith(".json") and path not in self._delta_commits:
                    self._delta_commits[path] = _added(bytes(obstore.get(self._store, path).bytes()))
        return sum(self._delta_commits.values())

    def _iceberg(self) -> int:
        """Read the summary of the current snapshot, which the catalog points at."""
        query = "select metadata_location from iceberg_tables where table_name = %s"
        with psycopg.connect(self._place.catalog or "") as connection:
            try:
                found = connection.execute(query, [f"{NAME}_records"]).fetchone()
            except psycopg.errors.UndefinedTable:  # the pipeline has not created the catalog yet
                return 0
        if found is None:
            return 0
        path = found[0].removeprefix(f"s3a://{BUCKET}/")
        metadata = json.loads(bytes(obstore.get(self._store, path).bytes()))
        current = metadata.get("current-snapshot-id")
        summaries = (s["summary"] for s in metadata.get("snapshots", []) if s["snapshot-id"] == current)
        return sum(int(summary["total-records"]) for summary in summaries)

    async def rows(self) -> list[FoundRecord]:
        """Return all rows, as the table's own Spark reads them."""
        output = self._directory / "rows.parquet"
        self.read_result = await run_on_spark(
            self._place, "read", self._directory, str(self._directory / "efo.toml"), str(output)
        )
        return await trio.to_thread.run_sync(_rows, output)


def _added(commit: bytes) -> int:
    adds = (json.loads(line).get("add") for line in commit.splitlines())
    return sum(json.loads(add["stats"])["numRecords"] for add in adds if add)


def _rows(path: Path) -> list[FoundRecord]:
    columns = pq.read_table(path)
    values = (columns.column(name).to_pylist() for name in ("partition", "offset", "key", "value"))
    return [FoundRecord((0.0, p, o), key.decode(), data) for p, o, key, data in zip(*values, strict=True)]


async def run_on_spark(
    place: Place, module: str, directory: Path, *arguments: str, report: Callable[[str], None] = lambda _line: None
) -> dict[str, Any]:
    """Run a module of this package with the format's Spark; return the JSON of the last line of its stdout.

    `report`: takes the lines before, as they come. Raises EfoError with the end of its log.
    """
    log = directory / f"{module}.log"
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("EFO_", "AWS_"))}
    with log.open("ab") as stderr, collapse_groups():
        async with trio.open_nursery() as nursery:
            process = await nursery.start(
                partial(
                    trio.run_process,
                    [sys.executable, "-m", f"proofs.e2e.tables.{module}", *arguments],
                    env=inherited | place.environment(),
                    cwd=ROOT,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    stdin=subprocess.DEVNULL,
                    check=False,
                )
            )
            last = await _last_line(process.stdout, report)
    if process.returncode != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-_ERROR_LINES:])
        raise EfoError(f"{place.format}: {module} ended with {process.returncode}:\n{tail}")
    result: dict[str, Any] = json.loads(last)
    return result


async def _last_line(stdout: AsyncIterable[bytes], report: Callable[[str], None]) -> bytes:
    """Read to the end; return the last line, and report the others."""
    last, part = b"", b""
    async for data in stdout:
        *lines, part = (part + data).split(b"\n")
        for line in lines:
            if last:
                report(last.decode(errors="replace"))
            last = line
    return last
