"""Two servers that answer as DynamoDB does: AWS's own DynamoDB Local, and MiniStack. Both in memory."""

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

from proofs.local_servers.processes import Server, directory, free_port
from proofs.local_servers.running import NotInstalledError
from proofs.paths import TOOLS

LOOPBACK = Path(__file__).parent / "dynamodb_local" / "Loopback.java"

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "made-up",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "NO_PROXY": "127.0.0.1",
    "no_proxy": "127.0.0.1",
}
"""The environment that a client needs beside the URL: both servers take any names."""


_LOADER = botocore.loaders.Loader()
"""One for all sessions, so that botocore parses its models once and not with every store that is opened."""


@contextmanager
def credentials() -> Iterator[None]:
    """Let clients that are opened now find credentials."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        patch.setattr(botocore.session, "create_loader", lambda *_: _LOADER)
        yield


@contextmanager
def serve_dynamodb_local() -> Iterator[str]:
    """Run DynamoDB Local on a free port and give its URL."""
    jars = TOOLS / "dynamodb-local"
    java = shutil.which("java")
    if java is None or not (jars / ".ready").exists():
        raise NotInstalledError("DynamoDB Local is not installed: make dynamodb-local (it needs a JDK and Maven)")
    with directory() as path:
        port = free_port()
        command = [java, "-Xmx256m", f"-Dsqlite4java.library.path={jars}", "-cp", f"{jars}/*", str(LOOPBACK), str(port)]
        with _running(Server(command, log=path / "log", probe=lambda: _answers(f"http://127.0.0.1:{port}"))):
            yield f"http://127.0.0.1:{port}"


@contextmanager
def serve_ministack() -> Iterator[str]:
    """Run MiniStack's DynamoDB on a free port and give its URL."""
    program = TOOLS / "ministack" / "bin" / "ministack"
    if not program.exists():
        raise NotInstalledError("MiniStack is not installed: make ministack")
    with directory() as path:
        port = free_port()
        settings = {"BIND_HOST": "127.0.0.1", "GATEWAY_PORT": str(port), "SERVICES": "dynamodb", "TMPDIR": str(path)}
        command = [*_with_environment(settings), str(program)]
        with _running(
            Server(command, log=path / "log", probe=lambda: _answers(f"http://127.0.0.1:{port}/_ministack/health"))
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
    """Return the beginning of a command that runs the rest with these settings, and without any of AWS."""
    env = shutil.which("env") or "/usr/bin/env"
    unset = [argument for name in os.environ if name.startswith("AWS_") for argument in ("-u", name)]
    return [env, *unset, *(f"{name}={value}" for name, value in settings.items())]


def _answers(url: str) -> None:
    """Raise as long as nobody speaks HTTP there; what is said does not matter."""
    try:
        with urllib.request.urlopen(url, timeout=10):  # noqa: S310 - a URL of our own
            pass
    except urllib.error.HTTPError:
        pass
