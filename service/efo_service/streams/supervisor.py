"""Keeps the configured streams running: starts, restarts, changes and drains them, each in a task of its own.

Without [streams] there is one, and its failure ends the process, whose orchestrator starts it again. With [streams], a
failure is that of one stream: it is reported, and the stream is started again with a growing delay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import structlog
import trio

from efo.errors import EfoError, StreamRecreatedError, error_type_of
from efo.exception_groups import collapse_groups
from efo.third_party_errors import reason_of
from efo_service.config.settings import Settings
from efo_service.config.streams import Configuration, clashes_of
from efo_service.restart_backoff import RestartBackoff
from efo_service.streams.changes import Changes
from efo_service.web.app import ReportsReadiness
from efo_service.web.live.actions import Action
from efo_service.web.live.source import StreamView
from efo_service.web.status import ReportsProblems


class ReportsState(ReportsReadiness, ReportsProblems, Protocol):
    """The part of efo_service.web.health.Health that describes a stream."""


class RunningStream(Protocol):
    """The part of efo_service.streams.run.StreamRun that is used here."""

    settings: Settings
    is_stopping: bool
    is_retried: bool

    @property
    def reading(self) -> trio.Event:
        """Set when its shards are listed, and its leases are of this stream; only if it `is_retried`."""
        ...

    @property
    def health(self) -> ReportsState:
        """What is wrong with the stream."""
        ...

    def status(self) -> dict[str, Any]:
        """Return the state of the stream."""
        ...

    def view(self) -> StreamView:
        """Return what the page shows of the stream."""
        ...

    async def perform(self, action: Action) -> None:
        """Perform an action on one of the shards. Raises ActionRefusedError."""
        ...

    def drain(self, seconds: float | None = None) -> None:
        """Ask it to finish, within `seconds`."""
        ...

    async def run(self) -> bool:
        """Run until it is drained; return whether the drain was complete."""
        ...


class Stream:
    """One stream of the configuration. `wanted`: None once it is removed. `run`: None while it does not run.

    `failure`: why it does not run, or is not known to read; None before its first run, and while it reads.
    `refused_since`: when its leases or its log were first refused as those of another stream (trio's clock), None while
    they are not. `refusals`: how often since then.
    """

    def __init__(self, name: str, wanted: Settings) -> None:
        self.name = name
        self.wanted: Settings | None = wanted
        self.run: RunningStream | None = None
        self.failure: str | None = None
        self.woken = trio.Event()
        self.refused_since: float | None = None
        self.refusals = 0


class StreamSupervisor:
    """Runs the streams of `configuration`. `make`: makes a run of a stream, from its name and its settings."""

    def __init__(self, configuration: Configuration, make: Callable[[str, Settings], RunningStream]) -> None:
        self.configuration = configuration
        self.is_draining = False
        self._make = make
        self._log = structlog.get_logger()
        self._nursery: trio.Nursery | None = None
        self._run_ended = trio.Event()
        self._failures: list[Exception] = []
        self._streams = {name: Stream(name, settings) for name, settings in configuration.streams.items()}

    def configured(self) -> Iterator[Stream]:
        """Yield the streams of the configuration, in its order, without those that are being removed."""
        streams = self._streams  # read by exporters' threads
        return (streams[name] for name in self.configuration.streams if name in streams)

    async def run(self) -> None:
        """Run until `drain`.

        Without [streams], raises what ends the stream. With them, raises what failed during the drain, at its end.
        """
        async with trio.open_nursery() as self._nursery:
            for stream in self._streams.values():
                self._nursery.start_soon(self._keep, stream)
        if self._failures:
            raise ExceptionGroup("streams failed while they were drained", self._failures)

    def apply(self, changes: Changes) -> None:
        """Start what is new, drain what is gone, restart what has changed. Streams that have failed start at once."""
        if self.is_draining:
            return
        self.configuration = wanted = changes.wanted
        for name, stream in self._streams.items():
            stream.woken.set()
            if name not in changes.unchanged:
                stream.wanted = wanted.streams.get(name)
                if stream.run is not None:
                    stream.run.drain(wanted.service.drain_seconds)
        for name, settings in wanted.streams.items():
            if name not in self._streams:
                stream = Stream(name, settings)
                self._streams = {**self._streams, name: stream}
                if self._nursery is not None:  # else `run` starts it
                    self._nursery.start_soon(self._keep, stream)
        self._notify()

    def start_draining(self) -> None:
        """Report every stream as not ready, and start none any more."""
        self.is_draining = True

    def drain(self) -> None:
        """Ask all streams to finish; then `run` returns. A change that is being made is not continued."""
        self.start_draining()
        for stream in self._streams.values():
            stream.woken.set()
            if stream.run is not None:
                stream.run.drain()
        self._notify()

    async def _keep(self, stream: Stream) -> None:
        structlog.contextvars.bind_contextvars(stream=stream.name)
        backoff = RestartBackoff()
        try:
            while await self._may_start(stream) and (settings := stream.wanted) is not None:
                started = trio.current_time()
                try:
                    was_drained = await self._run(stream, settings)
                except Exception as error:
                    if not self.configuration.has_tables:
                        raise
                    if self.is_draining or stream.wanted is not settings:
                        self._note(stream, error, None)
                        continue
                    delay = backoff.next_delay(trio.current_time() - started)
                    self._note(stream, error, delay)
                    stream.woken = trio.Event()
                    with trio.move_on_after(delay):
                        await stream.woken.wait()
                else:
                    if not (was_drained or self.configuration.has_tables):
                        return
        finally:
            self._streams = {name: other for name, other in self._streams.items() if other is not stream}

    async def _run(self, stream: Stream, settings: Settings) -> bool:
        """Run the stream once; return whether it ended because it was to be drained."""
        run = stream.run = self._make(stream.name, settings)
        run.is_retried = stream.refused_since is not None
        if not run.is_retried:
            stream.failure = None
        try:
            with collapse_groups():
                async with trio.open_nursery() as nursery:
                    if run.is_retried:
                        nursery.start_soon(self._note_restored, stream, run)
                    if not await run.run():
                        self._log.warning("drain_cut_short", seconds=settings.service.drain_seconds)
                    nursery.cancel_scope.cancel()
        finally:
            stream.run = None
            self._notify()
        return run.is_stopping

    async def _may_start(self, stream: Stream) -> bool:
        """Wait until nothing that still drains uses what the stream uses. Return whether it is still to be started."""
        while not self.is_draining and stream.wanted is not None:
            if not any(self._blockers(stream.wanted)):
                return True
            await self._run_ended.wait()
        return False

    def _blockers(self, wanted: Settings) -> Iterator[str]:
        runs = [other.run for other in self._streams.values() if other.run is not None]
        return (clash for run in runs for clash in clashes_of(run.settings, wanted))

    def _notify(self) -> None:
        self._run_ended.set()
        self._run_ended = trio.Event()

    async def _note_restored(self, stream: Stream, run: RunningStream) -> None:
        """Wait until a stream is read whose leases or log were refused, and report it."""
        await run.reading.wait()
        since, failures = stream.refused_since, stream.refusals
        stream.failure, stream.refused_since, stream.refusals = None, None, 0
        seconds = round(trio.current_time() - (since or 0.0), 3)
        self._log.warning("stream_restored", seconds=seconds, failures=failures)

    def _note(self, stream: Stream, error: Exception, delay: float | None) -> None:
        """Report a failure. `delay`: seconds until the stream starts again; None: it was to end anyway.

        What waits for an operator, since the stream was created again, has one line until it is over.
        """
        message = reason_of(error)
        if delay is None:
            self._failures += [error] * self.is_draining
        else:
            stream.failure = f"it failed, and starts again within {delay:g} s: {message}"
        is_refused = isinstance(error, StreamRecreatedError)
        if is_refused and stream.refused_since is not None:
            stream.refusals += 1
            self._log.debug("stream_still_refused", message=message, restart_seconds=delay)
            return
        stream.refused_since, stream.refusals = (trio.current_time(), 1) if is_refused else (None, 0)
        self._log.error(
            "stream_failed",
            error_type=error_type_of(error),
            message=message,
            restart_seconds=delay,
            exc_info=not isinstance(error, EfoError),
        )
