"""The event-stream decoder: it returns no wrong message, for any bytes and any cuts.

An input is wire bytes, or raw headers and payloads. For the latter this module adds correct lengths and checksums,
which mutation would never find. It may then flip one bit, which the decoder must detect.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator
from typing import Any, Final
from zlib import crc32

import botocore.eventstream

from efo.errors import ChecksumError, FrameError
from efo.protocol.eventstream import (
    MAX_HEADERS,
    MAX_MESSAGE_LENGTH,
    EventStreamDecoder,
    EventStreamMessage,
    HeaderValue,
    encode,
)
from proofs.fuzz.cursor import Cursor, cut
from proofs.fuzz.target import Target, require

_RAW, _SEALED, _FLIPPED = range(3)
_MAX_FRAMES: Final = 16
_FIXED: Final = {2: ">b", 3: ">h", 4: ">i", 5: ">q", 8: ">q"}
_UUID: Final = 9
_UUID_BYTES: Final = 16


def check(data: bytes) -> None:
    """Decode the input, and compare the result with the model below, with botocore and with our own encoder."""
    cursor = Cursor(data)
    mode, seed = cursor.byte() % 3, cursor.byte()
    if mode == _RAW:
        wire = cursor.rest()
        whole, failed = decode([wire])
        at = 0
        for message in whole:
            _check_encoded(message, wire[at : at + message.wire_length])
            at += message.wire_length
    else:
        flip = cursor.number()
        frames = list(_frames(cursor))
        wire = b"".join(seal(*frame) for frame in frames)
        if mode == _FLIPPED and wire:
            damaged = bytearray(wire)
            damaged[flip // 8 % len(wire)] ^= 1 << flip % 8
            _check_damaged(bytes(damaged), wire, flip // 8 % len(wire))
            wire = bytes(damaged)
        whole, failed = decode([wire])
        if mode == _SEALED:
            _check_sealed(frames, whole, failed=failed)
    pieces, also_failed = decode(cut(wire, seed))
    require((pieces, also_failed) == (whole, failed), "cuts change what is decoded")


def seal(headers: bytes, payload: bytes) -> bytes:
    """Return a frame with correct lengths and checksums around raw headers."""
    lengths = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    frame = lengths + struct.pack(">I", crc32(lengths)) + headers + payload
    return frame + struct.pack(">I", crc32(frame))


def decode(pieces: list[bytes]) -> tuple[list[EventStreamMessage], bool]:
    """Return the messages in these pieces of a stream, and whether the decoder rejected the stream at the end."""
    decoder = EventStreamDecoder()
    messages: list[EventStreamMessage] = []
    fed = 0
    for piece in pieces:
        decoder.receive_data(piece)
        fed += len(piece)
        try:
            messages.extend(decoder.messages())
        except (ChecksumError, FrameError):
            require(decoder.pending == 0, "bytes of a rejected stream are buffered")
            return messages, True
        read = sum(message.wire_length for message in messages)
        require(decoder.pending == fed - read, "bytes are lost or buffered twice")
        require(decoder.pending < MAX_MESSAGE_LENGTH, "more than one message is buffered")
    return messages, False


def _frames(cursor: Cursor) -> Iterator[tuple[bytes, bytes]]:
    for _ in range(_MAX_FRAMES):
        if not cursor.left:
            return
        headers = cursor.take(cursor.byte())
        yield headers, cursor.take(cursor.byte())


def _check_damaged(damaged: bytes, intact: bytes, at: int) -> None:
    """Check that a flipped bit is detected: the frames before it are read, and its own frame is not."""
    before, _ = decode([intact])
    after, failed = decode([damaged])
    require(after == before[: len(after)], "a flipped bit gives a wrong message")
    require(sum(message.wire_length for message in after) <= at, "a frame with a flipped bit was accepted")
    require(failed, "a flipped bit is not detected")


def _check_sealed(frames: list[tuple[bytes, bytes]], messages: list[EventStreamMessage], *, failed: bool) -> None:
    expected: list[EventStreamMessage] = []
    for headers, payload in frames:
        read = model_headers(headers)
        if read is None:
            break
        expected.append(EventStreamMessage(read, payload))
    require(messages == expected, f"read {messages!r}, expected {expected!r}")
    require(failed == (len(expected) < len(frames)), "the decoder and the model disagree about what is valid")
    for message, (headers, payload) in zip(messages, frames, strict=False):
        _check_encoded(message, seal(headers, payload))


def _check_encoded(message: EventStreamMessage, frame: bytes) -> None:
    """Check that encoding the message gives the same bytes, and that botocore reads the same message."""
    headers = message.headers
    texts = {name: value for name, value in headers.items() if isinstance(value, str)}
    if len(texts) == len(headers):
        encoded = encode(texts, bytes(message.payload))
        require(encoded == frame, "encoding the message gives another frame")
    reference = botocore.eventstream.EventStreamBuffer()
    reference.add_data(frame)
    theirs = next(reference)
    require(theirs.payload == bytes(message.payload), "botocore reads another payload")
    ours = {name: value.bytes if isinstance(value, uuid.UUID) else value for name, value in headers.items()}
    require(theirs.headers == ours, f"botocore reads {theirs.headers!r}, efo reads {ours!r}")


def model_headers(data: bytes) -> dict[str, HeaderValue] | None:
    """Parse headers with the simplest possible code. Return None if they are not valid."""
    cursor = Cursor(data)
    headers: dict[str, HeaderValue] = {}
    try:
        while cursor.left:
            name = _exactly(cursor, cursor.byte()).decode()
            value = _model_value(cursor)
            if name in headers or len(headers) == MAX_HEADERS:
                return None
            headers[name] = value
    except ValueError:
        return None
    return headers


def _model_value(cursor: Cursor) -> HeaderValue:
    kind = _exactly(cursor, 1)[0]
    if kind in {0, 1}:
        return kind == 0
    if kind in {6, 7}:
        raw = _exactly(cursor, int.from_bytes(_exactly(cursor, 2)))
        return raw if kind == 6 else raw.decode()  # noqa: PLR2004 - type bytes of the format
    if kind == _UUID:
        return uuid.UUID(bytes=_exactly(cursor, _UUID_BYTES))
    if kind in _FIXED:
        value: Any = struct.unpack(_FIXED[kind], _exactly(cursor, struct.calcsize(_FIXED[kind])))[0]
        return int(value)
    raise ValueError(f"unknown header type {kind}")


def _exactly(cursor: Cursor, size: int) -> bytes:
    taken = cursor.take(size)
    if len(taken) < size:
        raise ValueError("the headers end early")
    return taken


EVENT_HEADERS: Final = {
    ":event-type": "SubscribeToShardEvent",
    ":content-type": "application/x-amz-json-1.1",
    ":message-type": "event",
}


def seeds() -> Iterator[bytes]:
    """Make frames as Kinesis sends them, whole frames and parts to seal, and headers of every type."""
    event = encode(EVENT_HEADERS, b'{"Records":[],"MillisBehindLatest":0,"ContinuationSequenceNumber":"7"}')
    error = encode({":message-type": "exception", ":exception-type": "ResourceInUseException"}, b'{"message":"busy"}')
    for wire in (event, error, event + error, event[:-1], encode({}, b""), encode({}, b"{'foo':'bar'}")):
        yield bytes([_RAW, 1]) + wire
    raw = encode(EVENT_HEADERS, b"")[12:-4]
    every = b"".join(
        b"\x01n" + bytes([kind]) + value
        for kind, value in [
            (0, b""), (1, b""), (2, b"\xff"), (3, b"\x80\0"), (4, bytes(4)), (5, bytes(8)), (6, b"\0\x02\0\xff"),
            (7, b"\0\x02hi"), (8, bytes(8)), (9, bytes(range(16))),
        ]
    )  # fmt: skip
    for mode in (_SEALED, _FLIPPED):
        for headers in (b"", raw, every, every[:4], raw + raw):
            yield bytes([mode, 2, 0, 99, len(headers)]) + headers + b"\x02{}" + b"\0\0"


TARGET: Final = Target(
    "frames",
    "the event-stream frame decoder",
    check,
    seeds,
    dictionary=(
        b":message-type\x07\0\x05event",
        b":event-type",
        b"\x05c\xc2\x48\xeb",
        b"\0\0\0\x10\0\0\0\0\x05\xc2\x48\xeb",
    ),
)
