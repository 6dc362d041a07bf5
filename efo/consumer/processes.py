"""`efo.consume_in_processes`: `efo.consume` in several processes of this machine, which share the shards by leases.

Python runs one thread at a time, so one process uses one core. Each process is a worker with a consumer, connections
and leases of its own. The parent starts them, drains them, and ends all of them when one fails.

A process is controlled by a pipe. It drains when the pipe closes, which is also how it notices that its parent was
killed. By another pipe it sends the exception that ended it.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Unpack

import trio

from efo.checks import check_count, check_text, check_type, shown
from efo.consumer.consumer import Consumer
from efo.consumer.handlers.handler import BatchHandler, Flush, RecordHandler
from efo.consumer.opening import consume
from efo.errors import ConfigurationError, EfoError
from efo.events import Observer
from efo.exception_groups import collapse_groups
from efo.kinesis.client import StreamLocation
from efo.kinesis.opening import check_location
from efo.protocol.failure import OnError
from efo.settings import ConsumerSettings, OnServiceError, PositionLike
from efo.third_party_errors import reason_of

if TYPE_CHECKING:
    from efo.telemetry.spans import OtelTracing

Processes = int | Literal["auto"]
"""A number of processes; "auto": one for each core that this process may use."""

CANCEL_GRACE: Final = 10.0
"""Seconds that the processes have to save their progress and release their leases after a cancellation."""


class WorkerProcesses:
    """The running processes, made by `consume_in_processes`."""

    def __init__(self, workers: Sequence[_Worker]) -> None:
        self._workers = workers

    @property
    def pids(self) -> tuple[int, ...]:
        """The ids of the processes."""
        return tuple(worker.process.pid or 0 for worker in self._workers)

    def drain(self) -> None:
        """Let each process finish what was delivered, checkpoint and release; then `consume_in_processes` returns."""
        for worker in self._workers:
            worker.drain()


async def consume_in_processes(
    stream: str,
    handler: BatchHandler | None = None,
    *,
    application: str,
    processes: Processes = "auto",
    record_handler: RecordHandler | None = None,
    on_error: OnError | None = None,
    on_service_error: OnServiceError = "stop",
    flush: Flush | None = None,
    key_concurrency: int = 1,
    initial_position: PositionLike | None = None,
    settings: ConsumerSettings | None = None,
    leases: str | Path = "efo-leases.sqlite",
    observer: Observer | None = None,
    tracing: OtelTracing | None = None,
    task_status: trio.TaskStatus[WorkerProcesses] = trio.TASK_STATUS_IGNORED,
    **where: Unpack[StreamLocation],
) -> None:
    """Read a stream as `consume` does, in several processes, so that it uses several cores.

    The arguments are those of `consume`. They are pickled, so functions must be importable: defined in a module, not
    inside a function. Call it under `if __name__ == "__main__":`, since each process imports the main module again.
    `leases`: a path or a URL that all processes can open, so not `memory:`. `settings.subscribes_per_second` is the
    budget of all processes together. `tracing` without a provider uses the global one that the main module sets.

    It returns when all processes have drained. A process that fails drains the others, and its exception is raised. A
    cancellation does the same within 10 seconds, then kills. With `nursery.start` it returns WorkerProcesses, to drain.

    Raises ConfigurationError at the call, EfoError, and what the handler raises.
    """
    count = _count(processes)
    check_text("stream", stream, "the name or ARN of a stream")
    check_location(where)
    settings = ConsumerSettings() if settings is None else settings
    check_type("settings", settings, ConsumerSettings, "a ConsumerSettings, or None")
    settings = replace(settings, subscribes_per_second=settings.subscribes_per_second / count)
    check_type("leases", leases, (str, Path), "a path or a URL that all processes can open")
    if str(leases).lower().startswith("memory:"):
        raise ConfigurationError(f"leases={shown(leases)}: expected a path or a URL that all processes can open")
    arguments: dict[str, Any] = {
        "application": application,
        "record_handler": record_handler,
        "on_error": on_error,
        "on_service_error": on_service_error,
        "flush": flush,
        "key_concurrency": key_concurrency,
        "initial_position": initial_position,
        "settings": settings,
        "leases": leases,
        "observer": observer,
        "tracing": tracing,
        **where,
    }
    for name, value in {"stream": stream, "handler": handler, **arguments}.items():
        _check_picklable(name, value)
    workers = [_Worker.start(partial(consume, stream, handler, **arguments)) for _ in range(count)]
    task_status.started(WorkerProcesses(workers))
    await _supervise(workers)


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _count(processes: object) -> int:
    if processes == "auto":
        return usable_cores()
    check_count("processes", processes, unit=', or "auto"')
    assert isinstance(processes, int)  # noqa: S101 - it was checked
    return processes


def _check_picklable(name: str, value: object) -> None:
    try:
        pickle.dumps(value)
    except Exception as error:  # noqa: BLE001 - of an application's classes
        raise ConfigurationError(
            f"{name}={shown(value)} cannot be passed to another process: define it in a module, and not inside a "
            f"function ({reason_of(error)})"
        ) from None


# --- the parent ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Worker:
    """A process. It drains when `control` closes, and sends its exception through `result`."""

    process: BaseProcess
    control: Connection
    result: Connection

    @classmethod
    def start(cls, consuming: partial[Any]) -> _Worker:
        # Not forked: the parent runs trio, and may have threads.
        context = multiprocessing.get_context("spawn")
        drained, control = context.Pipe(duplex=False)
        result, failed = context.Pipe(duplex=False)
        process = context.Process(target=_run, args=(consuming, drained, failed), daemon=True)
        process.start()
        drained.close()
        failed.close()
        return cls(process, control, result)

    def drain(self) -> None:
        """Let the process drain."""
        self.control.close()

    async def wait(self) -> None:
        """Wait for the end of the process. Raises the exception with which it ended."""
        await trio.lowlevel.wait_readable(self.process.sentinel)
        self.process.join()
        error = self._error()
        if error is not None:
            raise error

    def _error(self) -> Exception | None:
        with suppress(EOFError):  # it sent nothing
            return _unpickled(self.result.recv_bytes())
        if self.process.exitcode == 0:
            return None
        return EfoError(
            f"process {self.process.pid} ended with {_ending(self.process.exitcode or 0)}: its output says why. Is the "
            'call of consume_in_processes under `if __name__ == "__main__":`?'
        )

    def kill(self) -> None:
        """End the process at once. Its leases expire."""
        self.process.kill()
        self.process.join()


def _ending(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


async def _supervise(workers: Sequence[_Worker]) -> None:
    """Wait for all processes. When one fails, or at a cancellation, drain all."""
    failures: list[Exception] = []
    running = [*workers]

    async def watch(worker: _Worker) -> None:
        try:
            await worker.wait()
        except Exception as error:  # noqa: BLE001 - raised when all processes have ended
            failures.append(error)
            for other in workers:
                other.drain()
        running.remove(worker)  # a process tells once why it ended

    async def watch_all() -> None:
        with collapse_groups():
            async with trio.open_nursery() as nursery:
                for worker in running:
                    nursery.start_soon(watch, worker)

    try:
        await watch_all()
    finally:
        for worker in workers:
            worker.drain()
        with trio.CancelScope(shield=True, deadline=trio.current_time() + CANCEL_GRACE):
            await watch_all()
        for worker in workers:
            worker.kill()
            worker.result.close()
    if failures:
        first, *others = failures
        for other in others:
            first.add_note(f"in another process: {type(other).__name__}: {other}")
        raise first


# --- a process -------------------------------------------------------------------------------------------------


def _run(consuming: partial[Any], drained: Connection, failed: Connection) -> None:
    """Consume in this process until `drained` closes; send the exception that ended it through `failed`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal: the parent decides
    try:
        trio.run(_consume, consuming, drained)
    except Exception as error:  # noqa: BLE001 - the parent raises it
        failed.send_bytes(_pickled(error))
        raise SystemExit(1) from None


