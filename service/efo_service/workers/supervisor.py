"""`efo run --workers N`: N processes of the service that share the leases, and this process, which supervises them.

Worker i of N has the worker id `WORKER_ID-i`. It serves health, metrics and status on [service] port + i; if the port
is 0, on a free port. The port itself is the supervisor's: /readyz is 200 while all workers are ready, /status and
/metrics are those of all workers together, and `efo healthcheck` connects to it.

The supervisor forwards SIGTERM and SIGINT: the first signal drains all workers, a second one cuts the drain short. It
forwards SIGHUP, at which each worker reads the configuration again.
Each worker has its own session, so that Ctrl-C reaches it only through the supervisor. A worker that ends is restarted
(`stops_all`). If the supervisor itself ends, its workers see the end of their stdin and drain.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import msgspec
import structlog
import trio
from prometheus_client import CollectorRegistry, Counter

from efo.consumer.worker_id import worker_slot
from efo.errors import error_type_of
from efo.exception_groups import collapse_groups
from efo.third_party_errors import reason_of
from efo_service.app import guard_of, take_tokens
from efo_service.config.settings import ServiceSettings
from efo_service.config.streams import TABLE, Configuration
from efo_service.drain import SIGNALS
from efo_service.errors import UnavailableError
from efo_service.exit_codes import Exit, most_severe
from efo_service.restart_backoff import RestartBackoff
from efo_service.streams.reload import SECRETS_EVERY
from efo_service.streams.run import names
from efo_service.telemetry.logs import LevelName, set_level
from efo_service.version import VERSION, commit
from efo_service.web.app import create_app
from efo_service.web.live.actions import Action
from efo_service.web.live.source import Snapshot
from efo_service.web.page_routes import Page
from efo_service.web.process_problems import ProcessProblems
from efo_service.web.renewal import version_of
from efo_service.web.server import serve
from efo_service.workers.endpoints import WorkerEndpoints, merge_status

SUPERVISED: Final = "EFO_SUPERVISED"
"""Environment variable of a worker: its stdin ends when its supervisor ends."""
_PROBE_SECONDS: Final = 1.0
_GRACE_SECONDS: Final = 15.0
"""Time in addition to [service] drain_seconds to release leases and flush telemetry. Then a worker is killed."""


@dataclass(slots=True)
class Worker:
    """One worker. `exit_code`: return code of its last process that ended, None if none has.

    `is_answering`: its process serves its endpoints, and so handles signals. `reload_is_due`: it is to reload then.
    """

    worker_id: str
    port: int = 0
    process: trio.Process | None = None
    exit_code: int | None = None
    is_ready: bool = False
    is_answering: bool = False
    reload_is_due: bool = False
    backoff: RestartBackoff = field(default_factory=RestartBackoff)

    @property
    def is_running(self) -> bool:
        """Whether its process runs."""
        return self.process is not None and self.process.returncode is None

    def signal(self, number: int) -> None:
        """Send the process a signal, if it runs."""
        if self.process is not None and self.is_running:
            self.process.send_signal(number)


class Supervisor:
    """Runs `count` workers, each by `command`. `forwards_reloads`: whether SIGHUP reaches them.

    `load`: returns the configuration as it is now, for what changes without a restart: tokens and the level of the log.
    """

    def __init__(
        self,
        configuration: Configuration,
        command: Sequence[str],
        count: int,
        *,
        forwards_reloads: bool = False,
        load: Callable[[], Configuration] | None = None,
    ) -> None:
        self._load = load
        self._secrets = configuration.secret_files
        self._guard = guard_of(configuration.service)
        self.workers = [Worker(f"{configuration.worker_id}-{number}") for number in range(1, count + 1)]
        self._service: ServiceSettings = configuration.service
        self._names = {} if configuration.has_tables else names(configuration.first)
        self._command = command
        self._forwards_reloads = forwards_reloads
        self._problems = ProcessProblems()
        self._stopping = trio.Event()
        self._has_been_ready = False
        self._log = structlog.get_logger()
        self._registry = CollectorRegistry()
        self._endpoints = WorkerEndpoints(self._service.address, self._ports)
        self._registry.register(self._endpoints)
        self._restarts = Counter(
            "efo_worker_restarts", "Restarts of workers that ended.", ["worker"], registry=self._registry
        )

    async def run(self, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> Exit:
        """Run until a signal, or until the end of a worker stops all; return the exit code. `task_status` gets the URL.

        Raises UnavailableError if the supervisor's own port cannot be bound.
        """
        with collapse_groups():
            async with trio.open_nursery() as outer:
                await outer.start(self._forward_signals)
                if self._forwards_reloads:
                    await outer.start(self._forward_reloads)
                outer.start_soon(self._watch_secrets)
                page = Page(self._snapshot, self._act, self._set_level)
                app = create_app(self, self._registry, self.status, page, self._guard)
                url = await outer.start(
                    partial(
                        serve,
                        app,
                        self._service.host,
                        self._service.port,
                        tls=self._service.tls,
                        problems=self._problems,
                    )
                )
                built = {"version": VERSION, "commit": commit()}
                self._log.info("supervisor_started", **built, url=url, workers=len(self.workers))
                task_status.started(url)
                outer.start_soon(self._probe_forever)
                outer.start_soon(self._kill_after_grace)
                async with trio.open_nursery() as nursery:
                    for number, worker in enumerate(self.workers, 1):
                        nursery.start_soon(self._run_worker, worker, int(url.rpartition(":")[2]) + number)
                outer.cancel_scope.cancel()
        code = combined_exit_code(worker.exit_code for worker in self.workers if worker.exit_code is not None)
        self._log.info("supervisor_stopped", exit_code=int(code))
        return code

    def obstacles(self) -> tuple[str, ...]:
        """Return why the workers are not all ready; empty if they are."""
        return tuple(self._obstacles())

    async def status(self) -> dict[str, Any]:
        """Return the status of all workers, as JSON values: that of each process, and together what they read."""
        together = merge_status(await trio.to_thread.run_sync(self._endpoints.statuses, abandon_on_cancel=True))
        workers = [
            {
                "worker_id": worker.worker_id,
                "port": worker.port,
                "pid": worker.process.pid if worker.process is not None and worker.is_running else None,
                "ready": worker.is_ready,
                "exit_code": worker.exit_code,
            }
            for worker in self.workers
        ]
        problems = [*self._obstacles(), *self._problems.texts(), *together.pop("problems")]
        errors = [*msgspec.to_builtins(self._problems.last_errors()), *together.pop("last_errors")]
        own = {"draining": self._stopping.is_set(), "problems": problems, "last_errors": errors, "workers": workers}
        return {"version": VERSION, **self._names, **own, **together}

    async def _snapshot(self) -> Snapshot:
        snapshot = await trio.to_thread.run_sync(self._endpoints.snapshot, abandon_on_cancel=True)
        return snapshot.with_problems(self._problems.texts())

    async def _act(self, action: Action) -> None:
        await trio.to_thread.run_sync(self._endpoints.act, action)

    async def _set_level(self, level: LevelName) -> None:
        await trio.to_thread.run_sync(self._endpoints.set_level, level)
        set_level(level)

    async def _take_settings(self) -> None:
        """Take what changes without a restart. What is refused, the workers tell."""
        if self._load is None:
            return
        try:
            found = await trio.to_thread.run_sync(self._load)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with the file, the workers go on
            self._log.error("reload_failed", error_type=error_type_of(error), message=reason_of(error))
            return
        self._secrets = found.secret_files
        tokens = {"token": found.service.token, "read_token": found.service.read_token}
        self._service = self._service.model_copy(update=tokens)
        take_tokens(self._guard, self._service)
        self._endpoints.use(self._service.address)
        set_level(found.service.log_level)

    async def _watch_secrets(self) -> None:
        """Take a secret whose file changes. The workers look at it themselves."""
        known = {path: version_of(path) for path in self._secrets}
        while True:
            await trio.sleep(SECRETS_EVERY)
            found = {path: version_of(path) for path in self._secrets}
            if found != known:
                await self._take_settings()
            known = found

    def _ports(self) -> dict[str, int | None]:
        return {worker.worker_id: worker.port if worker.is_running else None for worker in self.workers}

    def _obstacles(self) -> Iterator[str]:
        if self._stopping.is_set():
            yield "draining"
        for worker in self.workers:
            if not worker.is_ready:
                yield f"worker {worker.worker_id} is not {'ready' if worker.is_running else 'running'}"

    # --- one worker ----------------------------------------------------------------------------------------------

    async def _run_worker(self, worker: Worker, port: int) -> None:
        """Run a worker, and restart it when it ends, until all workers stop."""
        while not self._stopping.is_set():
            started = trio.current_time()
            worker.port = port if self._service.port else _free_port()
            code = await self._run_process(worker)
            if self._stopping.is_set():
                return
            if stops_all(code, has_been_ready=self._has_been_ready):
                self._log.error("worker_ended", worker=worker.worker_id, exit_code=code)
                self._stop()
                return
            delay = worker.backoff.next_delay(trio.current_time() - started)
            self._log.warning("worker_ended", worker=worker.worker_id, exit_code=code, restart_seconds=delay)
            self._restarts.labels(worker.worker_id).inc()
            with trio.move_on_after(delay):
                await self._stopping.wait()

    async def _run_process(self, worker: Worker) -> int:
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
            if self._stopping.is_set():  # the signal arrived while this process was being started
                process.terminate()
            worker.exit_code = await process.wait()
        finally:
            worker.is_ready = worker.is_answering = False
            with trio.CancelScope(shield=True):  # bounded: a killed process ends
                if process.returncode is None:
                    process.kill()
                    await process.wait()
                if process.stdin is not None:
                    await process.stdin.aclose()
        return worker.exit_code

    # --- all workers --------------------------------------------------------------------------------------------

    async def _forward_signals(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        with trio.open_signal_receiver(*SIGNALS) as signals:
            task_status.started()
            async for number in signals:
                self._log.info("draining", signal=signal.Signals(number).name, seconds=self._service.drain_seconds)
                self._stop()

    async def _forward_reloads(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        with trio.open_signal_receiver(signal.SIGHUP) as signals:
            task_status.started()
            async for _ in signals:
                self._log.info("reloading", workers=len(self.workers))
                await self._take_settings()
                for worker in self.workers:
                    worker.reload_is_due = True
                    self._reload_if_answering(worker)

    def _reload_if_answering(self, worker: Worker) -> None:
        """Forward SIGHUP to a worker that handles it: it would end one that is still starting."""
        if worker.reload_is_due and worker.is_answering:
            worker.reload_is_due = False
            worker.signal(signal.SIGHUP)

    def _stop(self) -> None:
        """Ask all workers to drain. A second call cuts their drain short."""
        self._stopping.set()
        for worker in self.workers:
            worker.signal(signal.SIGTERM)

    async def _kill_after_grace(self) -> None:
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
                self._service.address._replace(port=worker.port).get, "/readyz", abandon_on_cancel=True
            )
        except UnavailableError:
            status = 0
        worker.is_answering = status != 0 and worker.process is process and worker.is_running
        worker.is_ready = status == 200 and worker.is_answering  # noqa: PLR2004 - HTTP status
        self._reload_if_answering(worker)
        self._has_been_ready |= worker.is_ready


def _free_port() -> int:
    """Return a port that is free now. If it is taken when the worker binds it, the restarted worker gets another."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def drain_when_orphaned() -> None:
    """Drain this worker when its supervisor has ended. Blocks: call it in a thread."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


_PERMANENT: Final = frozenset({Exit.USAGE, Exit.CONFIGURATION})


def stops_all(code: int, *, has_been_ready: bool) -> bool:
    """Return whether the end of a worker with exit code `code` stops all workers.

    A restart does not correct a wrong configuration. And until one worker was ready, a restart is unlikely to help:
    the failure is reported to the caller of efo instead.
    """
    return code in _PERMANENT or not has_been_ready


def combined_exit_code(codes: Iterable[int]) -> Exit:
    """Return the exit code that represents those of all workers."""
    return most_severe(_exit_of(code) for code in codes)


def _exit_of(code: int) -> Exit:
    """Return the exit code for the return code of a process.

    SIGTERM kills only a worker that does not handle signals yet, and so has begun nothing.
    """
    if code == -signal.SIGTERM:
        return Exit.OK
    return Exit(code) if code in set(Exit) else Exit.INTERNAL


@contextmanager
def with_worker_id(configuration: Configuration) -> Iterator[Configuration]:
    """Yield the configuration with a worker id that no other process on this host has, for as long as this one runs.

    The file that keeps it is in the directory of [leases] path, so that a container that keeps this directory keeps its
    worker id, and gets its leases back at once after a restart.
    """
    if configuration.worker_id is not None:
        yield configuration
        return
    first = configuration.first
    # The id of a process with several streams does not depend on which they are: they change while it runs.
    scope = (first.consumer.application, first.kinesis.stream_name) if not configuration.has_tables else (TABLE, "")
    with worker_slot(*scope, first.leases.path.parent) as worker_id:
        yield configuration.in_process(configuration.service, worker_id)
