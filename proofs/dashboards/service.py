"""One `efo run` of the proof, on its own stream of the fake: its process, its load, and the reader of its output."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import httpx2
import trio

from efo.testing import FakeKinesis, When
from efo.testing.faults import Fault
from efo.testing.server.listener import Address
from efo_service.workers.process import efo_command
from proofs.dashboards.programs import Program
from proofs.ports import free_ports

_CREDENTIALS: Final = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_EC2_METADATA_DISABLED": "true"}
_START_SECONDS: Final = 120.0
_CHUNK: Final = 4096
DISK_MEGABYTES: Final = 1024
"""Of the disk of a log. It uses memory as far as it is filled."""


class Service:
    """`efo run` with its stream. `job`: its name for Prometheus, and with the stream's; `port`: of its /metrics.

    `pace`: bytes that are read per second of its output, if the sink is stdout; None for all at once, 0 for none.
    `output`: where stdout goes instead. `command`: of efo, instead of `run`. `files`: what its directory has at the
    start. `disk_megabytes`: of a disk of its own that has only the log, so that no other program fills it.
    """

    def __init__(
        self,
        job: str,
        fake: FakeKinesis,
        address: Address,
        directory: Path,
        *,
        workers: int,
        environment: Mapping[str, str],
        shards: int = 2,
        pace: float | None = None,
        output: Path | None = None,
        command: Sequence[str] = (),
        files: Mapping[str, str] | None = None,
        disk_megabytes: int = DISK_MEGABYTES,
    ) -> None:
        self.job = job
        self.stream = f"{job}-stream"
        self.directory = directory / job
        self.log = self.directory / "log"
        self.pace = pace
        self._disk_megabytes = disk_megabytes
        self._fake = fake
        self._workers = workers
        fake.create_stream(self.stream, shards=shards)
        self.port, *_ = free_ports(1 + (workers if workers > 1 else 0))
        settings = {
            "EFO_KINESIS__STREAM": self.stream,
            "EFO_KINESIS__REGION": "us-east-1",
            "EFO_KINESIS__ENDPOINT_URL": address.url,
            "EFO_KINESIS__CA_FILE": str(address.ca_file),
            "EFO_CONSUMER__APPLICATION": job,
            "EFO_LEASES__PATH": "leases.sqlite",
            "EFO_LEASES__WORKER_ID": job,
            "EFO_RELAY__DIRECTORY": "log",
            "EFO_SERVICE__PORT": str(self.port),
        }
        pipe = output is None and environment.get("EFO_RELAY__JSONL_FILE") == "-"
        started = efo_command(*(command or ("run", *(["--workers", str(workers)] if workers > 1 else []))))
        everything = {**_CREDENTIALS, **settings, **environment}
        self.program = Program(job, started, self.directory, everything, pipe=pipe, output=output)
        self._files = files or {}
        self._client = httpx2.AsyncClient(base_url=f"http://127.0.0.1:{self.port}", timeout=10)

    async def start(self) -> None:
        """Start the process, and wait until it is ready. Raises ProgramError, and trio.TooSlowError."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for name, content in self._files.items():
            (self.directory / name).write_text(content)
        self.log.mkdir()
        size = f"size={self._disk_megabytes}m"
        await trio.run_process(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(self.log)])
        await self.program.start()
        with trio.fail_after(_START_SECONDS):
            while not await self._is_ready():
                self.program.check()
                await trio.sleep(0.2)

    async def _is_ready(self) -> bool:
        try:
            return (await self._client.get("/readyz")).is_success
        except httpx2.HTTPError:
            return False

    async def read_output(self) -> None:
        """Read what the process writes to stdout, at its pace, until the process ends."""
        stream = self.program.process.stdout
        if stream is None:
            return
        while True:
            if self.pace == 0:
                await trio.sleep(1)
                continue
            data = await stream.receive_some(_CHUNK)
            if not data:
                return
            if self.pace:
                await trio.sleep(len(data) / self.pace)

    async def put(self, rate: float) -> None:
        """Put so many records per second, forever."""
        number = 0
        while True:
            count = max(1, round(rate / 2))
            self._fake.put_many(
                self.stream,
                [
                    (f"key-{n % 97}", b'{"id": %d, "note": "%s"}' % (n, b"x" * 60))
                    for n in range(number, number + count)
                ],
            )
            number += count
            await trio.sleep(0.5)

    # --- faults --------------------------------------------------------------------------------------------------

    def put_one(self, data: bytes) -> None:
        """Put one record."""
        self._fake.put(self.stream, "poison", data)

    def fault(self, fault: Fault, times: float = 1) -> None:
        """Inject a fault of Kinesis into this stream, for each shard so many times."""
        self._fake.faults.add(fault, When(stream=self.stream, times=times))

    def retain(self, hours: float) -> None:
        """Change the retention period of this stream."""
        self._fake.retain(self.stream, hours)

    async def locked_leases(self, seconds: float) -> None:
        """Hold the lock of the lease store's file, as a backup or a hung worker on a shared disk would."""
        path = self.directory / "leases.sqlite"
        with closing(sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)) as connection:
            await trio.to_thread.run_sync(connection.execute, "BEGIN EXCLUSIVE")
            await trio.sleep(seconds)
            connection.execute("ROLLBACK")

    async def workers(self) -> list[int]:
        """Return the process ids of its workers, as /status says."""
        status: dict[str, Any] = (await self._client.get("/status")).json()
        return [worker["pid"] for worker in status["workers"] if worker["pid"] is not None]

    async def end(self) -> None:
        """End the process and its workers."""
        await self._client.aclose()
        await self.program.end()
        await trio.run_process(["umount", "-l", str(self.log)], check=False)
