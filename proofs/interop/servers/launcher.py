"""Downloads a server, starts it on the loopback interface, waits until it responds, and stops it."""

from __future__ import annotations

import http.client
import json
import os
import random
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio
import trustme

from proofs.interop.servers import processes
from proofs.interop.servers.servers import LaunchSettings, Server
from proofs.paths import ROOT

Progress = Callable[[str], None]
"""Reports progress to the user."""

HOST: Final = "127.0.0.1"
_ports: Final = iter(random.sample(range(20_000, 30_000), 10_000))
"""Candidate ports, each tried once. They are below the range that Linux uses for outgoing connections."""
_READY_TIMEOUT: Final = 120.0
_POLL: Final = 0.25
_STOP_TIMEOUT: Final = 10.0
_OUTPUT_TAIL: Final = 2000
"""How many characters of a server's output an error shows."""


class ServerError(Exception):
    """A server could not be downloaded or started, exited, or listens beyond loopback. The message has its output."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A running server. `ca_file`: the CA that signed its certificate. `log`: the file with its output."""

    server: Server
    url: str
    ca_file: Path
    process: trio.Process
    log: Path

    def check(self) -> None:
        """Raise ServerError unless the server runs and listens only on the loopback interface."""
        if self.process.poll() is not None:
            raise self.failed(f"exited with {self.process.returncode}")
        listeners = processes.listeners(processes.process_tree(self.process.pid))
        if exposed := [listener for listener in listeners if not listener.is_loopback]:
            where = ", ".join(f"{listener.address} port {listener.port}" for listener in exposed)
            raise self.failed(f"listens beyond the loopback interface: {where}")

    def failed(self, what: str) -> ServerError:
        """Return an error with this text and the end of the server's output."""
        output = self.log.read_text(errors="replace")[-_OUTPUT_TAIL:]
        return ServerError(f"{self.server.name} {what}. The end of its output:\n{output}")


async def install(server: Server) -> None:
    """Download a server, unless the locked version is installed. Raises ServerError."""
    if missing := server.missing():
        raise ServerError(f"{server.name} cannot be downloaded: {missing}")
    command = ["make", "--silent", *(str(path.relative_to(ROOT)) for path in server.ready_files)]
    done = await trio.run_process(command, cwd=ROOT, check=False, capture_stdout=True, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        output, shown = done.stdout.decode(errors="replace")[-_OUTPUT_TAIL:], " ".join(command)
        raise ServerError(f"{server.name} cannot be downloaded: {shown} exited with {done.returncode}:\n{output}")


@asynccontextmanager
async def running(server: Server, directory: Path, progress: Progress) -> AsyncIterator[Endpoint]:
    """Run a server in an empty directory until the context is left. Raises ServerError."""
    settings = _launch_settings(directory)
    command = server.command(settings)
    log = directory / "server.log"
    with log.open("wb") as output:
        process = await trio.lowlevel.open_process(
            command.arguments,
            cwd=directory,
            env={**_environment(directory), **command.environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        endpoint = Endpoint(server, f"https://{HOST}:{settings.ports[0]}", directory / "ca.pem", process, log)
        await _wait_until_ready(endpoint, settings.ports[0], progress)
        endpoint.check()
        yield endpoint
    finally:
        with trio.CancelScope(shield=True):
            await _stop(process)


async def _wait_until_ready(endpoint: Endpoint, port: int, progress: Progress) -> None:
    """Wait until the server responds. Raise ServerError on timeout, or if it exits."""
    context = ssl.create_default_context(cafile=str(endpoint.ca_file))
    started = reported = trio.current_time()
    while not await trio.to_thread.run_sync(_responds, context, port, endpoint.server.health):
        endpoint.check()
        now = trio.current_time()
        if now > started + _READY_TIMEOUT:
            raise endpoint.failed(f"does not respond within {_READY_TIMEOUT:.0f} s")
        if now > reported + 5:
            reported = now
            progress("waiting until it responds")
        await trio.sleep(_POLL)


def _responds(context: ssl.SSLContext, port: int, path: str) -> bool:
    connection = http.client.HTTPSConnection(HOST, port, timeout=10, context=context)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


async def _stop(process: trio.Process) -> None:
    """Terminate the server, then kill it and its children if they still run."""
    before = processes.process_tree(process.pid)
    process.terminate()
    with trio.move_on_after(_STOP_TIMEOUT):
        await process.wait()
    processes.kill([*processes.process_tree(process.pid), *before])
    await process.wait()


def _launch_settings(directory: Path) -> LaunchSettings:
    """Write a certificate, and find free ports."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(directory / "ca.pem"))
    issued = authority.issue_cert(HOST, "localhost")
    key = issued.private_key_pem.bytes()
    certificate = b"".join(pem.bytes() for pem in issued.cert_chain_pems)
    settings = LaunchSettings(
        directory,
        _free_ports(),
        certificate=directory / "certificate.pem",
        key=directory / "key.pem",
        both=directory / "both.pem",
        json=directory / "certificate.json",
    )
    settings.certificate.write_bytes(certificate)
    settings.key.write_bytes(key)
    settings.both.write_bytes(key + certificate)
    settings.json.write_text(json.dumps({"server": {"key": key.decode(), "cert": certificate.decode()}}))
    return settings


def _free_ports() -> tuple[int, int]:
    free: list[int] = []
    for port in _ports:
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind((HOST, port))
            except OSError:
                continue
        free.append(port)
        if len(free) == 2:  # noqa: PLR2004 - the number of ports in LaunchSettings
            return free[0], free[1]
    raise ServerError(f"no two ports from 20000 to 29999 are free on {HOST}")


def _environment(directory: Path) -> dict[str, str]:
    """Return the environment of every server: PATH, and its directory for all its files."""
    return {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(directory), "TMPDIR": str(directory)}
