"""The lease store: a locked file, a full disk, servers that freeze or are gone."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from proofs.incidents.disks import small_disk
from proofs.incidents.incident import Expected, running, signalled
from proofs.local_servers.postgres import serve_postgres
from proofs.local_servers.redis import serve_redis
from proofs.situations.situation import Cases, Outcome

cases = Cases("leases", seconds=240)

_LIMIT = 15.0
"""Seconds: a lease lives 10 s without its store, since no other worker may take it before."""
_FAILING = "EfoLeaseStoreFailing"


@contextmanager
def _locked(file: str) -> Iterator[None]:
    with closing(sqlite3.connect(file, timeout=30, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        yield
        connection.execute("ROLLBACK")


@cases.case("not ready, with the path of the file and how to find who holds its lock")
def the_lease_file_is_locked() -> Outcome:
    path = Path("leases.sqlite").absolute()
    with running() as one:
        lock = _locked(str(path))
        expected = Expected(
            f"the lease store has failed .*lease_store_locked: .*{path}.*end the program that holds the lock",
            obstacle="the lease could not be renewed|the leases were last read|not read",
            alert=_FAILING,
        )
        one.play(lock.__enter__, expected, _LIMIT)
        lock.__exit__(None, None, None)
        return one.outcome()


@cases.case("not ready, with the path of the file and that its disk is full")
def the_disk_of_the_leases_is_full() -> Outcome:
    with small_disk(2) as disk:
        path = disk.path / "leases.sqlite"
        with running(LEASES__PATH=path) as one:
            expected = Expected(
                f"the lease store has failed .*(lease_store_full|unavailable): .*{path}.*free space",
                obstacle="the lease could not be renewed|the leases were last read|not read",
                alert=_FAILING,
            )
            one.play(disk.fill, expected, _LIMIT)
            disk.free()
            return one.outcome()


def _frozen(store: str, url: str, program: str) -> Outcome:
    with running(LEASES__STORE=store, LEASES__URL=url) as one:
        expected = Expected(
            "the lease store has failed .*make the lease store",
            obstacle="the lease could not be renewed|the leases were last read",
            alert=_FAILING,
        )
        one.play(lambda: signalled(program, signal.SIGSTOP), expected, _LIMIT)
        signalled(program, signal.SIGCONT)
        return one.outcome()


@cases.case("not ready; make the lease store reachable")
def redis_is_frozen() -> Outcome:
    with serve_redis() as url:
        return _frozen("redis", url, "redis-server")


@cases.case("not ready; make the lease store reachable")
def postgres_is_frozen() -> Outcome:
    os.chmod(".", 0o755)  # noqa: S103, PTH101 - PostgreSQL runs as another user, and looks at where it is
    with serve_postgres() as url:
        return _frozen("postgres", url, "postgres")
