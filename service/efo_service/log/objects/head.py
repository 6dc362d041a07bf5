"""The head of a partition: what compaction and retention have made of its commits. Pure.

    <topic>/<partition>/head.json

Commits below `next` are in segments, or have expired, or had no records; what stays of each is a tombstone. All
others are read from their own keys. Only maintenance changes a head, by compare-and-set; a writer creates it. So a
reader reads the head, and the commits from `next` on: what it has read is complete.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Final

import msgspec

from efo.errors import ConfigurationError, InvalidValueError
from efo.model import Checkpoint
from efo.third_party_errors import reason_of
from efo_service.log.objects.codec import FORMAT_VERSION, Header, Number, checkpoint
from efo_service.relay.errors import LogError, LogVersionError


class HeadSegment(msgspec.Struct, frozen=True, kw_only=True):
    """A segment: the offsets `base` to `end` - 1.

    `size`: its bytes. `memory`: bytes of its records in memory. `written_at`: the store's time of its last commit, in
    seconds since the epoch, so that no clock of a writer decides what expires.
    """

    key: str
    base: Number
    end: Number
    size: Number
    memory: Number
    written_at: float


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """A head. Its segments are in order and have no gap.

    `next`: the number of the first live commit. `base`: the offset at its beginning. `last`: the Kinesis position of
    the record before. `epoch`: the fencing epoch before. `write`: another one for each write, so that no two heads of
    a partition are equal.
    """

    format: int = FORMAT_VERSION
    write: str
    topic: str
    partition: Number
    stream: str
    shard: str
    next: Number = 0
    base: Number = 0
    last: str | None = None
    epoch: Number = 0
    segments: tuple[HeadSegment, ...] = ()

    @property
    def start(self) -> int:
        """The offset of the oldest record that has not expired."""
        return self.segments[0].base if self.segments else self.base

    @property
    def position(self) -> Checkpoint | None:
        """The Kinesis position of the last record before the live commits."""
        return checkpoint(self.last)


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Head).decode


class _Format(msgspec.Struct):
    format: int


def encode_head(head: Head) -> bytes:
    """Return the bytes of a head."""
    return _encode(head)


def decode_head(content: bytes, name: str) -> Head:
    """Return a head. Raises LogVersionError and LogError."""
    try:
        version = msgspec.json.decode(content, type=_Format).format
        if version <= FORMAT_VERSION:
            head = _decode(content)
            _check(head)
            return head
    except (msgspec.MsgspecError, ValueError, ConfigurationError, RecursionError) as error:
        raise LogError(
            f"{name} is not a valid head ({reason_of(error)}): restore an earlier version of it "
            "(docs/log.md, Damage of objects)"
        ) from error
    raise LogVersionError(
        f"{name} has format version {version}, but this efo supports up to {FORMAT_VERSION}: upgrade efo"
    )


def _check(head: Head) -> None:
    """Raise ValueError unless the segments are continuous, and end where the live commits begin."""
    at = head.start
    for segment in head.segments:
        if segment.base != at or segment.end <= at:
            raise InvalidValueError(f"the segment {segment.key} does not begin at offset {at}")
        at = segment.end
    if at != head.base:
        raise InvalidValueError(f"the segments end at offset {at}, but the commits begin at {head.base}")
    _ = head.position


def new_write() -> str:
    """Return what identifies one write."""
    return secrets.token_hex(8)


def touched(head: Head) -> Head:
    """Return the head as another write: whoever has read it before cannot replace it any more."""
    return msgspec.structs.replace(head, write=new_write())


def folded(head: Head, segment: HeadSegment | None, newest: Header) -> Head:
    """Return the head after the live commits up to `newest` became a segment; None if they had no records."""
    segments = head.segments if segment is None else (*head.segments, segment)
    return msgspec.structs.replace(
        touched(head), next=newest.number + 1, base=newest.end, last=newest.last, epoch=newest.epoch, segments=segments
    )


def has_run(head: Head, parts: Sequence[HeadSegment]) -> bool:
    """Return whether these segments are in a head, one after the other."""
    at = head.segments.index(parts[0]) if parts[0] in head.segments else 0
    return head.segments[at : at + len(parts)] == tuple(parts)


def merged(head: Head, parts: Sequence[HeadSegment], whole: HeadSegment) -> Head:
    """Return the head after neighbouring segments became one. Raises ValueError if they are not in it."""
    if not has_run(head, parts):
        raise InvalidValueError("the parts are not neighbours")
    at = head.segments.index(parts[0])
    segments = (*head.segments[:at], whole, *head.segments[at + len(parts) :])
    return msgspec.structs.replace(touched(head), segments=segments)


def expired(head: Head, count: int) -> Head:
    """Return the head without its oldest segments."""
    return msgspec.structs.replace(touched(head), segments=head.segments[count:])
