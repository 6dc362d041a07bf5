"""What /readyz, /status and the metric of readiness tell of all streams.

Without [streams], the form is that of the stream alone. With them, each problem begins with the name of its stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import trio

from efo_service.streams.run import identity
from efo_service.streams.supervisor import ReportsState, Stream, StreamSupervisor
from efo_service.version import VERSION
from efo_service.web.health import WorkerReadiness
from efo_service.web.live.actions import Action, ActionRefusedError
from efo_service.web.live.source import Snapshot, StreamSource, StreamView
from efo_service.web.problems import LastError
from efo_service.web.process_problems import ProcessProblems
from efo_service.web.status import Status


class StreamsReport:
    """The state of the streams of a supervisor, and of the process. The service is ready while all streams are."""

    def __init__(self, supervisor: StreamSupervisor, process: ProcessProblems | None = None) -> None:
        self._supervisor = supervisor
        self._process = process or ProcessProblems()

    def obstacles(self) -> tuple[str, ...]:
        """Return why the service is not ready; empty if it is ready."""
        return tuple(
            text
            for stream in self._supervisor.configured()
            for text in self._reported(stream, health_of(stream).obstacles())
        )

    def problems(self) -> tuple[str, ...]:
        """Return everything that is wrong, in sentences with their remedies; empty if nothing is."""
        of_streams = (
            text
            for stream in self._supervisor.configured()
            for text in self._reported(stream, health_of(stream).problems())
        )
        return (*self._process.texts(), *of_streams)

    def readiness(self) -> Iterator[WorkerReadiness]:
        """Yield the readiness of each stream. Exporters' threads call it."""
        for stream in self._supervisor.configured():
            if (settings := stream.wanted) is not None:
                yield WorkerReadiness(
                    settings.kinesis.stream_name, settings.consumer.application, not health_of(stream).obstacles()
                )

    def status(self) -> dict[str, Any]:
        """Return the content of /status, as JSON values."""
        statuses = {stream.name: _status(stream) for stream in self._supervisor.configured()}
        errors = [msgspec.to_builtins(error) for error in self._process.last_errors()]
        if not self._supervisor.configuration.has_tables and len(statuses) == 1:
            [status] = statuses.values()
            problems = [*self._process.texts(), *status.get("problems", ())]
            return {**status, "problems": problems, "last_errors": [*errors, *status.get("last_errors", ())]}
        return {
            "version": VERSION,
            "worker_id": self._supervisor.configuration.worker_id or "",
            "draining": self._supervisor.is_draining,
            "problems": list(self.problems()),
            "last_errors": errors,
            "streams": [{"name": name, **status} for name, status in statuses.items()],
        }

    def _reported(self, stream: Stream, texts: tuple[str, ...]) -> Iterator[str]:
        return (f"{stream.name}: {text}" if self._supervisor.configuration.has_tables else text for text in texts)


class _NotRunning:
    """The state of a stream that does not run."""

    draining = False

    def __init__(self, problem: str) -> None:
        self._problems = (problem,)

    def obstacles(self) -> tuple[str, ...]:
        return self._problems

    def problems(self) -> tuple[str, ...]:
        return self._problems

    def last_errors(self) -> tuple[LastError, ...]:
        return ()


def health_of(stream: Stream) -> ReportsState:
    """Return what is wrong with a stream."""
    run, failure = stream.run, stream.failure  # exporters' threads: read once
    if run is None or failure is not None:
        return _NotRunning(failure or "it has not started yet")
    return run.health


def _status(stream: Stream) -> dict[str, Any]:
    if stream.run is not None and stream.failure is None:
        return stream.run.status()
    settings = stream.wanted
    if settings is None:
        return {}
    return Status(identity(settings), health_of(stream))()


class StreamsPage:
    """The views of the streams, by their names in the configuration, and the actions on their shards.

    `process`: what is wrong with the process, which each view shows.
    """

    def __init__(self, supervisor: StreamSupervisor, process: ProcessProblems | None = None) -> None:
        self._supervisor = supervisor
        self._process = process or ProcessProblems()

    async def snapshot(self) -> Snapshot:
        """Return the views of all streams."""
        await trio.lowlevel.checkpoint()
        return Snapshot(tuple(map(_view, self._supervisor.configured()))).with_problems(self._process.texts())

    async def perform(self, action: Action) -> None:
        """Perform an action on a shard of one stream. Raises ActionRefusedError."""
        streams = list(self._supervisor.configured())
        if not action.stream and len(streams) > 1:
            raise ActionRefusedError("this service reads several streams: name one of them as stream")
        if action.stream:
            streams = [stream for stream in streams if stream.name == action.stream]
        if not streams:
            raise ActionRefusedError(f"this service does not read the stream {action.stream[:200]!r}")
        run = streams[0].run
        if run is None:
            raise ActionRefusedError(f"the stream {streams[0].name!r} does not run: {streams[0].failure or 'not yet'}")
        await run.perform(action)


def _view(stream: Stream) -> StreamView:
    if stream.run is not None:
        return stream.run.view()
    names = {} if stream.wanted is None else identity(stream.wanted)
    return StreamSource({**names, "stream": stream.name}, health_of(stream)).view()
