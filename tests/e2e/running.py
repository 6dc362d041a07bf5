"""A process of `efo run`, as an operator runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import trio
from prometheus_client.parser import text_string_to_metric_families

TIMEOUT = 180.0
"""Seconds after which a test of a process fails."""


class Efo:
    """A process of `efo run`. `lines`: the parsed lines of its log so far."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self.lines: list[dict] = []
        self.stderr = ""
        self._more = trio.Event()

    async def read(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read_stderr)
            rest = b""
            async for chunk in self.process.stdout:
                *whole, rest = (rest + chunk).split(b"\n")
                self.lines += map(json.loads, whole)
                self._more.set()
                self._more = trio.Event()
            assert rest == b""

    async def _read_stderr(self) -> None:
        async for chunk in self.process.stderr:
            self.stderr += chunk.decode()

    async def logged(self, name: str) -> dict:
        """Wait for an event in the log, and return its first line."""
        while not (found := [line for line in self.lines if line["event"] == name]):
            await self._more.wait()
        return found[0]

    async def until(self, condition: Callable[[], object]) -> None:
        """Poll until the condition is true: the other process provides no event to wait for."""
        while not condition():
            assert self.process.poll() is None, self.stderr
            await trio.sleep(0.02)

    async def ended(self) -> int:
        return await self.process.wait()


class Files:
    """The configuration of a service in `directory` that reads a fake."""

    def __init__(self, directory: Path, url: str, ca_file: Path | None) -> None:
        self.directory = directory
        self.config = directory / "efo.toml"
        self.config.write_text(f"""
            [kinesis]
            stream = "orders"
            region = "us-east-1"
            endpoint_url = "{url}"
            ca_file = "{ca_file}"
            [leases]
            path = "var/leases.sqlite"
            worker_id = "w-1"
            [relay]
            directory = "log"
            maintenance_seconds = 3600  # so that compaction does not change the number of records found
            [service]
            port = 0
        """)


@asynccontextmanager
async def running(
    files: Files, *arguments: str, cwd: Path | None = None, command: Sequence[str] = (), **environment: str
) -> AsyncIterator[Efo]:
    """Run `efo run`, or another command with its arguments."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("EFO_", "AWS_", "OTEL_"))}
    credentials = {"AWS_ACCESS_KEY_ID": "AKIDTEST", "AWS_SECRET_ACCESS_KEY": "hunter2"}
    process = await trio.lowlevel.open_process(
        [
            *(sys.executable, "-m", "efo_service.cli"),
            *(command or ("run", "--config", str(files.config))),
            *arguments,
        ],
        cwd=cwd or files.directory,
        env={**own, **credentials, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    efo = Efo(process)
    async with process.stdin, process.stdout, process.stderr:
        with trio.fail_after(TIMEOUT):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(efo.read)
                try:
                    yield efo
                finally:
                    with trio.CancelScope(shield=True):  # bounded: a killed process ends
                        if process.returncode is None:
                            process.kill()
                        await process.wait()


def relayed(files: Files) -> int:
    """Return the number of records in the log."""
    return sum(map(size_of, files.directory.glob("log/**/*.arrow")))


def size_of(segment: Path) -> int:
    """Return the number of records of a segment, from its name."""
    base, end = segment.name.split(".")[0].split("-")[:2]
    return int(end) - int(base)


async def metrics_after(client: httpx2.AsyncClient, *, records: int) -> str:
    """Return /metrics once so many records are processed: that is shortly after they are in the log."""
    while True:
        text = (await client.get("/metrics")).text
        families = {family.name: family for family in text_string_to_metric_families(text)}
        if "messaging_client_consumed_messages" in families:
            samples = families["messaging_client_consumed_messages"].samples
            if sum(sample.value for sample in samples if sample.name.endswith("_total")) >= records:
                return text
        await trio.sleep(0.1)
