"""The formats that `efo migrate` reads, and how the rows of each are made here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import urlsplit

from proofs.local_servers.mariadb import serve_mariadb
from proofs.local_servers.postgres import serve_postgres
from proofs.local_servers.redis import serve_redis
from proofs.local_servers.running import Serve
from proofs.paths import TOOLS
from proofs.peers.peers import PEERS, Command, Peer

PYTHON: Final = TOOLS / "migration" / "python-venv" / "bin" / "python"
"""An environment for async-kinesis. The Makefile creates it."""
TABLE: Final = "kinesis_consumer"
_PEERS: Final = {peer.name: peer for peer in PEERS}
_MVN: Final = ("mvn", "--quiet", "--batch-mode", "--no-transfer-progress", "--strict-checksums", "package")
_DOCUMENTED: Final = "rows by its documented schema: the library does not resolve"


@dataclass(frozen=True, slots=True)
class Case:
    """A format in one kind of store.

    `library`: the argument of `efo migrate`. `peer`: the program that drives the real library; None: rows by its
    documented schema. `serve`: the server that its rows are in, None for DynamoDB Local. `place`: from the server's URL
    to what the program takes. `repeats`: why the library may have saved less than it has read.
    """

    name: str
    library: str
    peer: Peer | None = None
    serve: Serve | None = None
    place: Callable[[str], Command] = lambda _url: ()
    repeats: str = ""

    @property
    def made(self) -> str:
        """How the rows are made."""
        return f"written by {self.peer.version}" if self.peer else _DOCUMENTED

    def program(self, url: str) -> Peer | None:
        """Return the program with the place of its rows among its arguments."""
        if self.peer is None:
            return None
        place = self.place(url)
        if self.peer.run[0] == str(PYTHON):  # a Python program takes its configuration last
            return replace(self.peer, run=(*self.peer.run, *place))
        return replace(self.peer, arguments=place)


def _go_mysql(url: str) -> Command:
    parts = urlsplit(url)
    return ("mysql", f"{parts.username}:{parts.password}@tcp({parts.hostname}:{parts.port}){parts.path}", TABLE)


def _kcl(profile: str, version: str) -> Peer:
    classes = f"target/{profile}/classes:target/{profile}/dependency/*"
    run = ("java", "-Xmx1g", "-cp", classes, "peers.KclProgram")
    return replace(_PEERS["kcl"], version=version, run=run, build=((*_MVN, "-P", profile),))


_KCL_1: Final = Peer(
    name="kcl1",
    version="KCL 1.15.3",
    source="kcl1",
    run=("java", "-Xmx1g", "-cp", "target/classes:target/dependency/*", "migration.KclOneProgram"),
    build=(_MVN,),
    needs=("java", "mvn"),
    polls=True,
)
_HARLOW: Final = replace(
    _PEERS["harlow"],
    run=("bin/harlow_stores",),
    build=(("go", "build", "-o", "bin/harlow_stores", "./harlow_stores"),),
)
_ASYNC_KINESIS: Final = Peer(
    name="async-kinesis",
    version="async-kinesis 3.0.1",
    source="python",
    run=(str(PYTHON), "async_kinesis_program.py"),
    needs=(str(PYTHON),),
    polls=True,
)
_TERMINAL: Final = "async-kinesis does not save the last batch of a shard that has ended"

CASES: Final = (
    Case("kcl-1", "kcl", _KCL_1),
    Case("kcl-2", "kcl", _kcl("kcl2", "KCL 2.7.2")),
    Case("kcl-3", "kcl", _kcl("kcl", "KCL 3.5.1")),
    Case("kclpy", "kclpy", _PEERS["kclpy"]),
    Case("vmware-go-kcl", "vmware-go-kcl", _PEERS["vmware-kcl-go"]),
    Case("kinesumer", "kinesumer"),
    Case("harlow-dynamodb", "harlow", _PEERS["harlow"]),
    Case("harlow-redis", "harlow", _HARLOW, serve_redis, lambda url: ("redis", url, TABLE)),
    Case("harlow-postgres", "harlow", _HARLOW, serve_postgres, lambda u: ("postgres", f"{u}?sslmode=disable", TABLE)),
    Case("harlow-mysql", "harlow", _HARLOW, serve_mariadb, _go_mysql),
    Case("async-kinesis-redis", "async-kinesis", _ASYNC_KINESIS, serve_redis, lambda url: (url,), _TERMINAL),
    Case("async-kinesis-dynamodb", "async-kinesis", _ASYNC_KINESIS, None, lambda _url: ("dynamodb",), _TERMINAL),
)
