"""Workers as processes: how one of each library is started, heard, stopped and killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import trio

from efo.testing.server.listener import Address
from proofs.interop.clients.clients import CLIENTS, WORK, Client
from proofs.interop.clients.examination import WitnessError
from proofs.interop.kcl.judgement import Heard, heard_of
from proofs.paths import ROOT

KCL_CLIENT: Final[Client] = next(client for client in CLIENTS if client.name == "kcl-java")
FAILOVER: Final = 8.0
"""Seconds without a sign of life after which a lease may be taken: the same for all, as each judges the others."""
APPLICATION: Final = "sharing"
"""Names the application, and by KCL's custom the lease table and the fan-out consumer too."""
_GOODBYE: Final = 90.0


class Worker:
    """A running worker and what it said."""

    def __init__(self, name: str, process: trio.Process, stderr: Path) -> None:
        self.name = name
        self.heard: list[Heard] = []
        self._process = process
        self._stderr = stderr

    @classmethod
    async def start_kcl(cls, name: str, environment: Mapping[str, str]) -> Worker:
        """Start a worker of KCL; it was built before."""
        command = (*KCL_CLIENT.run[:-1], "witness.Sharing")
        return await cls._start(name, command, KCL_CLIENT.directory, environment)

    @classmethod
    async def start_efo(cls, name: str, environment: Mapping[str, str]) -> Worker:
        """Start a worker of efo."""
        command = (sys.executable, "-m", "proofs.interop.kcl.efo_worker")
        return await cls._start(name, command, ROOT, environment)

    @classmethod
    async def _start(cls, name: str, command: Sequence[str], directory: Path, environment: Mapping[str, str]) -> Worker:
        stderr = WORK / f"{name}.stderr"
        with stderr.open("wb") as file:
            process = await trio.lowlevel.open_process(
                command,
                cwd=directory,
                env={**environment, "WITNESS_WORKER": name},
                stdout=subprocess.PIPE,
                stderr=file,
            )
        return cls(name, process, stderr)

    async def listen(self) -> None:
        """Take line by line until there is no more. Raises WitnessError."""
        if self._process.stdout is None:
            raise AssertionError("it was opened with a pipe")
        rest = b""
        async for chunk in self._process.stdout:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                try:
                    self.heard.append(heard_of(line))
                except msgspec.DecodeError as error:
                    raise WitnessError(f"{self.name} said {line!r}: {error}") from error

    def check(self) -> None:
        """Raise WitnessError if it has gone by itself."""
        if self._process.poll() is not None:
            said = self._stderr.read_text(errors="replace")[-2000:]
            raise WitnessError(
                f"{self.name} exited with {self._process.returncode}. Its stderr, {self._stderr}, ends so:\n{said}"
            )

    async def stop(self) -> None:
        """Ask it to finish, and wait until it has. Raises WitnessError: it took too long."""
        self._process.send_signal(signal.SIGTERM)
        with trio.move_on_after(_GOODBYE) as patience:
            await self._process.wait()
        if patience.cancelled_caught:
            raise WitnessError(f"{self.name} did not finish within {_GOODBYE:.0f} s of SIGTERM; see {self._stderr}")

    async def kill(self) -> None:
        """End it as a crash would (kill -9)."""
        self._process.kill()
        await self._process.wait()


def environment(stream: str, kinesis: Address, dynamodb: str) -> dict[str, str]:
    """Return the environment of a worker: where everything is, whom to trust, and credentials that are made up."""
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith("AWS_")}
    return kept | {
        "WITNESS_ENDPOINT": kinesis.url,
        "WITNESS_DYNAMODB": dynamodb,
        "WITNESS_STREAM": stream,
        "WITNESS_CONSUMER": APPLICATION,
        "WITNESS_CA": str(kinesis.ca_file),
        "WITNESS_FAILOVER_MILLIS": str(int(FAILOVER * 1000)),
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "made-up",
        "AWS_EC2_METADATA_DISABLED": "true",
        "NO_PROXY": kinesis.host,
        "no_proxy": kinesis.host,
    }
