"""A real `efo run` on the embedded fake, for a browser to look at."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

from efo.testing import FakeKinesisThread
from efo_service.errors import UnavailableError
from efo_service.web.probe import ServiceAddress

STREAM: Final = "orders"
TOKEN: Final = "correct-horse-battery-staple"  # noqa: S105 - made-up
_START_SECONDS: Final = 60.0
_CONFIG: Final = """
[kinesis]
region = "us-east-1"
endpoint_url = "{url}"
ca_file = "{ca_file}"
[consumer]
subscribes_per_second = 500
shard_sync_seconds = 5
[leases]
path = "var/leases.sqlite"
worker_id = "worker"
[relay]
sink = "{sink}"
directory = "log"
[service]
port = 0
"""


class Service:
    """A running service. `address`: where it is, with its token."""

    def __init__(self, fake: FakeKinesisThread, directory: Path) -> None:
        self.fake = fake
        self.address = ServiceAddress("127.0.0.1", 0, TOKEN)
        self._log = directory / "log.jsonl"
        self._numbers = count()

    def lines(self) -> list[dict[str, Any]]:
        """Return the lines of its log."""
        return [json.loads(line) for line in self._log.read_text().splitlines() if line.startswith("{")]

    def put(self, records: int = 200) -> None:
        """Put some records, spread over the shards."""
        self.fake.put_many(STREAM, [(f"key-{next(self._numbers)}", b"x" * 300) for _ in range(records)])

    def live(self, stream: str = STREAM) -> dict[str, dict[str, Any]]:
        """Return what the service tells of each shard of a stream."""
        status, body = self.address.get("/map")
        if status != 200:  # noqa: PLR2004 - HTTP status
            raise RuntimeError(f"/map: HTTP status {status}: {body[:200]}")
        reported = {reported["stream"]: reported["live"] for reported in json.loads(body)["streams"]}
        return {shard["id"]: shard for shard in reported.get(stream, [])}

    def _reading(self, stream: str) -> int:
        """Return how many shards it reads; 0 if it does not answer in time, while it starts a thousand."""
        try:
            return sum(shard["state"] == "current" for shard in self.live(stream).values())
        except UnavailableError:
            return 0

    def until_reading(self, shards: int, stream: str = STREAM, seconds: float = 120.0) -> None:
        """Wait until it reads so many shards of a stream. Raises TimeoutError."""
        deadline = time.monotonic() + seconds
        while self._reading(stream) < shards:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the service does not read {shards} shards after {seconds:g} s")
            time.sleep(0.2)


@contextmanager
def running(
    directory: Path, shards: int, *, sink: str = "log", others: Mapping[str, int] = {}, workers: int = 1
) -> Iterator[Service]:
    """Run a service that reads a stream of so many shards, in an empty directory. Raises RuntimeError if it ends.

    `others`: further streams, and their shards. `workers`: the processes; several have a supervisor.
    """
    with FakeKinesisThread() as fake:
        config = _CONFIG.format(url=fake.url, ca_file=fake.ca_file, sink=sink)
        for stream, number in {STREAM: shards, **others}.items():
            fake.create_stream(stream, number)
            config += f"[streams.{stream}]\n"
        (directory / "efo.toml").write_text(config)
        service = Service(fake, directory)
        own = {name: value for name, value in os.environ.items() if not name.startswith(("EFO_", "AWS_", "OTEL_"))}
        with (directory / "log.jsonl").open("wb") as log:
            process = subprocess.Popen(  # noqa: S603 - a command of our own
                [sys.executable, "-m", "efo_service.cli", "run", "--workers", str(workers), "--config", "efo.toml"],
                cwd=directory,
                env=own | fake.environment | {"EFO_SERVICE__TOKEN": TOKEN},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            service.address = service.address._replace(port=_port(service, process))
            yield service
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _port(service: Service, process: subprocess.Popen[bytes]) -> int:
    """Return the port of the service, once its log has it."""
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        for line in service.lines():
            if line["event"] in {"started", "supervisor_started"}:
                return int(line["url"].rpartition(":")[2])
        time.sleep(0.1)
    raise RuntimeError(f"the service did not start: {service.lines()[-3:]}")
