"""The relay of one query, in a thread of the process that plans it: the code of `efo run`, without HTTP and signals.

The thread ends with `stop`, with the process, or when the process has lost its parent, which is Spark's driver.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import trio
from opentelemetry.metrics import NoOpMeterProvider

from efo.consumer.worker_id import worker_slot
from efo.errors import EfoError
from efo.exception_groups import collapse_groups
from efo_service.config.settings import Settings
from efo_service.spark_kinesis.catch_up import CatchUp
from efo_service.spark_kinesis.probing import Probe
from efo_service.streams.parts import PARTS, Parts
from efo_service.streams.run import StreamRun
from efo_service.telemetry import logs
from efo_service.telemetry.sdk import Telemetry, telemetry

_PARENT_INTERVAL: Final = 1.0
"""Seconds between two looks for the parent process."""
_SPARE: Final = 5.0
"""Seconds after the drain until the thread must have ended."""


class CatchingUp:
    """Waits in the relay's thread until the log holds what was in the stream at a time.

    `bound`: no record of the stream arrived later, in seconds since the epoch; None while that is not known. `done`:
    set when the log holds all of them.
    """

    def __init__(self) -> None:
        self.bound: float | None = None
        self.done = threading.Event()

    def started(self, catch_up: CatchUp) -> None:
        """Take the time."""
        self.bound = catch_up.bound


class RelayThread:
    """Relays a stream into a log until `stop`.

    `slots`: a directory for the ids of workers: a planner that replaces a killed one on this host takes over its id,
    and with it its leases. None: one below the system's directory for temporary files.
    """

    def __init__(self, settings: Settings, slots: Path | None, parts: Parts = PARTS) -> None:
        self._settings = settings
        self._slots = slots
        self._parts = parts
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._ready = threading.Event()
        self._ended = threading.Event()
        self._parent = os.getppid()
        self._run: StreamRun | None = None
        self._nursery: trio.Nursery | None = None
        self._token: trio.lowlevel.TrioToken | None = None

    def start(self) -> None:
        """Start the thread, unless it was started. Raises what made it fail at once."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._main, name="efo-relay", daemon=True)
            self._thread.start()
            self._ready.wait()

    def check(self) -> None:
        """Raise what has ended the relay, if it has ended: EfoError or a defect."""
        if self._failure is not None:
            raise self._failure
        if self._ended.is_set():
            raise EfoError("the relay of this query has ended: restart the query")

    def catch_up(self, until: float | None = None) -> CatchingUp:
        """Begin to wait until the log holds what was in the stream. `until`: see `Probe.wait`."""
        catching_up = CatchingUp()
        self.check()
        if self._token is None or self._nursery is None:
            raise RuntimeError("the relay was not started")
        try:
            trio.from_thread.run_sync(
                self._nursery.start_soon, self._catch_up, until, catching_up, trio_token=self._token
            )
        except trio.RunFinishedError:
            self._ended.wait()
            self.check()
        return catching_up

    def stop(self) -> None:
        """Finish what is being committed, release the leases, and end the thread. It may be called at any time."""
        if self._thread is None or self._token is None:
            return
        seconds = self._settings.service.drain_seconds
        try:
            if self._run is not None:
                trio.from_thread.run_sync(self._run.drain, seconds, trio_token=self._token)
        except (trio.RunFinishedError, trio.Cancelled):
            pass
        self._thread.join(seconds + _SPARE)

    def _main(self) -> None:
        try:
            logs.configure_lines(self._settings.service.log_level, sys.stderr)
            with ExitStack() as stack:
                names = self._settings.consumer.application, self._settings.kinesis.stream_name
                worker_id = stack.enter_context(worker_slot(*names, self._slots))
                sdk = stack.enter_context(telemetry(worker_id))
                leases = self._settings.leases.model_copy(update={"worker_id": worker_id})
                settings = self._settings.model_copy(update={"leases": leases})
                trio.run(partial(self._relay, settings, sdk))
        except BaseException as error:  # noqa: BLE001 - raised in the planner's thread
            self._failure = error
        finally:
            self._ended.set()
            self._ready.set()

    async def _relay(self, settings: Settings, sdk: Telemetry) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._run = StreamRun(settings.topic, settings, telemetry=sdk, parts=self._parts)
        with collapse_groups():
            async with trio.open_nursery() as self._nursery:
                self._nursery.start_soon(self._watch_parent, self._run)
                self._ready.set()
                await self._run.run()
                self._nursery.cancel_scope.cancel()

    async def _watch_parent(self, run: StreamRun) -> None:
        """Drain when the driver is gone: a planner that waits for its socket would notice much later."""
        while os.getppid() == self._parent:  # noqa: ASYNC110 - nothing reports it
            await trio.sleep(_PARENT_INTERVAL)
        run.drain(self._settings.service.drain_seconds)

    async def _catch_up(self, until: float | None, catching_up: CatchingUp) -> None:
        settings = self._settings
        async with (
            self._parts.open_kinesis(settings.kinesis) as kinesis,
            self._parts.open_leases(settings, NoOpMeterProvider()) as leases,
        ):
            probe = Probe(kinesis, leases, settings.consumer.position, settings.consumer.aggregates)
            await probe.wait(until, catching_up.started)
        catching_up.done.set()
