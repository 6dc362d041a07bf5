"""A real `efo run` on a fake Kinesis, that is attacked: what its probes, its loop, its leases and its records say."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from efo.errors import EfoError
from efo.testing import FakeKinesisThread, FakeSettings
from efo_service.errors import UnavailableError
from efo_service.log.inspection import inspect_topic
from efo_service.log.topic import log_files
from efo_service.web.probe import ServiceAddress
from proofs.paths import ROOT
from proofs.ports import free_port
from proofs.situations.situation import CANARY, Outcome
from tests.step_meter import slowness

STREAM: Final = "orders"
SHARDS: Final = 4
TOKEN: Final = f"{CANARY}-token-of-the-service"
_PLANNED: Final = {"released", "handed_over"}
_BLOCKED_MS: Final = 50.0
_FAILURES: Final = 3
"""Failed probes in a row after which an orchestrator restarts a service. A busy machine may fail one."""
_EACH: Final = 0.1
"""Seconds between two probes."""


class Service:
    """A running service. `port`: its port. `process`: of the service, or of the supervisor of several workers.

    While it is attacked, records are put, and /livez is asked ten times a second.
    """

    certificate: Path | None = None
    """Of its TLS; None: it has none."""

    def __init__(self, home: Path, kinesis: FakeKinesisThread, process: subprocess.Popen[bytes], port: int) -> None:
        self.home = home
        self.kinesis = kinesis
        self.process = process
        self.port = port
        self.put = 0
        self._failed_in_a_row = 0
        self._most_in_a_row = 0
        self.failed_probes = 0
        self.probes = 0
        self._ends = threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._probe, self._put)]
        self._blocked_ms = 0.0

    @property
    def address(self) -> ServiceAddress:
        """Where it is, for a client without the token."""
        return ServiceAddress("127.0.0.1", self.port, certificate=self.certificate)

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        """Return a new connection. `source`: the client's address."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=10, source_address=(source, 0))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def ask(self, data: bytes) -> bytes:
        """Send bytes on a connection of their own; return all that comes back until its end."""
        received = bytearray()
        with self.connect() as connection, suppress(OSError):
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while piece := connection.recv(65536):
                received += piece
        return bytes(received)

    def efo(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of efo beside the service, as an orchestrator or an operator does."""
        environment = {**os.environ, **self._environment}
        return subprocess.run(
            [sys.executable, "-P", "-m", "efo_service", *arguments],
            env=environment, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    _environment: Mapping[str, str] = {}

    # --- what is seen ------------------------------------------------------------------------------------------------

    @property
    def log(self) -> list[dict[str, Any]]:
        """The lines of its log."""
        lines = []
        for line in self.home.joinpath("log").read_text(errors="replace").splitlines():
            with suppress(ValueError):
                lines.append(json.loads(line))
        return [line for line in lines if isinstance(line, dict)]

    @property
    def leases_lost(self) -> int:
        """How many leases it lost."""
        return sum(line.get("event") == "lease_lost" and line.get("reason") not in _PLANNED for line in self.log)

    @property
    def relayed(self) -> int:
        """How many records are in its log, which has each once."""
        try:
            state = inspect_topic(log_files(self.home / "relayed"), STREAM)
        except EfoError:
            return 0
        return sum(partition.end - partition.start for partition in state.partitions)

    def measure(self) -> float:
        """Return the milliseconds of the loop's slowest step since the last call, by a machine of ordinary speed."""
        path = self.home / "steps.json"
        path.unlink(missing_ok=True)
        os.kill(self.process.pid, signal.SIGUSR2)
        until(path.exists, 20)
        return float(json.loads(path.read_text())["seconds"]) * 1000 / slowness()

    @contextmanager
    def attacked(self) -> Iterator[None]:
        """Probe the service, put records, and measure its loop during this block."""
        self.measure()
        for thread in self._threads:
            thread.start()
        try:
            yield
            time.sleep(0.5)
        finally:
            self._ends.set()
            for thread in self._threads:
                thread.join()
        self._blocked_ms = max(self._blocked_ms, self.measure())

    def outcome(self, did: str, is_right: object = None) -> Outcome:
        """End the service; return what was seen. `is_right`: what the case itself found, if anything."""
        alive = self.process.poll() is None
        put = self.put
        until(lambda: self.relayed >= put, 20)
        relayed, lost = self.relayed, self.leases_lost
        self.process.send_signal(signal.SIGTERM)
        try:
            status: int | None = self.process.wait(40)
        except subprocess.TimeoutExpired:
            status = None
        is_held = alive and status == 0 and relayed >= put and not lost and self._blocked_ms < _BLOCKED_MS
        seen = f"{did}; /livez {self.probes - self.failed_probes} of {self.probes}, {relayed} of {put} records"
        problems = [
            *(["the process ended"] if not alive else []),
            *([f"it ended with {status}"] if alive and status != 0 else []),
            *([f"blocked {self._blocked_ms:.0f} ms"] if self._blocked_ms >= _BLOCKED_MS else []),
            *([f"{self._most_in_a_row} probes failed in a row"] if self._most_in_a_row >= _FAILURES else []),
            *([f"{lost} leases lost"] if lost else []),
        ]
        counts = {"blocked_ms_worst": round(self._blocked_ms, 1), "leases_lost": lost}
        held = is_held and self._most_in_a_row < _FAILURES
        return Outcome("; ".join([seen, *problems]), held and (is_right is None or bool(is_right)), counts)

    def _probe(self) -> None:
        while not self._ends.wait(_EACH):
            self.probes += 1
            try:
                status, _ = self.address.get("/livez")
            except UnavailableError:
                status = 0
            if status == 200:
                self._failed_in_a_row = 0
                continue
            self.failed_probes += 1
            self._failed_in_a_row += 1
            self._most_in_a_row = max(self._most_in_a_row, self._failed_in_a_row)

    def _put(self) -> None:
        while not self._ends.wait(_EACH):
            self.kinesis.put(STREAM, f"key {self.put}", b"%d" % self.put)
            self.put += 1


@contextmanager
def serving(settings: Mapping[str, str] | None = None, *, workers: int = 1) -> Iterator[Service]:
    """Run the service until it is ready; end it with the block. `settings`: `{"SERVICE__TOKEN": "..."}` and so on."""
    settings = settings or {}
    fake = FakeSettings(consumer_creating=0.0, takeover_after=0.0)
    with FakeKinesisThread(settings=fake) as kinesis, TemporaryDirectory(prefix="efo-attack-") as directory:
        home = Path(directory)
        kinesis.create_stream(STREAM, SHARDS)
        port = _free_ports(1 + workers)
        environment = {
            **kinesis.environment,
            "EFO_KINESIS__STREAM": STREAM,
            "EFO_KINESIS__ENDPOINT_URL": kinesis.url,
            "EFO_KINESIS__CA_FILE": str(kinesis.ca_file),
            "EFO_LEASES__PATH": str(home / "leases.sqlite"),
            "EFO_LEASES__FAILOVER_SECONDS": "5",
            "EFO_RELAY__DIRECTORY": str(home / "relayed"),
            "EFO_SERVICE__PORT": str(port),
            **{f"EFO_{name}": value for name, value in settings.items()},
        }
        command = [sys.executable, "-m", "proofs.attacks.metered", str(home / "steps.json"), "run"]
        if workers > 1:
            command = [sys.executable, "-P", "-m", "efo_service.cli", "run", "--workers", str(workers)]
        with home.joinpath("log").open("wb") as log:
            process = subprocess.Popen(
                command, cwd=home, env={**os.environ, **environment, "PYTHONPATH": str(ROOT)}, stdout=log, stderr=log
            )
            service = Service(home, kinesis, process, port)
            service._environment = environment
            if "SERVICE__CERTIFICATE_FILE" in settings:
                service.certificate = Path(settings["SERVICE__CERTIFICATE_FILE"])
            try:
                if (
                    not until(lambda: _is_ready(service) or process.poll() is not None, 90)
                    or process.poll() is not None
                ):
                    raise RuntimeError("the service did not become ready")
                yield service
            finally:
                sys.stderr.write(home.joinpath("log").read_text(errors="replace"))
                process.kill()
                process.wait()


def _free_ports(count: int) -> int:
    """Return the first of several free ports in a row: workers have those after the supervisor's."""
    while True:
        port = free_port()
        with ExitStack() as stack, suppress(OSError, OverflowError):
            for number in range(port, port + count):
                stack.enter_context(socket.create_server(("127.0.0.1", number)))
            return port


def _is_ready(service: Service) -> bool:
    try:
        return service.address.get("/readyz")[0] == 200
    except UnavailableError:
        return False


def until(condition: Any, seconds: float) -> bool:
    """Wait until a condition holds; return whether it does."""
    deadline = time.monotonic() + seconds
    while not (holds := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return bool(holds)
