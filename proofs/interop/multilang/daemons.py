"""The daemons that run record processors: `efo kcl`, and Java's MultiLangDaemon, with the same properties."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio

from efo.model import Record
from efo.testing.server.listener import Address
from proofs.interop.clients.runner import InteropError
from proofs.interop.kcl.comparison import ReportedRecord
from proofs.interop.multilang.clients import HERE, KCL_RS, KCLPY, Client
from proofs.local_servers.dynamodb import CREDENTIALS
from proofs.peers.process_tree import Usage, descendants, usage_of
from proofs.peers.servers import trust_store_of

FAILOVER: Final = 10.0
"""Fail-over time in seconds, the same for all workers. kcl-rs has no other."""
_STOP_TIMEOUT: Final = 90.0
_LOGBACK: Final = """\
<configuration>
  <appender name="stderr" class="ch.qos.logback.core.ConsoleAppender">
    <target>System.err</target>
    <encoder><pattern>%d %level %logger{0} %msg%n</pattern></encoder>
  </appender>
  <root level="ERROR"><appender-ref ref="stderr"/></root>
</configuration>
"""


@dataclass(frozen=True, slots=True)
class Bench:
    """Where daemons run: the servers, the application and its stream, and a directory for what they write.

    `is_tapped`: whether the records are noted.
    """

    client: Client
    kinesis: Address
    dynamodb: str
    directory: Path
    stream: str
    application: str
    is_tapped: bool = True

    @property
    def records(self) -> Path:
        """The directory in which the taps note records."""
        return self.directory / "records"

    def write_properties(self, worker: str) -> Path:
        """Write the properties file of a worker."""
        values = {
            "executableName": self.client.executable(is_tapped=self.is_tapped),
            "streamName": self.stream,
            "applicationName": self.application,
            "workerId": worker,
            "AwsCredentialsProvider": "DefaultCredentialsProvider",
            "initialPositionInStream": "TRIM_HORIZON",
            "regionName": "us-east-1",
            "kinesisEndpoint": self.kinesis.url,
            "dynamoDBEndpoint": self.dynamodb,
            "metricsLevel": "NONE",
            "retrievalMode": "FANOUT",
            "failoverTimeMillis": str(int(FAILOVER * 1000)),
            "shutdownGraceMillis": "20000",
        }
        path = self.directory / f"{worker}.properties"
        path.write_text("".join(f"{name} = {value}\n" for name, value in values.items()))
        return path

    def command(self, worker: str) -> Sequence[str]:
        """Return the command of a worker, by how its name begins: "efo", "kcl_rs", or "kcl" for Java's daemon."""
        if worker.startswith("kcl_rs"):
            return (sys.executable, str(HERE / "kcl_rs_worker.py"), self.stream, self.application, worker)
        properties = str(self.write_properties(worker))
        if worker.startswith("efo"):
            efo = str(Path(sys.executable).with_name("efo"))
            return (efo, "kcl", "--properties-file", properties, "--protocol", str(self.client.protocol))
        logback = self.directory / "logback.xml"
        logback.write_text(_LOGBACK)
        store = trust_store_of(Path(str(self.kinesis.ca_file)), self.directory)
        trust = (f"-Djavax.net.ssl.trustStore={store}", "-Djavax.net.ssl.trustStorePassword=not-secret")
        daemon = "software.amazon.kinesis.multilang.MultiLangDaemon"
        arguments = ("--properties-file", properties, "--log-configuration", str(logback))
        return ("java", "-Xmx1g", *trust, "-cp", f"{KCLPY}/jars/*", daemon, *arguments)

    def environment(self, worker: str) -> dict[str, str]:
        """Return the environment of a daemon, which its children have too."""
        kept = {name: text for name, text in os.environ.items() if not name.startswith(("AWS_", "EFO_", "OTEL_"))}
        return {
            **kept,
            **CREDENTIALS,
            "PYTHONPATH": f"{self.client.path}{os.pathsep}{KCL_RS}",
            "PYTHONUNBUFFERED": "1",
            "KCL_RECORDS": str(self.records),
            "KCL_WORKER": worker,
            "EFO_KINESIS__CA_FILE": str(self.kinesis.ca_file),
            "EFO_SERVICE__PORT": "0",
            "AWS_ENDPOINT_URL_KINESIS": self.kinesis.url,
            "AWS_ENDPOINT_URL_DYNAMODB": self.dynamodb,
            "SSL_CERT_FILE": str(self.kinesis.ca_file),
            "EFO_LEASES__PATH": str(self.directory / "leases.sqlite"),
        }


