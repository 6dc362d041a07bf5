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

from collections import defaultdict
from pathlib import Path
from typing import Final, Self

import msgspec

from efo.errors import ConfigurationError
from efo.model import Shard
from efo.testing.faults.kinds import WireFault
from efo.testing.state.streams import StreamState

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


class Line(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
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


class Recording:
    """The content of a recording. `streams`: the final shards of each stream. `calls`: the lines of each call."""

    def __init__(self, lines: list[Line]) -> None:
        self.streams: dict[str, tuple[RecordedShard, ...]] = {}
        self.calls: dict[int, list[Line]] = defaultdict(list)
        for line in lines:
            if line.stream is not None:
                self.streams[line.stream] = line.shards
            elif line.call is not None:
                self.calls[line.call].append(line)

    @classmethod
    def read(cls, path: Path) -> Recording:
        """Read a recording. Raises ConfigurationError: the file cannot be read, or is not a recording.

        A last line that is not complete is ignored: the recording was killed, or its disk was full.
        """
        try:
            raw = path.read_bytes().splitlines(keepends=True)
        except OSError as error:
            raise ConfigurationError(f"{path}: the recording cannot be read: {error.strerror}") from None
        lines: list[Line] = []
        for number, text in enumerate(raw, start=1):
            try:
                lines.append(msgspec.json.decode(text, type=Line))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                if number == len(raw) > 1 and not text.endswith(b"\n"):
                    break
                raise ConfigurationError(f"{path}, line {number}: {error}") from None
        if not lines or lines[0].capture is None:
            raise ConfigurationError(f'{path} is not a recording: the first line must be {{"capture":{VERSION}}}')
        if lines[0].capture not in _READABLE:
            raise ConfigurationError(f"{path} has version {lines[0].capture}: this efo reads versions 1 to {VERSION}")
        return cls(lines)


def recorded_shards(stream: StreamState) -> tuple[RecordedShard, ...]:
    """Return the shards of a stream of the fake as a recording contains them."""
    return tuple(RecordedShard.of(shard.as_shard()) for shard in stream.shards.values())
