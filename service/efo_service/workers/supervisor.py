"""`efo run --workers N`: N processes of the service that share the leases, and this one, which looks after them.

Worker i of N has the worker id `WORKER_ID-i` and serves health, metrics and status on [service] port + i; with port 0
on a free one. The port itself is the supervisor's: /readyz is 200 while all workers are ready, /status tells of each,
and `efo healthcheck` asks there.

SIGTERM and SIGINT are passed on: the first one drains all workers, a second one cuts them short. Each is in a session
of its own, so that Ctrl-C reaches it by this way alone. One that dies is started again (`restart_policy`). And if the
supervisor itself dies, its workers see the end of their stdin and drain.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import structlog
import trio
from prometheus_client import CollectorRegistry, Counter

from efo.exception_groups import collapse_groups
from efo_service.config.settings import ServiceSettings, Settings
from efo_service.drain import SIGNALS
from efo_service.errors import UnavailableError
from efo_service.exit_codes import Exit
from efo_service.version import VERSION
from efo_service.web.app import create_app
from efo_service.web.probe import ask
from efo_service.web.server import serve
from efo_service.workers.restart_policy import Restarts, is_final, worst

SUPERVISED: Final = "EFO_SUPERVISED"
"""Set in a worker's environment: its stdin ends when its supervisor does."""
_PROBE_SECONDS: Final = 1.0
_GRACE_SECONDS: Final = 15.0
"""Beyond [service] drain_seconds: for releasing leases and flushing telemetry. Then a worker is killed."""


@dataclass(slots=True)
class Worker:
    """One worker. `code`: what its last process returned, None before the first end."""

    worker_id: str
    port: int = 0
    process: trio.Process | None = None
    code: int | None = None
    is_ready: bool = False
    restarts: Restarts = field(default_factory=Restarts)

    @property
    def is_running(self) -> bool:
        """Whether it has a process."""
        return self.process is not None and self.process.returncode is None

    def signal(self, number: int) -> None:
        """Send it a signal, if it runs."""
        if self.process is not None and self.is_running:
            self.process.send_signal(number)


