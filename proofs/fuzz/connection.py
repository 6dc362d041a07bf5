"""The HTTP/2 reader: the peer sends any frames in any order, or bytes that are no frames, beside a valid stream.

An input is a script for `peer`: what the peer sends, how that is cut into pieces, and what our side does in between.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

from proofs.fuzz.cursor import Cursor
from proofs.fuzz.peer import (
    DATA,
    END_HEADERS,
    HEADERS_FRAME,
    SETTINGS,
    SIBLING,
    STATUS_200,
    Act,
    Frame,
    Script,
    Step,
    run,
)
from proofs.fuzz.target import Target

RST_STREAM, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 3, 5, 6, 7, 8, 9
END_STREAM, PADDED = 1, 8

# The operations of an input. From _FRAME on: a frame of that type. There are ten types; the others are unknown.
_FOR_SIBLING, _ASK, _GIVE_UP, _FLOOD, _RAW, _FRAME = range(6)
_KINDS: Final = 12
_OPERATIONS: Final = _FRAME + _KINDS
_STREAMS: Final = (0, 3, 5, 7, 9, 2, 1001, 0x7FFF_FFFF)
_FLOODS: Final = (10, 100, 400)
_MAX_STEPS: Final = 64
_MAX_FLOODS: Final = 2
_LONG_PAYLOAD: Final = 0xF0
"""Payload lengths from this one on stand for long payloads of zeros, which are not in the input."""


def check(data: bytes) -> None:
    """Run the script that the input describes."""
    run(script_of(data))


def script_of(data: bytes) -> Script:
    """Return the script that an input describes: two bytes of choices about the peer, then the steps."""
    cursor = Cursor(data)
    choices, cuts = cursor.byte(), cursor.byte()
    steps = tuple(_steps(cursor))
    return Script(steps, sends_settings=not choices & 1, reads=not choices & 2, closes=not choices & 4, cuts=cuts)


def _steps(cursor: Cursor) -> Iterator[Step]:
    floods = 0
    for _ in range(_MAX_STEPS):
        if not cursor.left:
            return
        match operation := cursor.byte() % _OPERATIONS:
            case 0:
                yield Frame(DATA, 0, SIBLING, cursor.take(cursor.byte()))
            case 1:
                yield Act("request", cursor.byte())
            case 2:
                yield Act("close", cursor.byte())
            case 3:
                count = _FLOODS[cursor.byte() % len(_FLOODS)]
                frame = _frame(cursor.byte() % _KINDS, cursor)
                if (floods := floods + 1) <= _MAX_FLOODS:
                    yield from itertools.repeat(frame, count)
            case 4:
                yield cursor.take(cursor.byte())
            case _:
                yield _frame(operation - _FRAME, cursor)


def _frame(kind: int, cursor: Cursor) -> Frame:
    flags, stream_id = cursor.byte(), _STREAMS[cursor.byte() % len(_STREAMS)]
    size = cursor.byte()
    long = size - _LONG_PAYLOAD + 1
    return Frame(kind, flags, stream_id, bytes(long * 1100) if long > 0 else cursor.take(size))


def frame_of(frame: Frame) -> bytes:
    """Return the part of an input that describes a frame on one of `_STREAMS`, with less than 240 bytes of payload."""
    at = _STREAMS.index(frame.stream_id)
    return bytes([_FRAME + frame.kind, frame.flags, at, len(frame.payload)]) + frame.payload


def seeds() -> Iterator[bytes]:
    """Make inputs of a correct peer, and one input for each fault of a faulty one."""
    sibling = bytes([_FOR_SIBLING, 5]) + b"event"
    response = frame_of(Frame(HEADERS_FRAME, END_HEADERS, 3, STATUS_200))
    end = frame_of(Frame(DATA, END_STREAM, 3, b"the end"))
    frames = [
        Frame(DATA, 0, 3, b"data"),
        Frame(DATA, PADDED, 3, b"\x03data" + bytes(3)),
        Frame(HEADERS_FRAME, END_HEADERS | END_STREAM, 3, b"\x40\x09x-trailer\x011"),
        Frame(HEADERS_FRAME, 0, 5, STATUS_200),
        Frame(HEADERS_FRAME, END_HEADERS, 3, b"\x48\x03103\x0f\x10\x04text"),
        Frame(HEADERS_FRAME, END_HEADERS, 5, b"\x48\x03abc"),
        Frame(CONTINUATION, END_HEADERS, 5, b"\x40\x01a\x01b"),
        Frame(RST_STREAM, 0, 3, (8).to_bytes(4)),
        Frame(RST_STREAM, 0, 1001, bytes(4)),
        Frame(SETTINGS, 0, 0, b"\0\x04" + (10).to_bytes(4) + b"\0\x03" + (1).to_bytes(4)),
        Frame(SETTINGS, 0, 0, b"\0\x01\xff\xff\xff\xff\0\x05\0\0\x40\0"),
        Frame(SETTINGS, 1, 0),
        Frame(PING, 0, 0, bytes(8)),
        Frame(PING, 1, 0, bytes(8)),
        Frame(GOAWAY, 0, 0, (3).to_bytes(4) + bytes(4) + b"why"),
        Frame(WINDOW_UPDATE, 0, 3, (1000).to_bytes(4)),
        Frame(WINDOW_UPDATE, 0, 0, bytes(4)),
        Frame(WINDOW_UPDATE, 0, 0, (2**31 - 1).to_bytes(4)),
        Frame(PUSH_PROMISE, END_HEADERS, 3, (2).to_bytes(4) + STATUS_200),
        Frame(2, 0, 3, bytes(5)),
        Frame(10, 0, 0, b"extension"),
    ]
    acts = bytes([_ASK, 0, _ASK, 1, _GIVE_UP, 0, _GIVE_UP, 1])
    yield bytes([0, 1]) + response + sibling + end + acts + sibling
    for choices, frame in enumerate(frames):
        part = frame_of(frame)
        yield bytes([choices & 6, choices]) + response + part + sibling + end
        yield bytes([choices & 6, 0, _FLOOD, choices, frame.kind]) + part[1:] + sibling
        yield bytes([1, choices, _RAW, len(bytes(frame))]) + bytes(frame)
    yield bytes([1, 3, _RAW, 32]) + b"HTTP/1.1 400 Bad Request\r\n\r\n...."


TARGET: Final = Target(
    "http2",
    "the HTTP/2 reader",
    check,
    seeds,
    dictionary=(
        STATUS_200,
        b"\x40\x01a\x01b",
        b"\x48\x03200",
        b"\x3f\xe1\x1f",
        b"\x7f\xff\xff\xff",
        b"\0\0\0\x08\x06",
        b"\0\x04\x7f\xff\xff\xff",
    ),
    max_length=1024,
)
