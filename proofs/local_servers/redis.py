"""Redis from Debian's package `redis-server`, without persistence."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import redis

from proofs.local_servers.processes import Server, directory
from proofs.local_servers.running import NotInstalledError
from proofs.ports import free_port

PASSWORD = "correct-horse"


@contextmanager
def serve_redis(*options: str) -> Iterator[str]:
    """Run Redis on a free port; yield its URL, with the password. `options`: more options of redis-server.

    Raises NotInstalledError.
    """
    program = shutil.which("redis-server")
    if program is None:
        raise NotInstalledError("Redis is not installed: run `apt-get install redis-server`")
    with directory() as path:
        port = free_port()
        url = f"redis://:{PASSWORD}@127.0.0.1:{port}/0"
        command = [program, "--bind", "127.0.0.1", "--port", str(port), "--dir", str(path), "--save", ""]
        server = Server([*command, "--requirepass", PASSWORD, *options], log=path / "log", probe=lambda: _ping(url))
        server.start()
        try:
            yield url
        finally:
            server.stop(signal.SIGTERM)


def _ping(url: str) -> None:
    with redis.Redis.from_url(url, socket_timeout=10) as client:
        client.ping()
