"""Fetches a server, starts it on the loopback interface, waits until it answers, and ends it."""

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
from proofs.interop.servers.servers import Place, Server
from proofs.paths import ROOT

Say = Callable[[str], None]
"""Tells what is going on."""

HOST: Final = "127.0.0.1"
_ports: Final = iter(random.sample(range(20_000, 30_000), 10_000))
"""Below those that the system gives to outgoing connections, which come and go meanwhile. Each is tried once."""
_READY_WITHIN: Final = 120.0
_POLL: Final = 0.25
_GOODBYE: Final = 10.0
_LAST_WORDS: Final = 2000


class ServerError(Exception):
    """A server could not be fetched or started, or listens where it must not. The text says which, and its words."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server that runs. `ca_file`: the authority that signed its certificate."""

    server: Server
    url: str
    ca_file: Path
    process: trio.Process
    log: Path

    def check(self) -> None:
        """Raise ServerError unless it runs and listens on the loopback interface alone."""
        if self.process.poll() is not None:
            raise self.failed(f"exited with {self.process.returncode}")
        listeners = processes.listeners(processes.family(self.process.pid))
        if open_to_all := [listener for listener in listeners if not listener.is_loopback]:
            where = ", ".join(f"{listener.address} port {listener.port}" for listener in open_to_all)
            raise self.failed(f"listens beyond the loopback interface: {where}")

    def failed(self, what: str) -> ServerError:
        """Return the error that says so, with the server's last words."""
        said = self.log.read_text(errors="replace")[-_LAST_WORDS:]
        return ServerError(f"{self.server.name} {what}. What it said last:\n{said}")


async def install(server: Server) -> None:
    """Fetch a server, unless it is there as the lock files say. Raises ServerError."""
    if missing := server.missing():
        raise ServerError(f"{server.name} cannot be fetched: {missing}")
    command = ["make", "--silent", *(str(path.relative_to(ROOT)) for path in server.made)]
    done = await trio.run_process(command, cwd=ROOT, check=False, capture_stdout=True, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        said, what = done.stdout.decode(errors="replace")[-_LAST_WORDS:], " ".join(command)
        raise ServerError(f"{server.name} cannot be fetched: {what} exited with {done.returncode}:\n{said}")


@asynccontextmanager
async def running(server: Server, directory: Path, say: Say) -> AsyncIterator[Endpoint]:
    """Run a server in an empty directory until the context is left. Raises ServerError."""
    place = _place(directory)
    command = server.command(place)
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
        endpoint = Endpoint(server, f"https://{HOST}:{place.ports[0]}", directory / "ca.pem", process, log)
        await _ready(endpoint, place.ports[0], say)
        endpoint.check()
        yield endpoint
    finally:
        with trio.CancelScope(shield=True):
            await _stop(process)


async def _ready(endpoint: Endpoint, port: int, say: Say) -> None:
    """Wait until it answers."""
    context = ssl.create_default_context(cafile=str(endpoint.ca_file))
    started = told = trio.current_time()
    while not await trio.to_thread.run_sync(_answers, context, port, endpoint.server.health):
        endpoint.check()
        now = trio.current_time()
        if now > started + _READY_WITHIN:
            raise endpoint.failed(f"does not answer within {_READY_WITHIN:.0f} s")
        if now > told + 5:
            told = now
            say("waiting until it answers")
        await trio.sleep(_POLL)


def _answers(context: ssl.SSLContext, port: int, path: str) -> bool:
    connection = http.client.HTTPSConnection(HOST, port, timeout=10, context=context)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


async def _stop(process: trio.Process) -> None:
    """Ask it to go, then make it, and its children with it."""
    before = processes.family(process.pid)
    process.terminate()
    with trio.move_on_after(_GOODBYE):
        await process.wait()
    processes.kill([*processes.family(process.pid), *before])
    await process.wait()


def _place(directory: Path) -> Place:
    """Make a certificate, and find ports."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(directory / "ca.pem"))
    issued = authority.issue_cert(HOST, "localhost")
    key = issued.private_key_pem.bytes()
    certificate = b"".join(pem.bytes() for pem in issued.cert_chain_pems)
    place = Place(
        directory,
        _free_ports(),
        certificate=directory / "certificate.pem",
        key=directory / "key.pem",
        both=directory / "both.pem",
        json=directory / "certificate.json",
    )
    place.certificate.write_bytes(certificate)
    place.key.write_bytes(key)
    place.both.write_bytes(key + certificate)
    place.json.write_text(json.dumps({"server": {"key": key.decode(), "cert": certificate.decode()}}))
    return place


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
        if len(free) == 2:  # noqa: PLR2004 - as many as a place has
            return free[0], free[1]
    raise ServerError(f"no two ports from 20000 to 29999 are free on {HOST}")


def _environment(directory: Path) -> dict[str, str]:
    """Return what every server finds: where programs are, and that its files belong into its directory."""
    return {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(directory), "TMPDIR": str(directory)}
