"""Two servers with the API of DynamoDB, both in memory: AWS's DynamoDB Local, and MiniStack."""

from __future__ import annotations

import os
import shutil
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import botocore.loaders
import botocore.session
import pytest

from proofs.local_servers.processes import Server, directory
from proofs.local_servers.running import NotInstalledError
from proofs.paths import TOOLS
from proofs.ports import free_port

LOOPBACK = Path(__file__).parent / "dynamodb_local" / "Loopback.java"

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "made-up",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "NO_PROXY": "127.0.0.1",
    "no_proxy": "127.0.0.1",
}
"""The environment that a client needs in addition to the URL. Both servers accept any credentials."""

_LOADER = botocore.loaders.Loader()
"""Shared by all sessions, so that botocore parses its models once, not once per opened store."""


@contextmanager
def credentials() -> Iterator[None]:
    """Provide credentials to clients that are opened in this context."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        patch.setattr(botocore.session, "create_loader", lambda *_: _LOADER)
        yield


@contextmanager
def serve_dynamodb_local() -> Iterator[str]:
    """Run DynamoDB Local on a free port; yield its URL. Raises NotInstalledError."""
    jars = TOOLS / "dynamodb-local"
    java = shutil.which("java")
    if java is None or not (jars / ".ready").exists():
        raise NotInstalledError("DynamoDB Local is not installed: run `make dynamodb-local` (needs a JDK and Maven)")
    with directory() as path:
        port = free_port()
        command = [java, "-Xmx256m", f"-Dsqlite4java.library.path={jars}", "-cp", f"{jars}/*", str(LOOPBACK), str(port)]
        with _running(Server(command, log=path / "log", probe=lambda: _probe(f"http://127.0.0.1:{port}"))):
            yield f"http://127.0.0.1:{port}"


@contextmanager
def serve_ministack() -> Iterator[str]:
    """Run MiniStack's DynamoDB on a free port; yield its URL. Raises NotInstalledError."""
    program = TOOLS / "ministack" / "bin" / "ministack"
    if not program.exists():
        raise NotInstalledError("MiniStack is not installed: run `make ministack`")
    with directory() as path:
        port = free_port()
        settings = {"BIND_HOST": "127.0.0.1", "GATEWAY_PORT": str(port), "SERVICES": "dynamodb", "TMPDIR": str(path)}
        command = [*_with_environment(settings), str(program)]
        with _running(
            Server(command, log=path / "log", probe=lambda: _probe(f"http://127.0.0.1:{port}/_ministack/health"))
        ):
            yield f"http://127.0.0.1:{port}"


@contextmanager
def _running(server: Server) -> Iterator[None]:
    server.start()
    try:
        yield
    finally:
        server.stop(signal.SIGTERM)


def _with_environment(settings: dict[str, str]) -> list[str]:
    """Return the prefix of a command that sets these environment variables and removes those of AWS."""
    env = shutil.which("env") or "/usr/bin/env"
    unset = [argument for name in os.environ if name.startswith("AWS_") for argument in ("-u", name)]
    return [env, *unset, *(f"{name}={value}" for name, value in settings.items())]


def _probe(url: str) -> None:
    """Raise unless an HTTP server responds at the URL, with any status."""
    try:
        with urllib.request.urlopen(url, timeout=10):  # noqa: S310 - a local URL
            pass
    except urllib.error.HTTPError as error:
        error.close()
