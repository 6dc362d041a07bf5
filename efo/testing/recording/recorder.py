"""Records what the fake sends for each SubscribeToShard call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import msgspec
import trio

from efo.errors import ConfigurationError
from efo.testing.faults.kinds import WireFault
from efo.testing.operations.requests import SubscribeToShard
from efo.testing.recording.file import VERSION, Line, RecordedCall, recorded_shards
from efo.testing.server.chunks import Body, Chunk, Pause
from efo.testing.state.core import Core

OpenBody = Callable[[SubscribeToShard, str], Body]
"""Opens the body of an accepted call. The second argument is the name of the stream. Raises FakeError."""


class Recorder:
    """Records the bodies that `open_body` returns. Each line is flushed, so a killed process loses no lines."""

    def __init__(self, file: BinaryIO, core: Core, open_body: OpenBody) -> None:
        self._file = file
        self._core = core
        self._open_body = open_body
        self._started_at = trio.current_time()
        self._calls = 0
        self._recorded_ids: dict[str, tuple[str, ...]] = {}
        self.is_over = False
        self._write(Line(capture=VERSION))

    def open_body(self, request: SubscribeToShard, stream: str) -> Body:
        """Open a body that is recorded while it is sent."""
        body = self._open_body(request, stream)
        self.record_shards()
        self._calls += 1
        start = request.starting_position
        call = RecordedCall(
            stream, request.shard_id, start.type.value, start.sequence_number, request.position.timestamp
        )
        self.write(self._calls, subscribe=call)
        return _RecordedBody(self, self._calls, body)

    def record_shards(self) -> None:
        """Write the shards of each stream whose shards have changed."""
        for name, stream in self._core.streams.items():
            if self._recorded_ids.get(name) != (ids := tuple(stream.shards)):
                self._recorded_ids[name] = ids
                self._write(Line(stream=name, shards=recorded_shards(stream)))

    def write(
        self,
        call: int,
        *,
        subscribe: RecordedCall | None = None,
        data: bytes | None = None,
        fault: WireFault | None = None,
        end: bool = False,
        closed: bool = False,
    ) -> None:
        """Write a line of a call, with the current time."""
        at = round(trio.current_time() - self._started_at, 6)
        self._write(Line(call=call, at=at, subscribe=subscribe, data=data, fault=fault, end=end, closed=closed))

    def _write(self, line: Line) -> None:
        if not self.is_over:
            self._file.write(msgspec.json.encode(line) + b"\n")
            self._file.flush()


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
                self._recorder.write(self._call, end=True)
            case bytes():
                self._recorder.write(self._call, data=chunk)
            case Pause():
                pass  # the times of the other lines contain it
            case fault:
                self._recorder.write(self._call, fault=fault)
        return chunk

    def close(self) -> None:
        self._body.close()
        if not self._ended:
            self._ended = True
            self._recorder.write(self._call, closed=True)


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
            recorder.is_over = True
