"""Runs one client against the fake: starts it, waits until it reads, puts the load, and compares what it reports."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
import trio

from efo.testing import FakeKinesis
from efo.testing.server.background import background
from efo.testing.server.listener import Address
from proofs.interop.clients.clients import Client
from proofs.interop.clients.load import RECORDS, SHARDS, put_all
from proofs.interop.clients.transcript import REFUSED_CALLS, Comparison, Transcript, compare

_READY_TIMEOUT: Final = 240.0
"""Seconds. KCL elects a leader and assigns leases before it reads."""
_READ_TIMEOUT: Final = 90.0
_LINGER: Final = 3.0
"""How long a client keeps running after it reported everything, in seconds: duplicates arrive in this time."""
_STOP_TIMEOUT: Final = 5.0
_POLL: Final = 0.1


class InteropError(Exception):
    """A client program could not be built, failed, or timed out. The message names it and the file of its stderr."""


async def build(client: Client) -> None:
    """Build the program of a client. Raise InteropError if a command fails."""
    client.copy_source()
    for command in client.build:
        done = await trio.run_process(
            command, cwd=client.directory, check=False, capture_stdout=True, stderr=subprocess.STDOUT
        )
        if done.returncode != 0:
            output = done.stdout.decode(errors="replace")[-2000:]
            raise InteropError(f"{' '.join(command)} exited with {done.returncode}:\n{output}")


async def run_client(
    client: Client, fake: FakeKinesis, address: Address, progress: Callable[[str], None]
) -> Comparison:
    """Let a client read a stream that only it uses, and compare what it reports. Raises InteropError."""
    stream = client.name
    fake.create_stream(stream, SHARDS)
    async with running(client, address) as process:
        if not await process.until(lambda: is_reading(client, fake, process.transcript), _READY_TIMEOUT):
            raise process.failed(
                f"did not read every shard and report every refused call within {_READY_TIMEOUT:.0f} s"
            )
        progress("reading; putting the load")
        closed = await put_all(fake, stream)
        progress("waiting for the last records")
        await process.until(lambda: _is_complete(process.transcript, len(closed)), _READ_TIMEOUT)
        await trio.sleep(_LINGER)
    return compare(process.transcript, fake.records(stream), closed)


def is_reading(client: Client, fake: FakeKinesis, transcript: Transcript) -> bool:
    """Return whether the client reads every open shard, and has made the calls that are to be refused."""
    live = all(fake.subscriptions(client.name, shard).live for shard in fake.open_shards(client.name))
    return (live or client.polls) and transcript.refused.keys() >= REFUSED_CALLS.keys()


def _is_complete(transcript: Transcript, closed: int) -> bool:
    return len(transcript.records) >= RECORDS and len(transcript.ends) >= closed


class ClientProcess:
    """A running client program, and what it reported so far."""

    def __init__(self, client: Client, process: trio.Process, stderr: Path) -> None:
        self.transcript = Transcript()
        self._client = client
        self._process = process
        self._stderr = stderr
        self._bad_line: str | None = None

    async def read_output(self) -> None:
        """Add each line of stdout to the transcript until stdout closes."""
        if self._process.stdout is None:
            raise AssertionError("the process was not opened with a pipe")
        rest = b""
        async for chunk in self._process.stdout:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                try:
                    self.transcript.add_line(line)
                except msgspec.DecodeError as error:
                    self._bad_line = f"printed {line!r}: {error}"

    async def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait for a condition; return whether it became true in time. Raise InteropError if the client failed."""
        with trio.move_on_after(seconds):
            while not condition():
                if self._bad_line is not None:
                    raise self.failed(self._bad_line)
                if self._process.poll() is not None:
                    raise self.failed(f"exited with {self._process.returncode}")
                await trio.sleep(_POLL)
        return condition()

    def failed(self, what: str) -> InteropError:
        """Return an error with this text and the end of the client's stderr."""
        output = self._stderr.read_text(errors="replace")[-2000:]
        return InteropError(f"{self._client.name} {what}. The end of its stderr, {self._stderr}:\n{output}")

    async def stop(self) -> None:
        """Terminate the process; kill it if it does not exit in time."""
        self._process.terminate()
        with trio.move_on_after(_STOP_TIMEOUT):
            await self._process.wait()
            return
        self._process.kill()
        await self._process.wait()


@asynccontextmanager
async def running(client: Client, address: Address) -> AsyncIterator[ClientProcess]:
    """Run a client program and read its output until the context is left."""
    stderr = client.directory / f"{client.name}.stderr"
    with stderr.open("wb") as file:
        opened = await trio.lowlevel.open_process(
            client.run, cwd=client.directory, env=_environment(client, address), stdout=subprocess.PIPE, stderr=file
        )
    process = ClientProcess(client, opened, stderr)
    try:
        async with background() as nursery:
            nursery.start_soon(process.read_output)
            yield process
    finally:
        with trio.CancelScope(shield=True):
            await process.stop()


def _environment(client: Client, address: Address) -> dict[str, str]:
    """Return the environment of a client: the fake's address, its CA, and made-up credentials."""
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith("AWS_")}
    return kept | {
        "INTEROP_ENDPOINT": address.url,
        "INTEROP_STREAM": client.name,
        "INTEROP_CONSUMER": "witness",
        "INTEROP_CA": str(address.ca_file),
        "AWS_CA_BUNDLE": str(address.ca_file),
        "NODE_EXTRA_CA_CERTS": str(address.ca_file),
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "made-up",
        "AWS_EC2_METADATA_DISABLED": "true",
        "NO_PROXY": address.host,
        "no_proxy": address.host,
    }