class Supervisor:
    """Runs `count` workers, each by `command`."""

    def __init__(self, settings: Settings, command: Sequence[str], count: int) -> None:
        self.workers = [Worker(f"{settings.leases.worker_id}-{number}") for number in range(1, count + 1)]
        self._service: ServiceSettings = settings.service
        self._command = command
        self._stopping = trio.Event()
        self._has_been_ready = False
        self._log = structlog.get_logger()
        self._registry = CollectorRegistry()
        self._restarted = Counter(
            "efo_worker_restarts", "Workers that ended and were started again.", ["worker"], registry=self._registry
        )

    async def run(self, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> Exit:
        """Run until a signal, or an end that ends all; return the exit code. `task_status` gets the URL.

        Raises UnavailableError if the supervisor's own port cannot be had.
        """
        with collapse_groups():
            async with trio.open_nursery() as outer:
                await outer.start(self._pass_signals_on)
                app = create_app(self, self._registry, self.status)
                url = await outer.start(serve, app, self._service.host, self._service.port)
                self._log.info("supervising", version=VERSION, url=url, workers=len(self.workers))
                task_status.started(url)
                outer.start_soon(self._probe_forever)
                outer.start_soon(self._kill_what_stays)
                async with trio.open_nursery() as nursery:
                    for number, worker in enumerate(self.workers, 1):
                        nursery.start_soon(self._keep, worker, int(url.rpartition(":")[2]) + number)
                outer.cancel_scope.cancel()
        code = worst(worker.code for worker in self.workers if worker.code is not None)
        self._log.info("supervised", exit_code=int(code))
        return code

    def problems(self) -> tuple[str, ...]:
        """Return why not all workers are ready; nothing when they are."""
        return tuple(self._problems())

    def status(self) -> dict[str, Any]:
        """Return the status as values that JSON knows."""
        workers = [
            {
                "worker_id": worker.worker_id,
                "port": worker.port,
                "pid": worker.process.pid if worker.process is not None and worker.is_running else None,
                "ready": worker.is_ready,
                "exit_code": worker.code,
            }
            for worker in self.workers
        ]
        return {"version": VERSION, "draining": self._stopping.is_set(), "workers": workers}

    def _problems(self) -> Iterator[str]:
        if self._stopping.is_set():
            yield "draining"
        for worker in self.workers:
            if not worker.is_ready:
                yield f"worker {worker.worker_id} is not {'ready' if worker.is_running else 'running'}"

    # --- one worker ----------------------------------------------------------------------------------------------

    async def _keep(self, worker: Worker, port: int) -> None:
        """Run a worker again and again, until all shall stop."""
        while not self._stopping.is_set():
            started = trio.current_time()
            worker.port = port if self._service.port else _free_port()
            code = await self._run_once(worker)
            if self._stopping.is_set():
                return
            if is_final(code, has_been_ready=self._has_been_ready):
                self._log.error("worker_ended", worker=worker.worker_id, exit_code=code)
                self._stop()
                return
            pause = worker.restarts.pause(trio.current_time() - started)
            self._log.warning("worker_ended", worker=worker.worker_id, exit_code=code, restart_seconds=pause)
            self._restarted.labels(worker.worker_id).inc()
            with trio.move_on_after(pause):
                await self._stopping.wait()

    async def _run_once(self, worker: Worker) -> int:
        process = worker.process = await trio.lowlevel.open_process(
            self._command,
            stdin=subprocess.PIPE,
            env={
                **os.environ,
                "EFO_LEASES__WORKER_ID": worker.worker_id,
                "EFO_SERVICE__PORT": str(worker.port),
                SUPERVISED: "1",
            },
            start_new_session=True,
        )
        self._log.info("worker_started", worker=worker.worker_id, pid=process.pid, port=worker.port)
        try:
            if self._stopping.is_set():  # it came while this one was being started
                process.terminate()
            worker.code = await process.wait()
        finally:
            worker.is_ready = False
            with trio.CancelScope(shield=True):  # bounded: the kernel ends it
                if process.returncode is None:
                    process.kill()
                    await process.wait()
                if process.stdin is not None:
                    await process.stdin.aclose()
        return worker.code

    # --- all of them ---------------------------------------------------------------------------------------------

    async def _pass_signals_on(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        with trio.open_signal_receiver(*SIGNALS) as signals:
            task_status.started()
            async for number in signals:
                self._log.info("draining", signal=signal.Signals(number).name, seconds=self._service.drain_seconds)
                self._stop()

    def _stop(self) -> None:
        """Ask all workers to drain, or, asked again, to be quick."""
        self._stopping.set()
        for worker in self.workers:
            worker.signal(signal.SIGTERM)

    async def _kill_what_stays(self) -> None:
        await self._stopping.wait()
        await trio.sleep(self._service.drain_seconds + _GRACE_SECONDS)
        for worker in self.workers:
            if worker.is_running:
                self._log.error("worker_killed", worker=worker.worker_id)
                worker.signal(signal.SIGKILL)

    async def _probe_forever(self) -> None:
        while True:
            async with trio.open_nursery() as nursery:
                for worker in self.workers:
                    if worker.is_running:
                        nursery.start_soon(self._probe, worker)
            await trio.sleep(_PROBE_SECONDS)

    async def _probe(self, worker: Worker) -> None:
        process = worker.process
        try:
            status, _ = await trio.to_thread.run_sync(
                ask, self._service.host, worker.port, "/readyz", abandon_on_cancel=True
            )
        except UnavailableError:
            status = 0
        worker.is_ready = status == 200 and worker.process is process and worker.is_running  # noqa: PLR2004 - HTTP's
        self._has_been_ready |= worker.is_ready


def _free_port() -> int:
    """Return a port that nobody has right now. A worker that finds it taken after all ends, and is given another."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def drain_when_orphaned() -> None:
    """Let this worker drain when its supervisor is gone. Blocks: call it in a thread."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
