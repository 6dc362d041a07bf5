"""MariaDB from Debian's packages `mariadb-server-core` and `mariadb-client-core`, with an empty database."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pymysql

from proofs.local_servers.processes import Server, directory
from proofs.local_servers.running import NotInstalledError
from proofs.ports import free_port

USER, PASSWORD, DATABASE = "efo", "correct-horse", "checkpoints"


@contextmanager
def serve_mariadb() -> Iterator[str]:
    """Run MariaDB on a free port; yield the URL of an empty database. Raises NotInstalledError."""
    program, install = _program("mariadbd"), _program("mariadb-install-db")
    with directory() as path:
        options = ["--no-defaults", f"--datadir={path / 'data'}", *(["--user=root"] if os.geteuid() == 0 else [])]
        normal = ("--auth-root-authentication-method=normal", "--skip-test-db")
        subprocess.run([install, *options, *normal], check=True, capture_output=True)
        port = free_port()
        network = ["--bind-address=127.0.0.1", f"--port={port}", f"--socket={path / 'socket'}"]
        small = ["--innodb-buffer-pool-size=16M", "--innodb-flush-log-at-trx-commit=0", "--skip-log-bin"]
        connect = partial(pymysql.connect, host="127.0.0.1", port=port, user="root")
        server = Server([program, *options, *network, *small], log=path / "log", probe=lambda: connect().close())
        server.start()
        try:
            with connect(autocommit=True) as connection, connection.cursor() as cursor:
                cursor.execute(f"CREATE DATABASE {DATABASE}")
                cursor.execute(f"GRANT ALL ON {DATABASE}.* TO {USER}@'%' IDENTIFIED BY '{PASSWORD}'")
            yield f"mysql://{USER}:{PASSWORD}@127.0.0.1:{port}/{DATABASE}"
        finally:
            server.stop(signal.SIGTERM)


def _program(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin")
    if found is None or not Path(found).exists():
        raise NotInstalledError(
            "MariaDB is not installed: run `apt-get install mariadb-server-core mariadb-client-core`"
        )
    return found
