"""The event-stream decoder: never a wrong message, whatever the bytes and however they are cut.

An input is wire bytes as they are, or raw headers and payloads that are sealed here with right lengths and checksums:
no mutation would ever find those. Then one bit may be flipped again, which no decoder may accept.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator
from typing import Any, Final
from zlib import crc32

import botocore.eventstream

from efo.errors import ChecksumError, FrameError
from efo.protocol.eventstream import MAX_MESSAGE_LENGTH, Decoder, HeaderValue, Message, encode
from proofs.fuzz.cursor import Cursor, cut
from proofs.fuzz.target import Target, hold

_RAW, _SEALED, _FLIPPED = range(3)
_MOST_FRAMES: Final = 16
_FIXED: Final = {2: ">b", 3: ">h", 4: ">i", 5: ">q", 8: ">q"}
_UUID: Final = 9
_UUID_BYTES: Final = 16


def check(data: bytes) -> None:
    """Decode what the input makes, and compare with the model below, with botocore and with our own encoder."""
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
    hold((pieces, also_failed) == (whole, failed), "a cut changes what is read")


def seal(headers: bytes, payload: bytes) -> bytes:
    """Return a frame with right lengths and checksums around raw headers."""
    lengths = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    frame = lengths + struct.pack(">I", crc32(lengths)) + headers + payload
    return frame + struct.pack(">I", crc32(frame))


def decode(pieces: list[bytes]) -> tuple[list[Message], bool]:
    """Return the messages of these pieces of a stream, and whether it was refused in the end."""
    decoder = Decoder()
    messages: list[Message] = []
    fed = 0
    for piece in pieces:
        decoder.receive_data(piece)
        fed += len(piece)
        try:
            messages.extend(decoder.messages())
        except (ChecksumError, FrameError):
            hold(decoder.pending == 0, "a damaged stream is held")
            return messages, True
        read = sum(message.wire_length for message in messages)
        hold(decoder.pending == fed - read, "bytes are lost, or held twice")
        hold(decoder.pending < MAX_MESSAGE_LENGTH, "more is held than a message")
    return messages, False


def _frames(cursor: Cursor) -> Iterator[tuple[bytes, bytes]]:
    for _ in range(_MOST_FRAMES):
        if not cursor.left:
            return
        headers = cursor.take(cursor.byte())
        yield headers, cursor.take(cursor.byte())


def _check_damaged(damaged: bytes, sound: bytes, at: int) -> None:
    """Hold that a single flipped bit is never accepted: what comes before it is read, what holds it is not."""
    before, _ = decode([sound])
    after, failed = decode([damaged])
    hold(after == before[: len(after)], "a flipped bit gives a wrong message")
    hold(sum(message.wire_length for message in after) <= at, "a frame with a flipped bit was accepted")
    hold(failed, "a flipped bit is never noticed")


def _check_sealed(frames: list[tuple[bytes, bytes]], messages: list[Message], *, failed: bool) -> None:
    expected: list[Message] = []
    for headers, payload in frames:
        read = model_headers(headers)
        if read is None:
            break
        expected.append(Message(read, payload))
    hold(messages == expected, f"read {messages!r}, not {expected!r}")
    hold(failed == (len(expected) < len(frames)), "what the model refuses is accepted, or the other way round")
    for message, (headers, payload) in zip(messages, frames, strict=False):
        _check_encoded(message, seal(headers, payload))


def _check_encoded(message: Message, frame: bytes) -> None:
    """Hold that encoding what was read gives the same bytes again, and that botocore reads the same."""
    headers = message.headers
    texts = {name: value for name, value in headers.items() if isinstance(value, str)}
    if len(texts) == len(headers):
        again = encode(texts, bytes(message.payload))
        # A header that stands there twice is read once.
        hold(again == frame or len(again) < len(frame), "encoded again it is another frame")
    witness = botocore.eventstream.EventStreamBuffer()
    witness.add_data(frame)
    try:
        theirs = next(witness)
    except botocore.eventstream.DuplicateHeader:
        return
    hold(theirs.payload == bytes(message.payload), "botocore reads another payload")
    ours = {name: value.bytes if isinstance(value, uuid.UUID) else value for name, value in headers.items()}
    hold(theirs.headers == ours, f"botocore reads {theirs.headers!r}, not {ours!r}")


def model_headers(data: bytes) -> dict[str, HeaderValue] | None:
    """ShardReader headers as plainly as can be; None if they do not parse."""
    cursor = Cursor(data)
    headers: dict[str, HeaderValue] = {}
    try:
        while cursor.left:
            name = _exactly(cursor, cursor.byte()).decode()
            headers[name] = _model_value(cursor)
    except ValueError:
        return None
    return headers


def _model_value(cursor: Cursor) -> HeaderValue:
    kind = _exactly(cursor, 1)[0]
    if kind in {0, 1}:
        return kind == 0
    if kind in {6, 7}:
        raw = _exactly(cursor, int.from_bytes(_exactly(cursor, 2)))
        return raw if kind == 6 else raw.decode()  # noqa: PLR2004 - type bytes are the format
    if kind == _UUID:
        return uuid.UUID(bytes=_exactly(cursor, _UUID_BYTES))
    if kind in _FIXED:
        value: Any = struct.unpack(_FIXED[kind], _exactly(cursor, struct.calcsize(_FIXED[kind])))[0]
        return int(value)
    raise ValueError(f"no header has the type {kind}")


def _exactly(cursor: Cursor, size: int) -> bytes:
    taken = cursor.take(size)
    if len(taken) < size:
        raise ValueError("cut short")
    return taken


EVENT_HEADERS: Final = {
    ":event-type": "SubscribeToShardEvent",
    ":content-type": "application/x-amz-json-1.1",
    ":message-type": "event",
}


def seeds() -> Iterator[bytes]:
    """Make frames as Kinesis sends them, bare and to be sealed, and headers of every type."""
    event = encode(EVENT_HEADERS, b'{"Records":[],"MillisBehindLatest":0,"ContinuationSequenceNumber":"7"}')
    refusal = encode({":message-type": "exception", ":exception-type": "ResourceInUseException"}, b'{"message":"busy"}')
    for wire in (event, refusal, event + refusal, event[:-1], encode({}, b""), encode({}, b"{'foo':'bar'}")):
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
    words=(
        b":message-type\x07\0\x05event",
        b":event-type",
        b"\x05c\xc2\x48\xeb",
        b"\0\0\0\x10\0\0\0\0\x05\xc2\x48\xeb",
    ),
)
