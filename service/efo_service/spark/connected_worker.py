"""Runs a Python worker of Spark that connects to Spark before it imports PySpark.

    python connected_worker.py <module>

Spark starts the planner of each streaming query as `python -m <module>` and waits ten seconds for its connection, which
cannot be set (PythonWorkerFactory.createSimpleWorker). PySpark connects after its imports, a second of CPU time: on a
busy machine that takes longer, and the query fails with "Python worker failed to connect back". Here the connection is
there after some hundredths of a second; then Spark waits for the imports as long as they take.

The script worker-python runs this file by its path, so it imports the standard library alone.
"""

from __future__ import annotations

import os
import runpy
import socket
import struct
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Final, cast

Connection = tuple[IO[bytes], socket.socket]

_LENGTH: Final = struct.Struct("!i")


def connect(environment: Mapping[str, str]) -> Connection | None:
    """Connect to Spark, and authenticate, as pyspark.util.local_connect_and_auth does.

    None: Spark waits for no connection, or this is not how it takes one. Then PySpark connects, and reports errors.
    """
    path = environment.get("PYTHON_WORKER_FACTORY_SOCK_PATH")
    port = environment.get("PYTHON_WORKER_FACTORY_PORT")
    secret = environment.get("PYTHON_WORKER_FACTORY_SECRET")
    timeout = float(environment.get("SPARK_AUTH_SOCKET_TIMEOUT", "15"))
    try:
        if path is not None and secret is None:
            connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connected.settimeout(timeout)
            connected.connect(path)
        elif port is not None and secret is not None:
            host = "::1" if environment.get("SPARK_PREFER_IPV6", "false").lower() == "true" else "127.0.0.1"
            connected = socket.create_connection((host, int(port)), timeout)
        else:
            return None
        buffer = int(environment.get("SPARK_BUFFER_SIZE", "65536"))
        file = cast("IO[bytes]", connected.makefile("rwb", buffer))
        if secret is not None and not _authenticate(file, secret.encode()):
            return None
    except OSError:
        return None
    return file, connected


def _authenticate(file: IO[bytes], secret: bytes) -> bool:
    file.write(_LENGTH.pack(len(secret)) + secret)
    file.flush()
    header = file.read(_LENGTH.size)
    return len(header) == _LENGTH.size and file.read(*_LENGTH.unpack(header)) == b"ok"


def hand_over(connection: Connection) -> None:
    """Let the next call of PySpark's local_connect_and_auth, under whichever name, return this connection."""
    import pyspark.util  # noqa: PLC0415 - it takes the time for which Spark does not wait

    original = pyspark.util.local_connect_and_auth
    left = [connection]

    def local_connect_and_auth(*arguments: Any) -> Any:
        return left.pop() if left else original(*arguments)

    for module in [module for name, module in sys.modules.items() if name.partition(".")[0] == "pyspark"]:
        if getattr(module, "local_connect_and_auth", None) is original:
            module.local_connect_and_auth = local_connect_and_auth  # type: ignore[attr-defined]


def main(module: str) -> None:
    """Run the module as `python -m` does, connected to Spark."""
    if not sys.flags.safe_path:  # with PYTHONSAFEPATH the first entry is the user's
        sys.path[0] = str(Path.cwd())  # not the directory of this file
    connection = connect(os.environ)
    if connection is not None:
        hand_over(connection)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv.pop(1))
