"""The worker processes of both libraries: start, read their output, stop and kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import trio

from efo.testing.server.listener import Address
from proofs.interop.clients.clients import CLIENTS, WORK, Client
from proofs.interop.clients.runner import InteropError
from proofs.interop.kcl.comparison import ReportedRecord, record_of
from proofs.paths import ROOT

KCL_CLIENT: Final[Client] = next(client for client in CLIENTS if client.name == "kcl-java")
FAILOVER: Final = 8.0
"""Fail-over time in seconds. It must be the same for all workers."""
APPLICATION: Final = "sharing"
"""The name of the application and, as is KCL's convention, of the lease table and the fan-out consumer."""
_STOP_TIMEOUT: Final = 90.0


class Worker:
    """A running worker, and the records that it reported."""

    def __init__(self, name: str, process: trio.Process, stderr: Path) -> None:
        self.name = name
        self.records: list[ReportedRecord] = []
        self._process = process
        self._stderr = stderr

    @classmethod
    async def start_kcl(cls, name: str, environment: Mapping[str, str]) -> Worker:
        """Start a KCL worker. It must have been built."""
        command = (*KCL_CLIENT.run[:-1], "interop.KclWorker")
        return await cls._start(name, command, KCL_CLIENT.directory, environment)

    @classmethod
    async def start_efo(cls, name: str, environment: Mapping[str, str]) -> Worker:
        """Start an efo worker."""
        command = (sys.executable, "-m", "proofs.interop.kcl.efo_worker")
        return await cls._start(name, command, ROOT, environment)

    @classmethod
    async def _start(cls, name: str, command: Sequence[str], directory: Path, environment: Mapping[str, str]) -> Worker:
        stderr = WORK / f"{name}.stderr"
        with stderr.open("wb") as file:
            process = await trio.lowlevel.open_process(
                command,
                cwd=directory,
                env={**environment, "INTEROP_WORKER": name},
                stdout=subprocess.PIPE,
                stderr=file,
            )
        return cls(name, process, stderr)

    async def read_output(self) -> None:
        """Add each record on stdout until stdout closes. Raise InteropError for a line that cannot be decoded."""
        if self._process.stdout is None:
            raise AssertionError("the process was not opened with a pipe")
        rest = b""
        async for chunk in self._process.stdout:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                try:
                    self.records.append(record_of(line))
                except msgspec.DecodeError as error:
                    raise InteropError(f"{self.name} printed {line!r}: {error}") from error

    def check(self) -> None:
        """Raise InteropError if the process has exited."""
        if self._process.poll() is not None:
            output = self._stderr.read_text(errors="replace")[-2000:]
            raise InteropError(
                f"{self.name} exited with {self._process.returncode}. The end of its stderr, {self._stderr}:\n{output}"
            )

    async def stop(self) -> None:
        """Send SIGTERM and wait for the exit. Raise InteropError on timeout."""
        self._process.send_signal(signal.SIGTERM)
        with trio.move_on_after(_STOP_TIMEOUT) as scope:
            await self._process.wait()
        if scope.cancelled_caught:
            raise InteropError(f"{self.name} did not exit within {_STOP_TIMEOUT:.0f} s of SIGTERM: see {self._stderr}")

    async def kill(self) -> None:
        """Send SIGKILL, as in a crash, and wait for the exit."""
        self._process.kill()
        await self._process.wait()


def environment(
    streams: Iterable[str], kinesis: Address, dynamodb: str, stream_ids: Sequence[str] = ()
) -> dict[str, str]:
    """Return the environment of a worker: the servers' addresses, the CA, and made-up credentials.

    `stream_ids`: KCL's identifiers of the streams, if the application is a multi-stream one.
    """
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith("AWS_")}
    return (
        kept
        | {
            "INTEROP_ENDPOINT": kinesis.url,
            "INTEROP_DYNAMODB": dynamodb,
            "INTEROP_STREAM": ",".join(streams),
            "INTEROP_CONSUMER": APPLICATION,
            "INTEROP_CA": str(kinesis.ca_file),
            "INTEROP_FAILOVER_MILLIS": str(int(FAILOVER * 1000)),
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
            "AWS_SECRET_ACCESS_KEY": "made-up",
            "AWS_EC2_METADATA_DISABLED": "true",
            "NO_PROXY": kinesis.host,
            "no_proxy": kinesis.host,
        }
        | ({"INTEROP_STREAM_IDS": ",".join(stream_ids)} if stream_ids else {})
    )
