"""The effect of a fault on an event: the chunks that are sent instead. Pure functions."""

from __future__ import annotations

import struct
from typing import Final
from zlib import crc32

import msgspec

from efo.protocol import eventstream
from efo.testing.faults.kinds import (
    BitFlip,
    ChangeSettings,
    Drip,
    EmptyResponse,
    EndStream,
    ErrorMessage,
    Fault,
    GoAway,
    NoInitialResponse,
    OversizedData,
    OversizedMessage,
    Repeat,
    Reset,
    Silence,
    Stall,
    StreamException,
    TcpCut,
    TlsCut,
    Truncate,
    WindowOverflow,
    WindowOverrun,
)
from efo.testing.faults.wire import Chunk, Pause

_PRELUDE_LENGTH: Final = 12
_CRC_LENGTH: Final = 4
_JSON: Final = "application/x-amz-json-1.1"


def effects(fault: Fault, event: bytes | None) -> list[Chunk | None]:  # noqa: PLR0911 - a table
    """Return the chunks that are sent instead of `event`; a chunk of None ends the stream.

    `event`: None if the fault fires between events. Reorder is not supported here, because it needs two events.
    """
    rest: list[Chunk | None] = [] if event is None else [event]
    match fault:
        case Reset() | TcpCut() | TlsCut() | GoAway(immediate=True):
            return [fault]
        case GoAway() | ChangeSettings() | Silence() | WindowOverrun() | WindowOverflow() | OversizedData():
            return [fault, *rest]
        case StreamException(code=code, message=message):
            headers = {":message-type": "exception", ":exception-type": code, ":content-type": _JSON}
            return [eventstream.encode(headers, msgspec.json.encode({"message": message})), None]
        case ErrorMessage(code=code, message=message):
            headers = {":message-type": "error", ":error-code": code, ":error-message": message}
            return [eventstream.encode(headers, b""), None]
        case EndStream():
            return [None]
        case OversizedMessage(length=length):
            lengths = struct.pack(">II", length, 0)
            return [lengths + struct.pack(">I", crc32(lengths)), *rest]
        case EmptyResponse(seconds=seconds):
            return [Pause(seconds), *rest]
        case NoInitialResponse():
            return []
        case _:
            return _event_effects(fault, event or b"")


def _event_effects(fault: Fault, event: bytes) -> list[Chunk | None]:
    """Return the chunks for a fault that needs an event."""
    match fault:
        case Truncate(keep=keep):
            return [event[: len(event) // 2 if keep is None else keep], None]
        case BitFlip(part=part, bit=bit):
            return [flip(event, part, bit)]
        case Stall(seconds=seconds):
            return [Pause(seconds), event]
        case Drip(bytes_per_second=rate, piece=piece):
            pieces = [event[at : at + piece] for at in range(0, len(event), piece)]
            return [chunk for data in pieces for chunk in (data, Pause(len(data) / rate))]
        case Repeat(copies=copies):
            return [event] * (1 + copies)
        case _:
            raise TypeError(f"{fault} has no effect on an event")


def flip(message: bytes, part: str, bit: int) -> bytes:
    """Return the message with one bit of one part inverted."""
    (headers_length,) = struct.unpack_from(">I", message, 4)
    headers_end = _PRELUDE_LENGTH + headers_length
    bounds = {
        "prelude": (0, _PRELUDE_LENGTH),
        "headers": (_PRELUDE_LENGTH, headers_end),
        "payload": (headers_end, len(message) - _CRC_LENGTH),
        "crc": (len(message) - _CRC_LENGTH, len(message)),
    }
    start, end = bounds[part]
    at, shift = divmod(bit % ((end - start) * 8), 8)
    damaged = bytearray(message)
    damaged[start + at] ^= 1 << shift
    return bytes(damaged)
