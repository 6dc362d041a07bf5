"""Takes GOAWAY frames out of an HTTP/2 byte stream.

h2 refuses every frame after a GOAWAY, but the protocol lets the streams that it names go on (RFC 9113, section
6.8), and a host that is about to be replaced says it ahead of time. So GOAWAY never reaches h2: it is read here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_HEADER: Final = 9
_GOAWAY: Final = 7
_SMALLEST: Final = 8
_LARGEST: Final = 16_384
_STREAM_ID: Final = 0x7FFF_FFFF


@dataclass(frozen=True, slots=True)
class GoAway:
    """The peer takes no new streams; those up to `last_stream_id` go on. `error_code` as RFC 9113, section 7."""

    last_stream_id: int
    error_code: int


class GoAwayFilter:
    """Splits what the peer sends into GOAWAY frames and everything else, in order."""

    __slots__ = ("_buffer", "_skip")

    def __init__(self) -> None:
        # Bytes of a frame header, or of a GOAWAY frame, that is not complete.
        self._buffer = b""
        # Bytes of a frame other than GOAWAY that have not arrived.
        self._skip = 0

    def receive_data(self, data: bytes) -> Iterator[bytes | GoAway]:
        """Yield runs of bytes for h2, and each GOAWAY in its place."""
        if self._buffer:
            data = self._buffer + data
            self._buffer = b""
        start = at = 0
        while True:
            if self._skip:
                step = min(self._skip, len(data) - at)
                at += step
                self._skip -= step
            if len(data) - at < _HEADER:
                break
            length = int.from_bytes(data[at : at + 3])
            end = at + _HEADER + length
            # A GOAWAY of an impossible length, or on a stream, is left to h2, which refuses it.
            stream_id = int.from_bytes(data[at + 5 : at + _HEADER]) & _STREAM_ID
            if data[at + 3] != _GOAWAY or not _SMALLEST <= length <= _LARGEST or stream_id:
                self._skip = end - at
                continue
            if len(data) < end:
                break
            if at > start:
                yield data[start:at]
            payload = data[at + _HEADER : end]
            yield GoAway(int.from_bytes(payload[:4]) & _STREAM_ID, int.from_bytes(payload[4:8]))
            start = at = end
        if at > start:
            yield data[start:at]
        self._buffer = data[at:]