class Daemon:
    """A running daemon."""

    def __init__(self, name: str, process: trio.Process, log: Path) -> None:
        self.name = name
        self._process = process
        self._log = log

    @classmethod
    async def start(cls, name: str, bench: Bench) -> Daemon:
        """Start a daemon."""
        log = bench.directory / f"{name}.log"
        with log.open("ab") as file:
            process = await trio.lowlevel.open_process(
                list(bench.command(name)), env=bench.environment(name), stdout=file, stderr=file, cwd=bench.directory
            )
        return cls(name, process, log)

    def check(self) -> None:
        """Raise InteropError if it has exited."""
        if self._process.poll() is not None:
            text = self._log.read_text(errors="replace")[-2000:]
            raise InteropError(f"{self.name} exited with {self._process.returncode}. The end of {self._log}:\n{text}")

    def usage(self) -> tuple[Usage, Usage]:
        """Return what the daemon uses, and what it uses with its children."""
        pid = self._process.pid
        whole = usage_of(pid)
        children = [usage_of(child) for child in descendants(pid)[:-1] if _parent(child) == pid]
        cpu = whole.cpu_seconds - sum(one.cpu_seconds for one in children)
        return Usage(cpu, whole.rss_bytes - sum(one.rss_bytes for one in children)), whole

    async def stop(self) -> None:
        """Send SIGTERM, and wait for the exit. Raises InteropError on timeout."""
        self._process.send_signal(signal.SIGTERM)
        await self.wait("SIGTERM")

    async def kill(self) -> None:
        """Kill the daemon alone; its children find their stdin closed."""
        self._process.kill()
        await self._process.wait()

    async def kill_child(self) -> None:
        """Kill one of its children, and wait until the daemon has ended as well."""
        pid = self._process.pid
        os.kill(next(child for child in descendants(pid)[:-1] if _parent(child) == pid), signal.SIGKILL)
        await self.wait("the death of a child")

    async def kill_machine(self) -> None:
        """Kill the daemon and all its children at once."""
        for pid in reversed(descendants(self._process.pid)):
            os.kill(pid, signal.SIGKILL)
        await self._process.wait()

    async def wait(self, after: str) -> None:
        """Wait for the exit. Raises InteropError on timeout."""
        with trio.move_on_after(_STOP_TIMEOUT) as scope:
            await self._process.wait()
        if scope.cancelled_caught:
            raise InteropError(f"{self.name} did not exit within {_STOP_TIMEOUT:.0f} s of {after}: see {self._log}")


def reported(records: Path, expected: Mapping[str, Sequence[Record]]) -> dict[str, list[ReportedRecord]]:
    """Return what the children of each worker were given. `truth`: what was put, by shard."""
    put = {record.sequence_number: (shard, record) for shard, found in expected.items() for record in found}
    workers: dict[str, list[ReportedRecord]] = {}
    for path in sorted(records.iterdir()):
        if path.suffix != ".stderr":
            workers.setdefault(path.name.partition(".")[0], []).extend(_read(path, put))
    return workers


def _read(path: Path, put: Mapping[str, tuple[str, Record]]) -> Iterable[ReportedRecord]:
    for line in path.read_text().splitlines():
        at, _, sequence = line.partition(" ")
        shard, record = put[sequence]
        yield ReportedRecord(int(at), shard, sequence, record.partition_key, record.data)


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0
