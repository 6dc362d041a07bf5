"""The servers that a peer reads: efo's load server in a process of its own, or FakeKinesis in this one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import trio

from efo.testing import FakeKinesis, FakeSettings
from proofs.peers.program import Configuration, PeerError

_HASH_KEYS: Final = 2**128


@dataclass(frozen=True, slots=True)
class Site:
    """What all programs of a run share. `dynamodb`: the URL of the lease table, or "" without DynamoDB Local."""

    directory: Path
    dynamodb: str

    def configuration(self, *, endpoint: str, ca_file: str, application: str, **others: Any) -> Configuration:
        """Return a configuration with a directory of its own; the same application gets the same directory."""
        directory = self.directory / application
        directory.mkdir(exist_ok=True)
        return Configuration(
            endpoint=endpoint,
            ca_file=ca_file,
            trust_store=str(trust_store_of(Path(ca_file), self.directory)),
            dynamodb=self.dynamodb,
            application=application,
            directory=str(directory),
            **others,
        )


@dataclass(frozen=True, slots=True)
class LoadServer:
    """A running load server. `consumers`: the ARN of each peer's fan-out consumer."""

    url: str
    ca_file: str
    consumers: dict[str, str]


STREAM: Final = "load"


@asynccontextmanager
async def load_server(options: Sequence[str], consumers: Sequence[str]) -> AsyncIterator[LoadServer]:
    """Run the load server with four shards; see proofs/load."""
    named = [part for name in consumers for part in ("--consumer", name)]
    command = [sys.executable, "-m", "proofs.load", "--stream", STREAM, "--shards", "4", *options, *named]
    process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE)
    try:
        if process.stdout is None:
            raise AssertionError("the process was not opened with a pipe")
        text = b""
        while not text.endswith(b"\n"):
            chunk = await process.stdout.receive_some()
            if not chunk:
                raise PeerError(f"{' '.join(command)} ended")
            text += chunk
        served = json.loads(text)
        yield LoadServer(served["url"], served["ca_file"], served["streams"][STREAM]["consumers"])
    finally:
        process.terminate()
        with trio.CancelScope(shield=True):
            await process.wait()


@dataclass(frozen=True, slots=True)
class Fake:
    """A FakeKinesis on a port."""

    kinesis: FakeKinesis
    url: str
    ca_file: str


@asynccontextmanager
async def fake_kinesis() -> AsyncIterator[Fake]:
    """Serve FakeKinesis with TLS, with AWS's limits; a registered consumer is ACTIVE at once."""
    settings = FakeSettings(consumer_creating=0.0)
    async with FakeKinesis(settings=settings, clock=time.time) as kinesis, kinesis.serve() as address:
        yield Fake(kinesis, address.url, str(address.ca_file))


def put_one_in_each_shard(fake: FakeKinesis, stream: str, shards: int) -> None:
    """Put one record in each shard of a new stream: a reader of all shards has received them all."""
    for index in range(shards):
        hash_key = (2 * index + 1) * _HASH_KEYS // (2 * shards)
        fake.put(stream, f"key-{index}", stamped(index), str(hash_key))


def stamped(number: int, size: int = 0) -> bytes:
    """Return a record's data: its number, the time in nanoseconds, and filling up to a size."""
    return f"{number} {time.time_ns()} ".encode().ljust(size, b"x")


def trust_store_of(ca_file: Path, directory: Path) -> Path:
    """Return a key store for the JVM with this certificate authority; without a JDK nobody reads it."""
    store = directory / f"{ca_file.parent.name}.p12"
    keytool = shutil.which("keytool")
    if keytool is not None and not store.exists():
        options = ("-storetype", "PKCS12", "-storepass", "not-secret", "-file", str(ca_file), "-keystore", str(store))
        environment = {**os.environ, "LC_ALL": "C"}
        subprocess.run(  # noqa: S603 - a known program
            (keytool, "-importcert", "-noprompt", "-alias", "load", *options),
            check=True,
            capture_output=True,
            env=environment,
        )
    return store
