"""Records what the fake sends for each SubscribeToShard call: writes a recording, line by line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import msgspec
import trio

from efo.errors import ConfigurationError
from efo.testing.faults.kinds import WireFault
from efo.testing.faults.wire import Body, Chunk, Pause
from efo.testing.operations.requests import SubscribeToShard
from efo.testing.recording.file import VERSION, RecordedCall, RecordedLine, RecordedShard, recorded_shards
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


class RecordingWriter:
    """Writes lines to a file, with the time since it was made. Each line is flushed, so a killed process loses none.

    `calls`, `data_bytes`: how much was written so far. After `close` nothing is written any more.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._started_at = trio.current_time()
        self._streams: dict[str, tuple[RecordedShard, ...]] = {}
        self._is_over = False
        self.calls = 0
        self.data_bytes = 0
        self._write(RecordedLine(capture=VERSION))

    def close(self) -> None:
        """Write nothing any more. The file is the caller's."""
        self._is_over = True

    def shards(self, stream: str, shards: tuple[RecordedShard, ...]) -> None:
        """Write the shards of a stream, unless they are as they were."""
        if self._streams.get(stream) != shards:
            self._streams[stream] = shards
            self._write(RecordedLine(stream=stream, shards=shards))

    def begin(self, call: RecordedCall) -> int:
        """Write that a call was accepted; return its number."""
        self.calls += 1
        self._write_now(RecordedLine(call=self.calls, subscribe=call))
        return self.calls

    def data(self, call: int, data: bytes) -> None:
        """Write bytes of the body of a call."""
        self.data_bytes += len(data)
        self._write_now(RecordedLine(call=call, data=data))

    def fault(self, call: int, fault: WireFault) -> None:
        """Write a fault of the connection of a call."""
        self._write_now(RecordedLine(call=call, fault=fault))

    def end(self, call: int, *, clean: bool) -> None:
        """Write the end of a call. `clean`: the server ended the stream; else it was closed or broke."""
        self._write_now(RecordedLine(call=call, end=True) if clean else RecordedLine(call=call, closed=True))

    def _write_now(self, line: RecordedLine) -> None:
        self._write(msgspec.structs.replace(line, at=round(trio.current_time() - self._started_at, 6)))

    def _write(self, line: RecordedLine) -> None:
        if not self._is_over:
            self._file.write(msgspec.json.encode(line) + b"\n")
            self._file.flush()
