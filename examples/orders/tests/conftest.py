"""Programs beside a fake Kinesis, which the pytest plugin of efo brings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture
def start(fake_kinesis_server, tmp_path):
    """Return a function that starts a program of the project beside a fake with the stream "orders"."""
    fake_kinesis_server.create_stream("orders", shards=2)
    path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {
        **os.environ,
        **fake_kinesis_server.environment,
        "PYTHONPATH": path,
        "EFO_SERVICE__PORT": "0",  # any free one
    }
    running = []

    def start(module: str, *arguments: str, stdout: int = subprocess.PIPE) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", module, *arguments]
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=stdout, text=True)
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
