"""The event-stream codec: decodes bytes to messages and encodes messages to bytes.

A message on the wire (all numbers big-endian; AWS: "Event stream encoding"):

    total length u32 | headers length u32 | prelude CRC u32 | headers | payload | message CRC u32

The prelude CRC is the CRC-32 of the first 8 bytes. The message CRC is the CRC-32 of all bytes before it. A header is
its name (u8 length, UTF-8), a type byte and a value. Kinesis sends only strings; the decoder accepts all types.
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
"""The maximum length of all headers of a message, in bytes (AWS)."""
MAX_MESSAGE_LENGTH: Final = 24 * 1024 * 1024
"""The maximum length of a message, in bytes (AWS: 24 MiB). The largest event is a 10 MiB record in base64."""
OVERHEAD: Final = 16
"""The length of the prelude (12 bytes) and the message CRC (4 bytes)."""

_PRELUDE: Final = struct.Struct(">III")
_U32: Final = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `wire_length`: the length of its frame in bytes, 0 if it was not decoded from a frame."""

    headers: Mapping[str, HeaderValue]
    payload: bytes | memoryview
    wire_length: int = field(default=0, compare=False)


class Decoder:
    """Decodes a stream of bytes, split at any place, to whole messages.

    After an error a decoder cannot be used again: a stream whose framing is lost cannot be resynchronized.
    """

    __slots__ = ("_buffer", "_failed", "_start")

    def __init__(self) -> None:
        self._buffer = bytearray()
        # The offset of the next message in the buffer: the bytes before it were yielded.
        self._start = 0
        self._failed = False

    @property
    def pending(self) -> int:
        """The number of buffered bytes of an incomplete message."""
        return len(self._buffer) - self._start

    def receive_data(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes from the wire."""
        if not self._failed:
            self._buffer += data

    def messages(self) -> Iterator[Message]:
        """Yield each complete message.

        Raises ChecksumError or FrameError after the messages before the damaged one.
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
    """Return the frame at `start`, None while it is incomplete."""
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
    """Raise ChecksumError or FrameError if the prelude is invalid, before the rest of the message arrives."""
    if crc32(lengths) != expected_crc:
        raise ChecksumError("prelude CRC mismatch: the frame was damaged in transit")
    if headers_length > MAX_HEADERS_LENGTH:
        raise FrameError(f"the headers have {headers_length} bytes: at most {MAX_HEADERS_LENGTH} are allowed")
    if total > MAX_MESSAGE_LENGTH:
        raise FrameError(f"the message has {total} bytes: at most {MAX_MESSAGE_LENGTH} are allowed")
    if total < headers_length + OVERHEAD:
        raise FrameError(f"the message has {total} bytes: too short for headers of {headers_length} bytes")


def _decode(frame: bytes) -> Message:
    total = len(frame)
    view = memoryview(frame)
    (expected,) = _U32.unpack_from(frame, total - 4)
    if crc32(view[: total - 4]) != expected:
        raise ChecksumError("message CRC mismatch: the frame was damaged in transit")
    headers_end = _PRELUDE.size + _U32.unpack_from(frame, 4)[0]
    headers = _decode_headers(frame[_PRELUDE.size : headers_end])
    return Message(headers, view[headers_end : total - 4], total)


# Values of a fixed length, by type byte. Types 0 and 1 are the booleans. Types 6 and 7 begin with their length.
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
                raise FrameError(f"header {name!r} exceeds the length of the headers")
            headers[name] = value
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise FrameError(f"the headers cannot be parsed: {error}") from error
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
                raise FrameError("a UUID header is truncated")
            return uuid.UUID(bytes=data[at:end]), end
        case _:
            raise FrameError(f"header type {kind} is unknown")


def encode(headers: Mapping[str, str], payload: bytes) -> bytes:
    """Return the frame of one message with string headers, as Kinesis sends it."""
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
