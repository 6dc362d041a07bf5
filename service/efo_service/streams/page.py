"""What the page shows of all streams of a supervisor, and what it may do with them."""

from __future__ import annotations

import trio

from efo_service.streams.report import health_of
from efo_service.streams.run import identity
from efo_service.streams.supervisor import Stream, StreamSupervisor
from efo_service.web.live.actions import Action, ActionRefusedError
from efo_service.web.live.snapshot import Snapshot, StreamView
from efo_service.web.live.source import StreamSource
from efo_service.web.process_problems import ProcessProblems


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