async def _consume(consuming: partial[Any], drained: Connection) -> None:
    consumers: list[Consumer] = []
    with collapse_groups():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_drain_at_end, drained, consumers, nursery.cancel_scope)
            async with trio.open_nursery() as consuming_nursery:
                consumers.append(await consuming_nursery.start(consuming))
            nursery.cancel_scope.cancel()


async def _drain_at_end(drained: Connection, consumers: Sequence[Consumer], scope: trio.CancelScope) -> None:
    """Drain the consumer when the pipe closes; or cancel its opening."""
    await trio.lowlevel.wait_readable(drained.fileno())
    if not consumers:
        scope.cancel()
    for consumer in consumers:
        consumer.drain()


def _pickled(error: Exception) -> bytes:
    """Return an exception as bytes: its class and state, since not every constructor takes its own `args`."""
    text = f"the process of a worker ended: {reason_of(error)}"
    try:
        state = pickle.dumps((type(error), error.args, error.__dict__))
        pickle.loads(state)  # noqa: S301 - it was pickled here
    except Exception:  # noqa: BLE001 - of an application's class
        state = pickle.dumps((EfoError, (text,), {}))
    return state


def _unpickled(state: bytes) -> Exception:
    kind, arguments, attributes = pickle.loads(state)  # noqa: S301 - from a process that this one started
    error: Exception = kind.__new__(kind, *arguments)
    error.args = arguments
    error.__dict__.update(attributes)
    return error
