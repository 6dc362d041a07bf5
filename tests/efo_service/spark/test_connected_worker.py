"""Spark's side is a socket of the test: a worker must connect, whatever its imports do."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from efo_service.spark import connected_worker
from efo_service.spark.connected_worker import connect
from efo_service.spark.workers import worker_environment, worker_python

SECRET = b"a secret"
PYSPARK = {
    "pyspark/__init__.py": "import sys\nassert sys.stdin.readline() == 'import now\\n'\n",
    "pyspark/util.py": "def local_connect_and_auth(where, secret):\n    raise AssertionError('connected twice')\n",
    "pyspark/sql/__init__.py": "",
    "pyspark/sql/planner.py": (
        "import os, sys\n"
        "from pyspark.util import local_connect_and_auth\n"
        "if __name__ == '__main__':\n"
        "    file, _ = local_connect_and_auth(0, 'x')\n"
        "    file.write(f'{__spec__.name} {sys.argv[1:]} {sys.path[0] == os.getcwd()}'.encode())\n"
        "    file.close()\n"
    ),
}
"""A PySpark whose import waits for a line on the standard input, and a planner that writes to its connection."""


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(120)
        yield listening


def authenticate(connected: socket.socket, answer: bytes = b"ok") -> bytes:
    """Do what Spark's SocketAuthHelper does; return the secret."""
    with connected.makefile("rwb") as file:
        secret = file.read(int.from_bytes(file.read(4)))
        file.write(len(answer).to_bytes(4) + answer)
    return secret


def test_a_worker_is_connected_before_it_imports_pyspark(tmp_path: Path, server: socket.socket) -> None:
    for name, text in PYSPARK.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PYTHON_WORKER")},
        **worker_environment(),
        "PYTHON_WORKER_FACTORY_PORT": str(server.getsockname()[1]),
        "PYTHON_WORKER_FACTORY_SECRET": SECRET.decode(),
        "PYTHONPATH": str(tmp_path),
    }
    command = [worker_python(), "-m", "pyspark.sql.planner", "more"]
    with subprocess.Popen(command, env=environment, cwd=tmp_path, stdin=subprocess.PIPE) as worker:
        connected, _ = server.accept()
        with connected:
            connected.settimeout(120)
            assert authenticate(connected) == SECRET
            assert worker.poll() is None  # it waits in its import
            assert worker.stdin is not None
            worker.stdin.write(b"import now\n")
            worker.stdin.close()
            with connected.makefile("rb") as file:
                assert file.read() == b"pyspark.sql.planner ['more'] True"
        assert worker.wait(120) == 0


def test_the_path_of_a_worker_is_kept_with_pythonsafepath(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("print('imported')\n")
    command = [sys.executable, connected_worker.__file__, "mine"]
    environment = {"PYTHONSAFEPATH": "1", "PYTHONPATH": str(tmp_path)}
    ran = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, check=True)
    assert ran.stdout == "imported\n"


def test_a_worker_connects_to_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        connection = connect({"PYTHON_WORKER_FACTORY_SOCK_PATH": str(path)})
        assert connection is not None
        accepted, _ = listening.accept()
        for each in (*connection, accepted):
            each.close()


@pytest.mark.parametrize("environment", [{}, {"PYTHON_WORKER_FACTORY_PORT": "1"}])
def test_without_a_waiting_spark_pyspark_connects_itself(environment: dict[str, str]) -> None:
    assert connect(environment) is None


def test_a_port_where_nobody_listens_is_left_to_pyspark(server: socket.socket) -> None:
    port = str(server.getsockname()[1])
    server.close()
    assert connect({"PYTHON_WORKER_FACTORY_PORT": port, "PYTHON_WORKER_FACTORY_SECRET": "x"}) is None


def test_an_installed_worker_python_finds_its_environment(tmp_path: Path) -> None:
    """On an executor nobody sets SPARK_WORKER_PYTHON."""
    script = tmp_path / "lib" / "python3.13" / "site-packages" / "efo_service" / "spark" / "worker-python"
    script.parent.mkdir(parents=True)
    script.symlink_to(worker_python())
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    code = "import os; print('this Python', os.environ.get('PYTHONPATH'))"
    environment = {"PATH": "/nowhere:/usr/bin:/bin", "PYTHONPATH": "/spark/pyspark.zip"}
    found = subprocess.run([script, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout == "this Python /spark/pyspark.zip\n"
    python.unlink()
    python3 = tmp_path / "path" / "python3"
    python3.parent.mkdir()
    python3.write_text("#!/bin/sh\necho the python3 of the PATH\n")
    python3.chmod(0o755)
    environment["PATH"] = f"{python3.parent}:/usr/bin:/bin"
    found = subprocess.run([script, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout == "the python3 of the PATH\n"
