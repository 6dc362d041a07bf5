"""Runs a peer's program: starts it, reads its lines, samples what it uses, stops it or kills it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import msgspec
import trio

from efo.testing.server.background import background
from proofs.paths import ROOT
from proofs.peers.lines import Output
from proofs.peers.peers import Command, Peer
from proofs.peers.process_tree import Usage, usage_of

_STOP_TIMEOUT: Final = 120.0
_POLL: Final = 0.02
_built: Final[set[tuple[Path, Command]]] = set()
"""The commands of `build` that have succeeded in this process, and where."""


class PeerError(Exception):
    """A peer's program could not be built, failed or timed out. The message names it and its stderr."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """What a program reads. `report`: "counts", "latencies" or "numbers".

    `expected`: how many records are waited for, one of each shard at a start; see `Output.reached_at`.
    """

    endpoint: str
    ca_file: str
    trust_store: str
    dynamodb: str
    stream: str
    consumer: str
    consumer_arn: str
    application: str
    directory: str
    worker: str = "worker-1"
    region: str = "us-east-1"
    report: str = "counts"
    expected: int = 1
    aggregated: bool = False
    checkpoint_seconds: float = 5.0


async def build(peer: Peer) -> None:
    """Build the program of a peer. Raise PeerError if a command fails. Peers share commands: each succeeds once."""
    peer.copy_source()
    for command in peer.build:
        if (peer.directory, command) in _built:
            continue
        ended = await trio.run_process(
            command, cwd=peer.directory, check=False, capture_stdout=True, stderr=subprocess.STDOUT
        )
        if ended.returncode != 0:
            output = ended.stdout.decode(errors="replace")[-2000:]
            raise PeerError(f"{' '.join(command)} exited with {ended.returncode}:\n{output}")
        _built.add((peer.directory, command))


class Program:
    """A running program. `output`: what it printed so far. `started_at`: epoch seconds."""

    def __init__(self, peer: Peer, process: trio.Process, output: Output, stderr: Path, started_at: float) -> None:
        self.output = output
        self.started_at = started_at
        self._peer = peer
        self._process = process
        self._stderr = stderr
        self._bad_line: str | None = None

    def usage(self) -> Usage:
        """Return CPU time and memory of the program and its descendants."""
        return usage_of(self._process.pid)

    async def until(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        """Wait for a condition. Raise PeerError if it does not become true in time, or the program ended."""
        with trio.move_on_after(seconds):
            while not condition():
                self.check()
                await trio.sleep(_POLL)
            return
        raise self.failed(f"{what}: not within {seconds:.0f} s")

    def check(self) -> None:
        """Raise PeerError if the program ended or printed something unknown."""
        if self._bad_line is not None:
            raise self.failed(self._bad_line)
        if self._process.poll() is not None:
            raise self.failed(f"exited with {self._process.returncode}")

    def failed(self, what: str) -> PeerError:
        """Return an error with this text and the end of the program's stderr."""
        end = self._stderr.read_text(errors="replace")[-1000:]
        return PeerError(f"{self._peer.name}: {what}. The end of its stderr, {self._stderr}:\n{end}")

    async def stop(self) -> float:
        """Send SIGTERM; return the seconds until the exit. Raise PeerError on timeout."""
        began = trio.current_time()
        self._process.send_signal(signal.SIGTERM)
        with trio.move_on_after(_STOP_TIMEOUT):
            await self._process.wait()
            return trio.current_time() - began
        raise self.failed(f"did not exit within {_STOP_TIMEOUT:.0f} s of SIGTERM")

    async def kill(self) -> None:
        """Send SIGKILL to the program and its descendants, as in a crash, and wait for the exit."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        await self._process.wait()

    async def read_output(self) -> None:
        """Add each line of stdout to the output until stdout closes."""
        if self._process.stdout is None:
            raise AssertionError("the process was not opened with a pipe")
        rest = b""
        async for chunk in self._process.stdout:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                try:
                    self.output.add_line(line)
                except (msgspec.DecodeError, ValueError) as error:
                    self._bad_line = f"printed {line!r}: {error}"


@asynccontextmanager
async def running(peer: Peer, config: Configuration, output: Output | None = None) -> AsyncIterator[Program]:
    """Run a program until the context is left; then kill what is left of it.

    `output`: add to the output of an earlier run, so that a restart continues its records.
    """
    file = Path(config.directory, "config.json")
    stderr = Path(config.directory, f"{peer.name}.stderr")
    await trio.Path(file).write_text(json.dumps(asdict(config)))
    async with await trio.open_file(stderr, "ab") as log:
        started_at = time.time()
        process = await trio.lowlevel.open_process(
            peer.command(file, config.expected),
            cwd=peer.directory,
            env=_environment(config),
            stdout=subprocess.PIPE,
            stderr=log.fileno(),
            start_new_session=True,
        )
    program = Program(peer, process, output or Output(), stderr, started_at)
    try:
        async with background() as nursery:
            nursery.start_soon(program.read_output)
            yield program
    finally:
        with trio.CancelScope(shield=True):
            await program.kill()


def _environment(config: Configuration) -> Mapping[str, str]:
    """Return the environment of a program: the CA, and made-up credentials."""
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith("AWS_")}
    path = f"{ROOT}:{ROOT / 'service'}"
    return kept | {
        "PYTHONPATH": path,
        "AWS_CA_BUNDLE": config.ca_file,
        "SSL_CERT_FILE": config.ca_file,
        "AWS_REGION": config.region,
        "AWS_DEFAULT_REGION": config.region,
        "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "made-up",
        "AWS_EC2_METADATA_DISABLED": "true",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }
