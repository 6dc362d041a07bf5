"""Runs one witness against the fake: starts it, waits until it reads, puts the load, listens, and judges."""

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
from proofs.interop.clients.testimony import REFUSALS, Testimony, Verdict, judge

_READY_WITHIN: Final = 240.0
"""KCL needs its time: it elects a leader and assigns leases before it reads."""
_HEARD_WITHIN: Final = 90.0
_LISTENED_ON: Final = 3.0
"""How long a witness may go on once it said everything, so that what comes twice is seen."""
_GOODBYE: Final = 5.0
_POLL: Final = 0.1


class WitnessError(Exception):
    """A witness could not be built, or did not do its part. The text says which, and where its own words are."""


async def build(client: Client) -> None:
    """Build a client's witness. Raises WitnessError."""
    client.copy_source()
    for command in client.build:
        done = await trio.run_process(
            command, cwd=client.directory, check=False, capture_stdout=True, stderr=subprocess.STDOUT
        )
        if done.returncode != 0:
            said = done.stdout.decode(errors="replace")[-2000:]
            raise WitnessError(f"{' '.join(command)} exited with {done.returncode}:\n{said}")


async def examine(client: Client, fake: FakeKinesis, address: Address, say: Callable[[str], None]) -> Verdict:
    """Let a witness read a stream of its own, and judge what it says. Raises WitnessError."""
    stream = client.name
    fake.create_stream(stream, SHARDS)
    async with _running(client, address) as witness:
        if not await witness.until(lambda: _is_reading(client, fake, witness.testimony), _READY_WITHIN):
            raise witness.failed(f"does not read every shard, and is not refused, within {_READY_WITHIN:.0f} s")
        say("reads; putting the load")
        closed = await put_all(fake, stream)
        say("listening")
        await witness.until(lambda: _is_complete(witness.testimony, len(closed)), _HEARD_WITHIN)
        await trio.sleep(_LISTENED_ON)
    return judge(witness.testimony, fake.records(stream), closed)


def _is_reading(client: Client, fake: FakeKinesis, testimony: Testimony) -> bool:
    live = all(fake.subscriptions(client.name, shard).live for shard in fake.open_shards(client.name))
    return (live or client.polls) and testimony.refusals.keys() >= REFUSALS.keys()


def _is_complete(testimony: Testimony, closed: int) -> bool:
    return len(testimony.records) >= RECORDS and len(testimony.ends) >= closed


class _Witness:
    """A running witness, and what it said so far."""

    def __init__(self, client: Client, process: trio.Process, stderr: Path) -> None:
        self.testimony = Testimony()
        self._client = client
        self._process = process
        self._stderr = stderr
        self._nonsense: str | None = None

    async def listen(self) -> None:
        """Take line by line until there is no more."""
        if self._process.stdout is None:
            raise AssertionError("it was opened with a pipe")
        rest = b""
        async for chunk in self._process.stdout:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                try:
                    self.testimony.hear(line)
                except msgspec.DecodeError as error:
                    self._nonsense = f"said {line!r}: {error}"

    async def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait for a condition; return whether it came true in time. Raises WitnessError: the witness broke off."""
        with trio.move_on_after(seconds):
            while not condition():
                if self._nonsense is not None:
                    raise self.failed(self._nonsense)
                if self._process.poll() is not None:
                    raise self.failed(f"exited with {self._process.returncode}")
                await trio.sleep(_POLL)
        return condition()

    def failed(self, what: str) -> WitnessError:
        """Return the error that says so, with the witness's last words."""
        said = self._stderr.read_text(errors="replace")[-2000:]
        return WitnessError(f"{self._client.name} {what}. Its stderr, {self._stderr}, ends so:\n{said}")

    async def stop(self) -> None:
        """Ask it to go, then make it."""
        self._process.terminate()
        with trio.move_on_after(_GOODBYE):
            await self._process.wait()
            return
        self._process.kill()
        await self._process.wait()


@asynccontextmanager
async def _running(client: Client, address: Address) -> AsyncIterator[_Witness]:
    """Run a witness and listen to it; stop it in the end."""
    stderr = client.directory / f"{client.name}.stderr"
    with stderr.open("wb") as file:
        process = await trio.lowlevel.open_process(
            client.run, cwd=client.directory, env=_environment(client, address), stdout=subprocess.PIPE, stderr=file
        )
    witness = _Witness(client, process, stderr)
    try:
        async with background() as nursery:
            nursery.start_soon(witness.listen)
            yield witness
    finally:
        with trio.CancelScope(shield=True):
            await witness.stop()


def _environment(client: Client, address: Address) -> dict[str, str]:
    """Return the environment of a witness: where the fake is, whom to trust, and credentials that are made up."""
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith("AWS_")}
    return kept | {
        "WITNESS_ENDPOINT": address.url,
        "WITNESS_STREAM": client.name,
        "WITNESS_CONSUMER": "witness",
        "WITNESS_CA": str(address.ca_file),
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
