"""What the cases of networks and files share: a Kinesis that only a proxy reaches, and the command `efo`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio
import trustme

import efo
from efo.exception_groups import leaf_exceptions
from efo.testing import FakeKinesis
from proofs.local_servers.http_proxy import HttpProxy

HOST: Final = "kinesis.us-east-1.amazonaws.com"
ACCOUNT: Final = "123456789012"
ARN: Final = f"arn:aws:kinesis:us-east-1:{ACCOUNT}:stream/orders"
CONFIGURATION, UNAVAILABLE, USAGE = 78, 69, 64
"""Exit statuses of the command."""
CREDENTIALS: Final = {
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_REGION": "us-east-1",
}


def set_environment(**variables: str) -> None:
    """Set credentials, a region and these variables."""
    os.environ.update({**CREDENTIALS, **variables})


def made_authority(name: str = "ca.pem") -> tuple[trustme.CA, str]:
    """Return a certificate authority, and the file of its certificate."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(name)
    return authority, str(Path(name).absolute())


@asynccontextmanager
async def behind_a_proxy(authority: trustme.CA, **options: Any) -> AsyncIterator[tuple[FakeKinesis, HttpProxy]]:
    """Serve a fake as AWS's host of the region, which only this proxy reaches, with ten records in a stream."""
    async with FakeKinesis(clock=time.time) as fake, fake.serve(tls=False) as address:
        fake.create_stream("orders", shards=2)
        put(fake, 10)
        targets = {HOST: ("127.0.0.1", address.port)}
        async with HttpProxy(targets, **{"intercepts": authority, **options}).serve() as proxy:
            yield fake, proxy


def put(fake: FakeKinesis, count: int, first: int = 0) -> None:
    """Put records with the numbers from `first` on."""
    fake.put_many("orders", [(f"key {number}", str(number).encode()) for number in range(first, first + count)])


class Reader:
    """A consumer that counts its records, in a nursery."""

    def __init__(self, **options: Any) -> None:
        self.records: list[bytes] = []
        self.failure: BaseException | None = None
        self._changed = trio.Event()
        self._consume = partial(efo.consume, "orders", self._handle, application="billing", leases="memory:", **options)

    async def _handle(self, batch: efo.Batch) -> None:
        self.records += (record.data for record in batch)
        self._changed.set()

    async def run(self) -> None:
        """Consume until cancelled; note the failure."""
        try:
            await self._consume()
        except efo.errors.EfoError as error:
            self.failure = error
            self._changed.set()

    async def wait_for(self, count: int, seconds: float = 30.0) -> bool:
        """Wait for as many records. Return whether they came, before a failure and in time."""
        with trio.move_on_after(seconds):
            while len(self.records) < count and self.failure is None:
                self._changed = trio.Event()
                await self._changed.wait()
        return len(self.records) >= count and self.failure is None

    def lost(self, count: int) -> int:
        """Return how many of the records from 0 on did not come."""
        return len({str(number).encode() for number in range(count)}.difference(self.records))


def write(path: str, content: bytes) -> None:
    """Write a file."""
    Path(path).write_bytes(content)


async def first_error(call: Callable[[], Any], seconds: float = 30.0) -> BaseException | None:
    """Return the error of an async call, without groups; None if it did not fail in time."""
    with trio.move_on_after(seconds):
        try:
            await call()
        except Exception as error:  # noqa: BLE001 - it is what the case is about
            return next(iter(leaf_exceptions(error)))
    return None


async def run_efo(
    *arguments: str, environment: Mapping[str, str], seconds: float = 40.0, stdin: bytes = b""
) -> tuple[int, str]:
    """Run the command; return its exit status, -1 if it went on, and its output, which is printed for the runner."""
    command = [sys.executable, "-m", "efo_service", *arguments]
    variables = {**os.environ, **CREDENTIALS, "EFO_SERVICE__PORT": "0", **environment}
    status, output = await trio.to_thread.run_sync(_run, command, variables, seconds, stdin)
    print(output, file=sys.stderr)
    return status, output


@asynccontextmanager
async def efo_running(*arguments: str, environment: Mapping[str, str], log: str = "run.log") -> AsyncIterator[None]:
    """Run the command while the context is open, then end it with SIGTERM. Its output is in `log`, and printed."""
    variables = {**os.environ, **CREDENTIALS, **environment}
    with Path(log).open("wb") as file:  # noqa: ASYNC230 - a file on disk
        command = [sys.executable, "-m", "efo_service", *arguments]
        process = await trio.lowlevel.open_process(command, env=variables, stdout=file, stderr=file)
        try:
            yield
        finally:
            process.terminate()
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 30):
                await process.wait()
    print(read(log), file=sys.stderr)


def read(path: str) -> str:
    """Return the text of a file."""
    return Path(path).read_text(errors="replace")


def _run(command: list[str], variables: Mapping[str, str], seconds: float, stdin: bytes) -> tuple[int, str]:
    try:
        done = subprocess.run(
            command, env=dict(variables), input=stdin, capture_output=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired as late:
        return -1, ((late.stdout or b"") + (late.stderr or b"")).decode(errors="replace")
    return done.returncode, (done.stdout + done.stderr).decode(errors="replace")


def reported(output: str, *words: str) -> bool:
    """Return whether one line of the output has all of these words. Lines are wrapped on a terminal alone."""
    return any(all(word in line for word in words) for line in output.splitlines())
