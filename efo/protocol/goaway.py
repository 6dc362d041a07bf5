"""Removes GOAWAY frames from an HTTP/2 byte stream.

h2 rejects every frame after a GOAWAY. But the protocol lets the streams up to its last stream id continue (RFC 9113,
section 6.8), and a server sends GOAWAY some time before it shuts down. So GOAWAY is parsed here and never reaches h2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_HEADER_LENGTH: Final = 9
_GOAWAY_TYPE: Final = 7
_MIN_LENGTH: Final = 8
_MAX_LENGTH: Final = 16_384
_STREAM_ID_MASK: Final = 0x7FFF_FFFF


@dataclass(frozen=True, slots=True)
class GoAway:
    """The peer accepts no new streams. Streams up to `last_stream_id` continue. `error_code`: RFC 9113, section 7."""

    last_stream_id: int
    error_code: int


class GoAwayFilter:
    """Separates GOAWAY frames from all other bytes that the peer sends, and keeps their order."""

    __slots__ = ("_buffer", "_skip")

    def __init__(self) -> None:
        # Bytes of an incomplete frame header or GOAWAY frame.
        self._buffer = b""
        # The number of bytes of another frame that have not arrived.
        self._skip = 0

    def receive_data(self, data: bytes) -> Iterator[bytes | GoAway]:
        """Yield the bytes for h2, and each GOAWAY at its place between them."""
        if self._buffer:
            data = self._buffer + data
            self._buffer = b""
        start = at = 0
        while True:
            if self._skip:
                step = min(self._skip, len(data) - at)
                at += step
                self._skip -= step
            if len(data) - at < _HEADER_LENGTH:
                break
            length = int.from_bytes(data[at : at + 3])
            end = at + _HEADER_LENGTH + length
            # h2 rejects a GOAWAY of an invalid length or with a stream id.
            stream_id = int.from_bytes(data[at + 5 : at + _HEADER_LENGTH]) & _STREAM_ID_MASK
            if data[at + 3] != _GOAWAY_TYPE or not _MIN_LENGTH <= length <= _MAX_LENGTH or stream_id:
                self._skip = end - at
                continue
            if len(data) < end:
                break
            if at > start:
                yield data[start:at]
            payload = data[at + _HEADER_LENGTH : end]
            yield GoAway(int.from_bytes(payload[:4]) & _STREAM_ID_MASK, int.from_bytes(payload[4:8]))
            start = at = end
        if at > start:
            yield data[start:at]
        self._buffer = data[at:]
