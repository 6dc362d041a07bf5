"""Programs of an application, each run in a process of its own on a fake Kinesis."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from efo.testing import FakeKinesisThread, FakeSettings
from efo.testing.faults.script import FaultScript
from proofs.paths import ROOT

STREAM: Final = "orders"
PRELUDE: Final = """
import asyncio, gc, multiprocessing, os, signal, sys, threading, time, warnings
import trio, efo, efo.aio, efo.sync
warnings.simplefilter("ignore", DeprecationWarning)  # of fork beside threads
options = dict(application="app", worker_id="worker")
"""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended. `status`: its exit status, None if it hung."""

    status: int | None
    out: str
    err: str
    seconds: float


class World:
    """A fake Kinesis with a stream, and the directory in which programs run."""

    def __init__(self, kinesis: FakeKinesisThread, home: Path) -> None:
        self.kinesis = kinesis
        self.home = home
        self.environment = {
            **os.environ,
            **kinesis.environment,
            "PYTHONPATH": str(ROOT),
            "EFO_KINESIS__STREAM": STREAM,
            "EFO_KINESIS__ENDPOINT_URL": kinesis.url,
            "EFO_KINESIS__CA_FILE": str(kinesis.ca_file),
            "EFO_LEASES__PATH": str(home / "leases.sqlite"),
            "EFO_LEASES__FAILOVER_SECONDS": "0.5",
            "EFO_RELAY__DIRECTORY": str(home / "relayed"),
        }

    def put(self, count: int, start: int = 0) -> None:
        """Put records whose data is their number."""
        pairs = [(f"key {number}", b"%d" % number) for number in range(start, start + count)]
        self.kinesis.put_many(STREAM, pairs)

    @property
    def stored(self) -> list[bytes]:
        """The data of all records of the stream."""
        return [record.data for shard in self.kinesis.records(STREAM).values() for record in shard]

    def start(self, *command: str, **environment: str) -> subprocess.Popen[str]:
        """Start a command of Python."""
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [sys.executable, *command],
            cwd=self.home,
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            text=True,
        )

    def wait(self, process: subprocess.Popen[str], seconds: float = 40.0) -> Ended:
        """Wait for the end of a command; kill it if it hangs. Its output counts as output of the case."""
        began = time.monotonic()
        try:
            out, err = process.communicate(timeout=seconds)
            status: int | None = process.returncode
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            status = None
        sys.stderr.write(out + err)
        return Ended(status, out, err, time.monotonic() - began)

    def run(self, program: str, seconds: float = 40.0) -> Ended:
        """Run a program of an application to its end. One that hangs tells where each of its threads is."""
        tells = f"import faulthandler; faulthandler.dump_traceback_later({seconds - 5})\n"
        return self.wait(self.start("-c", tells + PRELUDE + program), seconds)

    def efo(self, *arguments: str, seconds: float = 40.0, **environment: str) -> Ended:
        """Run a command of efo to its end."""
        return self.wait(self.start("-P", "-m", "efo_service", *arguments, **environment), seconds)


@contextmanager
def world(shards: int = 2, faults: FaultScript | None = None) -> Iterator[World]:
    """Make a world. `faults`: of Kinesis."""
    fake = FakeSettings(consumer_creating=0.0, takeover_after=0.0)
    with (
        FakeKinesisThread(settings=fake, faults=faults) as kinesis,
        TemporaryDirectory(prefix="efo-attack-") as directory,
    ):
        kinesis.create_stream(STREAM, shards)
        yield World(kinesis, Path(directory))
