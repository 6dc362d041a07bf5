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
from types import MappingProxyType
from typing import Final

import msgspec
from zlib_ng.zlib_ng import crc32

from efo.errors import ChecksumError, FrameError
from efo.third_party_errors import reason_of

HeaderValue = bool | int | bytes | str | uuid.UUID

MAX_HEADERS_LENGTH: Final = 128 * 1024
"""The maximum length of all headers of a message, in bytes (AWS)."""
MAX_HEADERS: Final = 1024
"""The maximum number of headers of a message. Their names are unique. (AWS's decoders in C and Python.)"""
MAX_MESSAGE_LENGTH: Final = 24 * 1024 * 1024
"""The maximum length of a message, in bytes (AWS: 24 MiB). The largest event is a 10 MiB record in base64."""
OVERHEAD: Final = 16
"""The length of the prelude (12 bytes) and the message CRC (4 bytes)."""

_SMALL: Final = 1024
"""Chunks shorter than this are joined when they arrive: a single byte as a chunk takes fifty times its memory."""
_PRELUDE: Final = struct.Struct(">III")
_U32: Final = struct.Struct(">I")


class EventStreamMessage(msgspec.Struct, frozen=True, eq=False):
    """One message. `wire_length`: the length of its frame in bytes, 0 if it was not decoded from a frame."""

    headers: Mapping[str, HeaderValue]
    payload: bytes | memoryview
    wire_length: int = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EventStreamMessage) and (self.headers, self.payload) == (other.headers, other.payload)

    __hash__ = None  # type: ignore[assignment]


class EventStreamDecoder:
    """Decodes a stream of bytes, split at any place, to whole messages.

    After an error a decoder cannot be used again: a stream whose framing is lost cannot be resynchronized.

    `pending`: the number of buffered bytes of an incomplete message.
    """

    __slots__ = ("_at", "_data", "_failed", "_headers", "_later", "_raw_headers", "_total", "pending")

    def __init__(self) -> None:
        # The next frame starts at `_at` in `_data`, and continues in `_later`.
        self._data: bytes | memoryview = b""
        self._at = 0
        self._later: list[bytes | memoryview] = []
        self.pending = 0
        self._total = 0  # the length of the next frame; 0 until its prelude was checked
        self._raw_headers = b""
        self._headers: Mapping[str, HeaderValue] = MappingProxyType({})
        self._failed = False

    def receive_data(self, data: bytes | memoryview) -> None:
        """Append bytes from the wire. They are not copied, so they must not change later."""
        if self._failed or not data:
            return
        if not self.pending:
            self._data, self._at = data, 0
        elif self._later and len(self._later[-1]) < _SMALL:
            self._later[-1] = b"".join((self._later[-1], data))
        else:
            self._later.append(data)
        self.pending += len(data)

    def messages(self) -> Iterator[EventStreamMessage]:
        """Yield each complete message. Raises as `next_message` does, after the messages before the damaged one."""
        return iter(self.next_message, None)

    def next_message(self) -> EventStreamMessage | None:
        """Return the next message, None while it is incomplete.

        Its payload is a view of the bytes that arrived. Raises ChecksumError or FrameError.
        """
        return self._take_message() if self.has_message() else None

    def _take_message(self) -> EventStreamMessage:
        if len(self._data) - self._at < self._total:
            self._join()
        try:
            message = self._decode(memoryview(self._data)[self._at : self._at + self._total])
        except (ChecksumError, FrameError):
            self._fail()
            raise
        self._advance()
        return message

    def has_message(self) -> bool:
        """Return whether the next message has arrived as a whole. Raises ChecksumError or FrameError."""
        if self._failed:
            raise FrameError("the event stream was damaged earlier: open a new subscription")
        if self.pending < (self._total or _PRELUDE.size):
            return False
        if not self._total:
            if len(self._data) - self._at < _PRELUDE.size:
                self._join()
            try:
                self._total = _checked_total(self._data, self._at)
            except (ChecksumError, FrameError):
                self._fail()
                raise
        return self.pending >= self._total

    def _fail(self) -> None:
        self._failed = True
        self._data, self._later, self.pending = b"", [], 0

    def _advance(self) -> None:
        """Go on after the next message."""
        self._at += self._total
        self.pending -= self._total
        self._total = 0
        while self._later and self._at >= len(self._data):  # it was read without being joined
            self._at -= len(self._data)
            self._data = self._later.pop(0)
        if not self.pending:
            self._data = b""

    def _decode(self, frame: memoryview) -> EventStreamMessage:
        _check_message(frame)
        headers_end = _PRELUDE.size + _U32.unpack_from(frame, 4)[0]
        raw_headers = frame[_PRELUDE.size : headers_end]
        if raw_headers != self._raw_headers:
            # The events of a subscription all have the same headers.
            self._raw_headers = bytes(raw_headers)
            self._headers = MappingProxyType(_decode_headers(self._raw_headers))
        return EventStreamMessage(self._headers, frame[headers_end : -_U32.size], len(frame))

    def _join(self) -> None:
        """Make all bytes contiguous, when a frame has not arrived as a whole."""
        self._data = b"".join((memoryview(self._data)[self._at :], *self._later))
        self._at, self._later = 0, []


def _checked_total(data: bytes | memoryview, at: int) -> int:
    """Return the length of the frame at `at`. Raises before the rest of it arrives if its prelude is invalid."""
    total, headers_length, prelude_crc = _PRELUDE.unpack_from(data, at)
    _check_prelude(data[at : at + 8], total, headers_length, prelude_crc)
    return int(total)


def _check_prelude(lengths: bytes | memoryview, total: int, headers_length: int, expected_crc: int) -> None:
    """Raise ChecksumError or FrameError if the prelude is invalid."""
    if crc32(lengths) != expected_crc:
        raise ChecksumError("prelude CRC mismatch: the frame was damaged in transit")
    if headers_length > MAX_HEADERS_LENGTH:
        raise FrameError(f"the headers have {headers_length} bytes: at most {MAX_HEADERS_LENGTH} are allowed")
    if total > MAX_MESSAGE_LENGTH:
        raise FrameError(f"the message has {total} bytes: at most {MAX_MESSAGE_LENGTH} are allowed")
    if total < headers_length + OVERHEAD:
        raise FrameError(f"the message has {total} bytes: too short for headers of {headers_length} bytes")


def _check_message(frame: memoryview) -> None:
    """Raise ChecksumError unless the frame ends with the CRC of the bytes before."""
    end = len(frame) - _U32.size
    if crc32(frame[:end]) != _U32.unpack_from(frame, end)[0]:
        raise ChecksumError("message CRC mismatch: the frame was damaged in transit")


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
            if name in headers:
                raise FrameError(f"header {name!r} occurs twice")
            if len(headers) == MAX_HEADERS:
                raise FrameError(f"the message has more than {MAX_HEADERS} headers")
            headers[name] = value
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise FrameError(f"the headers cannot be parsed: {reason_of(error)}") from None
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
