"""Writes a recording, line by line."""

from __future__ import annotations

from typing import BinaryIO

import msgspec
import trio

from efo.testing.faults.kinds import WireFault
from efo.testing.recording.file import VERSION, RecordedCall, RecordedLine, RecordedShard


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
