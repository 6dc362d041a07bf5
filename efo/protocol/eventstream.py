"""The event-stream codec: bytes to messages and back.

A message on the wire (all numbers big-endian; AWS: "Event stream encoding"):

    total length u32 | headers length u32 | prelude CRC u32 | headers | payload | message CRC u32

The prelude CRC is the CRC-32 of the first 8 bytes, the message CRC that of everything before it. A header is
its name (u8 length, UTF-8), a type byte and a value. Kinesis uses strings only; the others are understood.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final
from zlib import crc32

from efo.errors import ChecksumError, FrameError

HeaderValue = bool | int | bytes | str | uuid.UUID

MAX_HEADERS_LENGTH: Final = 128 * 1024
"""The longest headers that AWS allows."""
MAX_MESSAGE_LENGTH: Final = 24 * 1024 * 1024
"""The longest message that we take: AWS's 24 MiB. Kinesis' largest event is a 10 MiB record in base64."""
OVERHEAD: Final = 16
"""Prelude (12 bytes) and message CRC (4 bytes)."""

_PRELUDE: Final = struct.Struct(">III")
_U32: Final = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `wire_length` is the length in bytes that it had on the wire, 0 if it never was there."""

    headers: Mapping[str, HeaderValue]
    payload: bytes | memoryview
    wire_length: int = field(default=0, compare=False)


class Decoder:
    """Takes bytes as they come, cut anywhere, and gives whole messages.

    After an error it is of no further use: a stream that lost its framing cannot find it again.
    """

    __slots__ = ("_buffer", "_failed", "_start")

    def __init__(self) -> None:
        self._buffer = bytearray()
        # Where the next message starts in the buffer: what is before it was yielded.
        self._start = 0
        self._failed = False

    @property
    def pending(self) -> int:
        """How many bytes of an unfinished message are held."""
        return len(self._buffer) - self._start

    def receive_data(self, data: bytes | bytearray | memoryview) -> None:
        """Add bytes from the wire."""
        if not self._failed:
            self._buffer += data

    def messages(self) -> Iterator[Message]:
        """Yield each message that is complete.

        Raises ChecksumError and FrameError; the messages before the damaged one were yielded.
        """
        if self._failed:
            raise FrameError("the event stream was damaged earlier: open a new subscription")
        try:
            while (frame := _next_frame(self._buffer, self._start)) is not None:
                self._start += len(frame)
                yield _decode(frame)
        except (ChecksumError, FrameError):
            self._failed = True
            self._start = len(self._buffer)
            raise
        finally:
            del self._buffer[: self._start]
            self._start = 0


def _next_frame(buffer: bytearray, start: int) -> bytes | None:
    """Return the frame at `start`, or None while it is not complete."""
    available = len(buffer) - start
    if available < _PRELUDE.size:
        return None
    total, headers_length, prelude_crc = _PRELUDE.unpack_from(buffer, start)
    _check_prelude(bytes(buffer[start : start + 8]), total, headers_length, prelude_crc)
    if available < total:
        return None
    with memoryview(buffer) as view, view[start : start + total] as frame:
        return bytes(frame)


def _check_prelude(lengths: bytes, total: int, headers_length: int, expected_crc: int) -> None:
    """Refuse a prelude that cannot be right, before its message is waited for."""
    if crc32(lengths) != expected_crc:
        raise ChecksumError("prelude CRC mismatch: the frame was damaged on its way")
    if headers_length > MAX_HEADERS_LENGTH:
        raise FrameError(f"headers of {headers_length} bytes: at most {MAX_HEADERS_LENGTH} are allowed")
    if total > MAX_MESSAGE_LENGTH:
        raise FrameError(f"a message of {total} bytes: at most {MAX_MESSAGE_LENGTH} are allowed")
    if total < headers_length + OVERHEAD:
        raise FrameError(f"a message of {total} bytes cannot hold headers of {headers_length}")


def _decode(frame: bytes) -> Message:
    total = len(frame)
    view = memoryview(frame)
    (expected,) = _U32.unpack_from(frame, total - 4)
    if crc32(view[: total - 4]) != expected:
        raise ChecksumError("message CRC mismatch: the frame was damaged on its way")
    headers_end = _PRELUDE.size + _U32.unpack_from(frame, 4)[0]
    headers = _decode_headers(frame[_PRELUDE.size : headers_end])
    return Message(headers, view[headers_end : total - 4], total)


# Values of a fixed length, by type byte. Types 0 and 1 are the booleans, 6 and 7 have a length of their own.
_FIXED: Final = {
    2: struct.Struct(">b"),
    3: struct.Struct(">h"),
    4: struct.Struct(">i"),
    5: struct.Struct(">q"),
    8: struct.Struct(">q"),
}
_LENGTH: Final = struct.Struct(">H")
_UUID_BYTES: Final = 16


def _decode_headers(data: bytes) -> dict[str, HeaderValue]:
    headers: dict[str, HeaderValue] = {}
    at = 0
    try:
        while at < len(data):
            name_end = at + 1 + data[at]
            name = data[at + 1 : name_end].decode()
            kind = data[name_end]
            value, at = _decode_value(kind, data, name_end + 1)
            if at > len(data):
                raise FrameError(f"header {name!r} is longer than the headers")
            headers[name] = value
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise FrameError(f"headers do not parse: {error}") from error
    return headers


def _decode_value(kind: int, data: bytes, at: int) -> tuple[HeaderValue, int]:
    match kind:
        case 0 | 1:
            return kind == 0, at
        case 2 | 3 | 4 | 5 | 8:
            fixed = _FIXED[kind]
            return fixed.unpack_from(data, at)[0], at + fixed.size
        case 6 | 7:
            start = at + _LENGTH.size
            end = start + _LENGTH.unpack_from(data, at)[0]
            raw = data[start:end]
            return (raw if kind == 6 else raw.decode()), end  # noqa: PLR2004 - type bytes are the format
        case 9:
            end = at + _UUID_BYTES
            if end > len(data):
                raise FrameError("a UUID header is cut short")
            return uuid.UUID(bytes=data[at:end]), end
        case _:
            raise FrameError(f"unknown header type {kind}")


def encode(headers: Mapping[str, str], payload: bytes) -> bytes:
    """Return the bytes of one message with string headers, as Kinesis sends them."""
    encoded = bytearray()
    for name, value in headers.items():
        raw_name, raw_value = name.encode(), value.encode()
        encoded.append(len(raw_name))
        encoded += raw_name
        encoded.append(7)
        encoded += _LENGTH.pack(len(raw_value))
        encoded += raw_value
    total = OVERHEAD + len(encoded) + len(payload)
    lengths = struct.pack(">II", total, len(encoded))
    frame = b"".join((lengths, _U32.pack(crc32(lengths)), encoded, payload))
    return frame + _U32.pack(crc32(frame))
