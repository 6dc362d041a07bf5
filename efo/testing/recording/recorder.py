"""Records what the fake sends for each SubscribeToShard call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from efo.errors import ConfigurationError
from efo.testing.faults.wire import Body, Chunk, Pause
from efo.testing.operations.requests import SubscribeToShard
from efo.testing.recording.file import RecordedCall, recorded_shards
from efo.testing.recording.writer import RecordingWriter
from efo.testing.state.core import Core

OpenBody = Callable[[SubscribeToShard, str], Body]
"""Opens the body of an accepted call. The second argument is the name of the stream. Raises FakeError."""


class Recorder:
    """Records the bodies that `open_body` returns."""

    def __init__(self, file: BinaryIO, core: Core, open_body: OpenBody) -> None:
        self._core = core
        self._open_body = open_body
        self.writer = RecordingWriter(file)

    def open_body(self, request: SubscribeToShard, stream: str) -> Body:
        """Open a body that is recorded while it is sent."""
        body = self._open_body(request, stream)
        self.record_shards()
        start = request.starting_position
        call = RecordedCall(
            stream, request.shard_id, start.type.value, start.sequence_number, request.position.timestamp
        )
        return _RecordedBody(self, self.writer.begin(call), body)

    def record_shards(self) -> None:
        """Write the shards of each stream whose shards have changed."""
        for name, stream in self._core.streams.items():
            self.writer.shards(name, recorded_shards(stream))


class _RecordedBody:
    def __init__(self, recorder: Recorder, call: int, body: Body) -> None:
        self._recorder = recorder
        self._call = call
        self._body = body
        self._ended = False

    async def next_chunk(self) -> Chunk | None:
        chunk = await self._body.next_chunk()
        match chunk:
            case None:
                self._ended = True
                self._recorder.record_shards()
                self._recorder.writer.end(self._call, clean=True)
            case bytes():
                self._recorder.writer.data(self._call, chunk)
            case Pause():
                pass  # the times of the other lines contain it
            case fault:
                self._recorder.writer.fault(self._call, fault)
        return chunk

    def close(self) -> None:
        self._body.close()
        if not self._ended:
            self._ended = True
            self._recorder.writer.end(self._call, clean=False)


@contextmanager
def record_to(path: Path, core: Core, open_body: OpenBody) -> Iterator[Recorder]:
    """Record to a new file while the context is open. Raises ConfigurationError: the file cannot be written."""
    try:
        file = path.open("wb")
    except OSError as error:
        raise ConfigurationError(f"{path}: the recording cannot be written: {error.strerror}") from None
    with file:
        recorder = Recorder(file, core, open_body)
        try:
            yield recorder
        finally:
            recorder.record_shards()
            recorder.writer.close()
