"""The programs of the proof: what must be installed, the Collector that is built, and processes with their trees."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import trio

from efo_service.spark.errors import JavaMissingError
from efo_service.spark.java import find_java
from proofs.go_build import build
from proofs.paths import ROOT, TOOLS
from proofs.peers.process_tree import descendants

COLLECTOR: Final = TOOLS / "otelcol" / "otelcol"
_SOURCE: Final = ROOT / "proofs" / "dashboards" / "collector"
_LOG_LINES: Final = 15
_NOT_INHERITED: Final = ("EFO_", "AWS_", "OTEL_")
_ADVICE: Final = {
    "prometheus": "install Prometheus (Debian: apt-get install prometheus)",
    "go": "install Go 1.25 or newer, which builds the Collector (https://go.dev/dl)",
}


class ProgramError(Exception):
    """A program could not be built or started, or ended early. The message has the end of its output."""


def missing() -> list[str]:
    """Return what to install, one sentence for each program that is missing."""
    found = [advice for name, advice in _ADVICE.items() if shutil.which(name) is None]
    try:
        find_java()
    except JavaMissingError as error:
        found.append(str(error))
    if os.geteuid() != 0:
        found.append("run it as root: each log has a disk of its own, which is mounted")
    return found


def build_collector() -> None:
    """Build the Collector, unless its source is older. Raises GoBuildError."""
    build(_SOURCE, COLLECTOR)


class Program:
    """A process and its descendants. Its output goes to NAME.log in its directory.

    `pipe`: its stdout goes to the proof instead. `output`: its stdout goes to this file instead.

    `environment` is added to the caller's, without the variables that configure efo, AWS or telemetry.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        directory: Path,
        environment: Mapping[str, str] | None = None,
        *,
        pipe: bool = False,
        output: Path | None = None,
    ) -> None:
        self.name = name
        self._command = command
        self._directory = directory
        self._log = directory / f"{name}.log"
        own = {name: value for name, value in os.environ.items() if not name.upper().startswith(_NOT_INHERITED)}
        self._environment = {**own, **(environment or {})}
        self._pipe = pipe
        self._output = output
        self._process: trio.Process | None = None

    @property
    def process(self) -> trio.Process:
        """The process. It was started."""
        if self._process is None:
            raise AssertionError(f"{self.name} was not started")
        return self._process

    async def start(self) -> None:
        """Start the process."""
        self._directory.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log, (self._output or self._log).open("ab") as output:
            self._process = await trio.lowlevel.open_process(
                self._command,
                cwd=self._directory,
                env=self._environment,
                stdin=subprocess.PIPE,  # a worker process drains when its stdin ends
                stdout=subprocess.PIPE if self._pipe else output,
                stderr=log,
                start_new_session=True,
            )

    def check(self) -> None:
        """Raise ProgramError if the process has ended."""
        if (code := self.process.poll()) is not None:
            lines = self._log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
            raise ProgramError("\n".join([f"{self.name} ended with {code}:", *lines]))

    def signal(self, number: int, *pids: int) -> None:
        """Send a signal to some of its processes, by default to all."""
        for pid in pids or tuple(self.pids()):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def pids(self, program: str = "") -> Iterator[int]:
        """Yield the process and its descendants. `program`: only those of which this is the executable's name."""
        for pid in descendants(self.process.pid):
            with suppress(OSError):
                if program in ("", Path(f"/proc/{pid}/exe").readlink().name):
                    yield pid

    async def end(self) -> None:
        """Kill all of its processes, also those that are stopped."""
        if self._process is not None:
            self.signal(signal.SIGKILL)
            if self._process.poll() is None:
                self._process.kill()
            await self._process.wait()


def collector(directory: Path, *, metrics: int, http: int, grpc: int) -> Program:
    """Return a Collector with the configuration of config/ on these ports. `metrics`: where Prometheus scrapes."""
    configuration = ROOT / "config" / "otel-collector" / "config.yaml"
    environment = {
        "EFO_OTLP_HTTP": f"127.0.0.1:{http}",
        "EFO_OTLP_GRPC": f"127.0.0.1:{grpc}",
        "EFO_COLLECTOR_METRICS": f"127.0.0.1:{metrics}",
        "EFO_METRIC_EXPIRATION": "10s",
    }
    return Program("collector", [str(COLLECTOR), "--config", str(configuration)], directory, environment)
