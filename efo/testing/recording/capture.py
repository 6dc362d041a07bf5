"""A capture: what the fake sent for each SubscribeToShard, and when; and the same again, from the file.

A capture is a file of JSON lines. The first is `{"capture":1}`. The others have these members:

    {"stream":"orders","shards":[{"id":...,"start":...,"end":...,"parents":[...]}]}    the stream's shards from here on
    {"call":1,"at":0.0,"subscribe":{"stream":...,"shard":...,"position":...}}          a call was accepted
    {"call":1,"at":0.2,"data":"..."}          bytes of its body, in base64: one message, or what a fault made of it
    {"call":1,"at":5.2,"fault":{"kind":"reset","code":"INTERNAL_ERROR"}}               what was done to the connection
    {"call":1,"at":5.2,"end":true}            the clean end of the stream
    {"call":1,"at":5.2,"closed":true}         the stream was over before its end: the client left, or a fault struck

`at` is in seconds since the recording began. The last two end a call.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
import trio

from efo.errors import ConfigurationError
from efo.testing.errors import FakeError
from efo.testing.faults.kinds import WireFault
from efo.testing.operations.requests import SubscribeToShard
from efo.testing.server.chunks import Body, Chunk, Pause
from efo.testing.state.core import Core
from efo.testing.state.streams import StreamState
from efo.testing.state.subscriptions import INITIAL_RESPONSE

VERSION: Final = 1


class CapturedShard(msgspec.Struct, frozen=True):
    """A shard: its id, its hash keys in decimal, and its parents' ids."""

    id: str
    start: str
    end: str
    parents: tuple[str, ...]


class CapturedCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call of SubscribeToShard that was accepted. `position`: the type of its starting position."""

    stream: str
    shard: str
    position: str
    sequence_number: str | None = None
    timestamp: float | None = None


class Line(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One line of a capture."""

    capture: int | None = None
    stream: str | None = None
    shards: tuple[CapturedShard, ...] = ()
    call: int | None = None
    at: float = 0.0
    subscribe: CapturedCall | None = None
    data: bytes | None = None
    fault: WireFault | None = None
    end: bool = False
    closed: bool = False


OpenBody = Callable[[SubscribeToShard, str], Body]
"""Opens the body of an accepted call, of a stream of this name. Raises FakeError."""


# --- recording --------------------------------------------------------------------------------------------


class Recorder:
    """Writes a capture of what `open_body` gives. Each line is flushed: a process that is killed leaves all it had."""

    def __init__(self, file: BinaryIO, core: Core, open_body: OpenBody) -> None:
        self._file = file
        self._core = core
        self._open_body = open_body
        self._began = trio.current_time()
        self._calls = 0
        self._listed: dict[str, tuple[str, ...]] = {}
        self.is_over = False
        self._write(Line(capture=VERSION))

    def open_body(self, request: SubscribeToShard, stream: str) -> Body:
        """Open a body that is recorded as it is sent."""
        body = self._open_body(request, stream)
        self.note_shards()
        self._calls += 1
        start = request.starting_position
        called = CapturedCall(
            stream, request.shard_id, start.type.value, start.sequence_number, request.position.timestamp
        )
        self.write(self._calls, subscribe=called)
        return _RecordedBody(self, self._calls, body)

    def note_shards(self) -> None:
        """Write the shards of each stream that has others than before."""
        for name, stream in self._core.streams.items():
            if self._listed.get(name) != (ids := tuple(stream.shards)):
                self._listed[name] = ids
                self._write(Line(stream=name, shards=_shards(stream)))

    def write(
        self,
        call: int,
        *,
        subscribe: CapturedCall | None = None,
        data: bytes | None = None,
        fault: WireFault | None = None,
        end: bool = False,
        closed: bool = False,
    ) -> None:
        """Write what happens in a call now."""
        at = round(trio.current_time() - self._began, 6)
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
        self._over = False

    async def next_chunk(self) -> Chunk | None:
        chunk = await self._body.next_chunk()
        match chunk:
            case None:
                self._over = True
                self._recorder.note_shards()
                self._recorder.write(self._call, end=True)
            case bytes():
                self._recorder.write(self._call, data=chunk)
            case Pause():
                pass  # the times tell it
            case fault:
                self._recorder.write(self._call, fault=fault)
        return chunk

    def close(self) -> None:
        self._body.close()
        if not self._over:
            self._over = True
            self._recorder.write(self._call, closed=True)


