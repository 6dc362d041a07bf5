"""The file of a recording: what a Kinesis sent for each SubscribeToShard call, and when.

A recording is a file of JSON lines. The first line is `{"capture":2}`, the version. The other lines have these members:

    {"stream":"orders","shards":[{"id":...,"start":...,"end":...,"parents":[...],"first":...,"last":...}]}
                                              a stream's shards from now on, closed ones too
    {"call":1,"at":0.0,"subscribe":{"stream":...,"shard":...,"position":...}}          a call was accepted
    {"call":1,"at":0.2,"data":"..."}          bytes of its body as they came, in base64: they have records in clear text
    {"call":1,"at":5.2,"fault":{"kind":"reset","code":"INTERNAL_ERROR"}}               a fault of the connection
    {"call":1,"at":5.2,"end":true}            the stream ended cleanly
    {"call":1,"at":5.2,"closed":true}         the stream ended early: the client closed it, or a fault ended it

`at` is in seconds since the start of the recording. The last two lines end a call. `first` and `last` are the starting
and ending sequence numbers of a shard; version 1 did not have them, and is read too.
"""

from __future__ import annotations

import stat
from array import array
from collections.abc import Sequence
from io import BufferedReader
from pathlib import Path
from typing import Final, Self, overload

import msgspec

from efo.errors import ConfigurationError
from efo.model import Shard
from efo.testing.faults.kinds import WireFault
from efo.testing.state.streams import StreamState
from efo.text import other_encoding, without_mark

VERSION: Final = 2
_READABLE: Final = frozenset({1, 2})


class RecordedShard(msgspec.Struct, frozen=True, omit_defaults=True):
    """A shard: its id, its first and last hash key in decimal digits, and the ids of its parents.

    `first`: its starting sequence number, None in version 1. `last`: the ending one, None while it is open.
    """

    id: str
    start: str
    end: str
    parents: tuple[str, ...]
    first: str | None = None
    last: str | None = None

    @classmethod
    def of(cls, shard: Shard) -> Self:
        """Return a shard as a recording contains it."""
        keys = shard.hash_key_range
        return cls(
            shard.shard_id,
            keys.starting_hash_key,
            keys.ending_hash_key,
            shard.parents,
            shard.starting_sequence_number,
            shard.ending_sequence_number,
        )


class RecordedCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """An accepted SubscribeToShard call. `position`: the type of its starting position."""

    stream: str
    shard: str
    position: str
    sequence_number: str | None = None
    timestamp: float | None = None


class RecordedLine(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One line of a recording."""

    capture: int | None = None
    stream: str | None = None
    shards: tuple[RecordedShard, ...] = ()
    call: int | None = None
    at: float = 0.0
    subscribe: RecordedCall | None = None
    data: bytes | None = None
    fault: WireFault | None = None
    end: bool = False
    closed: bool = False


class CallLines(Sequence[RecordedLine]):
    """The lines of one call of a recording. A line is read when it is asked for, and not kept."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._offsets = array("Q")
        self._sizes = array("L")

    def add(self, offset: int, size: int) -> None:
        """Note where the next line is."""
        self._offsets.append(offset)
        self._sizes.append(size)

    def __len__(self) -> int:
        return len(self._offsets)

    @overload
    def __getitem__(self, index: int) -> RecordedLine: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[RecordedLine]: ...
    def __getitem__(self, index: int | slice) -> RecordedLine | Sequence[RecordedLine]:
        """Read a line. Raises ConfigurationError: the file was changed since it was opened."""
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        return self._recording.line(self._offsets[index], self._sizes[index])


class Recording:
    """An open recording. `streams`: the final shards of each stream. `calls`: the lines of each call.

    What is in memory is where each line is, some ten bytes, so a recording may be larger than the memory. Close it, or
    use it in a `with` statement.
    """

    def __init__(self, path: Path, file: BufferedReader) -> None:
        self._path = path
        self._file = file
        self.streams: dict[str, tuple[RecordedShard, ...]] = {}
        self.calls: dict[int, CallLines] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file: no line can be read any more."""
        self._file.close()

    @classmethod
    def open(cls, path: Path) -> Recording:
        """Open a recording and look through it. Raises ConfigurationError: it cannot be read, or is no recording.

        A last line that is not complete is ignored: the recording was killed, or its disk was full.
        """
        try:
            # A pipe would block here until somebody writes, and cannot be read again at the places of the calls.
            if not stat.S_ISREG(path.stat().st_mode):
                raise ConfigurationError(f"{path}: a recording is read again and again: pass a file, not a pipe")
            file = path.open("rb")
        except OSError as error:
            raise ConfigurationError(f"{path}: the recording cannot be read: {error.strerror}") from None
        recording = cls(path, file)
        try:
            recording._index()
        except OSError as error:
            recording.close()
            raise ConfigurationError(f"{path}: the recording cannot be read: {error.strerror}") from None
        except BaseException:
            recording.close()
            raise
        return recording

    def line(self, offset: int, size: int) -> RecordedLine:
        """Read the line at this place. Raises ConfigurationError: the file was changed since it was opened."""
        try:
            self._file.seek(offset)
            return msgspec.json.decode(self._file.read(size), type=RecordedLine)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ConfigurationError(f"{self._path} was changed while it is replayed: {error}") from None

    def _index(self) -> None:
        path, offset, number = self._path, 0, 0
        for number, text in enumerate(self._file, start=1):
            if number == 1 and (encoding := other_encoding(text)):
                raise ConfigurationError(f"{path} is no recording: it is {encoding} text")
            try:
                line = msgspec.json.decode(without_mark(text) if number == 1 else text, type=RecordedLine)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                if number > 1 and not text.endswith(b"\n"):  # only the last line has no line break
                    break
                raise ConfigurationError(f"{path}, line {number}: {error}") from None
            if number == 1 and line.capture is None:
                break
            if number == 1 and line.capture not in _READABLE:
                raise ConfigurationError(f"{path} has version {line.capture}: this efo reads versions 1 to {VERSION}")
            if line.stream is not None:
                self.streams[line.stream] = line.shards
            elif line.call is not None:
                self.calls.setdefault(line.call, CallLines(self)).add(offset, len(text))
            offset += len(text)
        if offset == 0:
            raise ConfigurationError(f'{path} is not a recording: the first line must be {{"capture":{VERSION}}}')


def recorded_shards(stream: StreamState) -> tuple[RecordedShard, ...]:
    """Return the shards of a stream of the fake as a recording contains them."""
    return tuple(RecordedShard.of(shard.as_shard()) for shard in stream.shards.values())
