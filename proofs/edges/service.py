"""A process of `efo run` on a fake on a port, as an operator sees it: its log, /status and /metrics."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any, Final

from efo.testing import FakeKinesisThread
from efo_service.workers.process import efo_command
from proofs.situations.situation import CANARY

STREAM: Final = "orders"
SECRET: Final = f"{CANARY}secret"
_TIMEOUT: Final = 45.0


def environment(fake: FakeKinesisThread, **settings: object) -> dict[str, str]:
    """Return the environment of a command: of a setting, `RELAY__SINK` is `[relay] sink`."""
    credentials = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": SECRET}
    own = {
        "EFO_KINESIS__STREAM": STREAM,
        "EFO_KINESIS__REGION": "us-east-1",
        "EFO_KINESIS__ENDPOINT_URL": fake.url,
        "EFO_KINESIS__CA_FILE": str(fake.ca_file),
    }
    return {**credentials, **os.environ, **own, **{f"EFO_{name}": str(value) for name, value in settings.items()}}


def run(fake: FakeKinesisThread, *arguments: str, **settings: object) -> subprocess.CompletedProcess[str]:
    """Run a command of efo to its end. Its output is repeated on stderr."""
    done = subprocess.run(
        efo_command(*arguments), env=environment(fake, **settings), capture_output=True, text=True, check=False
    )
    sys.stderr.write(done.stdout + done.stderr)
    return done


class Service:
    """A service that runs with this environment. `lines`: the lines of its log so far. `url`: after its start."""

    process: subprocess.Popen[bytes]

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.lines: list[dict[str, Any]] = []
        self.url = ""
        self._environment = environment

    def start(self) -> None:
        """Start its process, and wait until it serves."""
        known = len(self.named("started"))
        self.process = process = subprocess.Popen(
            efo_command("run"), env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for pipe in (process.stdout, process.stderr):
            threading.Thread(target=self._read, args=(pipe,), daemon=True).start()
        if started := self.until(lambda: self.named("started")[known:]):
            self.url = started[0]["url"]

    def stop(self) -> None:
        """End its process."""
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _read(self, pipe: IO[bytes]) -> None:
        for line in pipe:
            sys.stderr.write(line.decode(errors="replace"))
            if line.startswith(b"{"):
                self.lines.append(json.loads(line))

    def named(self, name: str) -> list[dict[str, Any]]:
        """Return the lines with this name."""
        return [line for line in list(self.lines) if line.get("event") == name]

    def until(self, condition: Callable[[], Any], seconds: float = _TIMEOUT) -> Any:
        """Wait until a condition is true; return its last value."""
        deadline = time.monotonic() + seconds
        while not (value := condition()) and time.monotonic() < deadline and self.process.poll() is None:
            time.sleep(0.05)
        return value

    def get(self, path: str) -> str:
        """Return what the service answers."""
        with urllib.request.urlopen(self.url + path, timeout=10) as response:  # noqa: S310 - of this host
            return str(response.read().decode())

    def problems(self) -> list[str]:
        """Return the problems in /status."""
        return list(json.loads(self.get("/status"))["problems"])


@contextmanager
def serving(fake: FakeKinesisThread, **settings: object) -> Iterator[Service]:
    """Run a service until the context is left."""
    settings = {"SERVICE__PORT": 0, "LEASES__PATH": "leases.sqlite", "RELAY__DIRECTORY": "log"} | settings
    service = Service(environment(fake, **settings))
    try:
        service.start()
        yield service
    finally:
        service.stop()
