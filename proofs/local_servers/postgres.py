"""PostgreSQL from Debian's package `postgresql`, with a new cluster in a temporary directory."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from proofs.local_servers.processes import Server, directory
from proofs.local_servers.running import NotInstalledError
from proofs.ports import free_port

USER, PASSWORD = "efo", "correct-horse"
DATABASE = "postgres"


@contextmanager
def serve_postgres() -> Iterator[str]:
    """Run PostgreSQL on a free port; yield its URL, with a superuser. No fsync: its data is deleted at the end.

    Raises NotInstalledError.
    """
    programs = find_programs()
    user = "postgres" if os.geteuid() == 0 else None  # PostgreSQL refuses to run as root
    with directory(user) as path:
        _initialise(programs, path, user)
        port = free_port()
        url = f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{port}/{DATABASE}"
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": port,
            "unix_socket_directories": "",
            "fsync": "off",
            "max_connections": 200,
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        server = Server(
            [str(programs / "postgres"), "-D", str(path / "data"), *options],
            log=path / "log",
            probe=lambda: psycopg.connect(url, connect_timeout=10).close(),
            user=user,
        )
        server.start()
        try:
            yield url
        finally:
            server.stop(signal.SIGINT)  # "fast" shutdown: it does not wait for connections


def find_programs() -> Path:
    """Return the directory of the newest PostgreSQL's programs. Raises NotInstalledError."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if initdb := (found[-1] if found else shutil.which("initdb")):
        return Path(initdb).parent
    raise NotInstalledError("PostgreSQL is not installed: run `apt-get install postgresql`")


def _initialise(programs: Path, path: Path, user: str | None) -> None:
    secret = path / "password"
    secret.write_text(PASSWORD)
    if user is not None:
        shutil.chown(secret, user)  # with a strict umask, only its owner may read it
    command = [str(programs / "initdb"), "-D", str(path / "data"), "--no-sync", "--locale=C", "--encoding=UTF8"]
    authentication = ["--auth=scram-sha-256", f"--username={USER}", f"--pwfile={secret}"]
    done = subprocess.run([*command, *authentication], check=False, capture_output=True, text=True, user=user)
    if done.returncode:
        raise RuntimeError(f"initdb failed: {done.stderr.strip() or done.stdout.strip()}")