@contextmanager
def recording(path: Path, core: Core, open_body: OpenBody) -> Iterator[Recorder]:
    """Write a capture to a new file while the context is open. Raises ConfigurationError: it cannot be written."""
    try:
        file = path.open("wb")
    except OSError as error:
        raise ConfigurationError(f"{path}: the capture cannot be written: {error.strerror}") from None
    with file:
        recorder = Recorder(file, core, open_body)
        try:
            yield recorder
        finally:
            recorder.note_shards()
            recorder.is_over = True


def _shards(stream: StreamState) -> tuple[CapturedShard, ...]:
    return tuple(
        CapturedShard(shard.id, str(shard.start), str(shard.end), tuple(shard.parents))
        for shard in stream.shards.values()
    )


# --- replaying --------------------------------------------------------------------------------------------


class Capture:
    """A capture, read. `streams`: the last that is known of their shards. `calls`: their lines, in order."""

    def __init__(self, lines: list[Line]) -> None:
        self.streams: dict[str, tuple[CapturedShard, ...]] = {}
        self.calls: dict[int, list[Line]] = defaultdict(list)
        for line in lines:
            if line.stream is not None:
                self.streams[line.stream] = line.shards
            elif line.call is not None:
                self.calls[line.call].append(line)

    @classmethod
    def read(cls, path: Path) -> Capture:
        """Read a capture. Raises ConfigurationError: it is not there, or is no capture."""
        try:
            raw = path.read_bytes().splitlines()
        except OSError as error:
            raise ConfigurationError(f"{path}: the capture cannot be read: {error.strerror}") from None
        lines: list[Line] = []
        for number, text in enumerate(raw, start=1):
            try:
                lines.append(msgspec.json.decode(text, type=Line))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise ConfigurationError(f"{path}, line {number}: {error}") from None
        if not lines or lines[0].capture != VERSION:
            raise ConfigurationError(f'{path}: no capture: it must begin with {{"capture":{VERSION}}}')
        return cls(lines)


class Player:
    """Serves a capture: the n-th call for a shard gets what its n-th captured call got, at `speed` times its pace.

    After the last one a call gets the initial response and then nothing.
    """

    def __init__(self, capture: Capture, core: Core, speed: float = 1.0) -> None:
        self._core = core
        self._speed = speed
        self._waiting: dict[tuple[str, str], deque[list[Line]]] = defaultdict(deque)
        for lines in capture.calls.values():
            if (called := lines[0].subscribe) is not None:
                self._waiting[called.stream, called.shard].append(lines)
        for name, shards in capture.streams.items():
            make_stream(core, name, shards)

    def open_body(self, request: SubscribeToShard, stream: str) -> Body:
        """Return the body of the next captured call for the shard. Raises ResourceNotFoundException."""
        found, _ = self._core.consumer(request.consumer_arn)
        found.shard(request.shard_id)
        waiting = self._waiting[stream, request.shard_id]
        return _PlayedBody(waiting.popleft() if waiting else [Line(data=INITIAL_RESPONSE)], self._speed)


class _PlayedBody:
    def __init__(self, lines: list[Line], speed: float) -> None:
        self._lines = deque(lines)
        self._speed = speed
        self._captured_at = lines[0].at
        self._began = trio.current_time()

    async def next_chunk(self) -> Chunk | None:
        while self._lines:
            line = self._lines.popleft()
            await trio.sleep_until(self._began + (line.at - self._captured_at) / self._speed)
            if line.end:
                return None
            if (chunk := line.data if line.data is not None else line.fault) is not None:
                return chunk
        await trio.sleep(math.inf)  # the client left here
        return None

    def close(self) -> None:
        self._lines.clear()


def make_stream(core: Core, name: str, shards: tuple[CapturedShard, ...]) -> None:
    """Make a stream with these shards, by the splits and merges that made them. Raises ConfigurationError."""
    try:
        stream = core.create_stream(name, sum(not shard.parents for shard in shards))
        for shard in shards:
            if shard.id in stream.shards:
                continue
            if len(shard.parents) > 1:
                stream.merge(shard.parents[0], shard.parents[1], core.millis)
            else:
                stream.split(shard.parents[0], int(shard.end) + 1, core.millis)
    except (FakeError, LookupError, ValueError) as error:
        raise ConfigurationError(f"the capture's stream {name} cannot be made: {error}") from error
    if _shards(stream) != shards:
        raise ConfigurationError(f"the capture's shards of {name} are not those of a stream from its beginning")
