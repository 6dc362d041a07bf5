"""Bounds the work that a peer's HTTP/2 frames cause: how many it may send, and how many are handled at once.

A read of 256 KiB may hold 29,000 frames, and h2 needs up to 30 µs for one. Here a frame costs one look at its header.
The limits are far above what servers send: a few SETTINGS and PING, and for each request two or three short frames.
Sources: CVE-2019-9511 to 9518, CVE-2023-44487 and CVE-2024-27316, which are floods of such frames.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from efo.errors import TransportError

MAX_STEP: Final = 256
"""The work of one step, in frames: some 8 ms in h2. Headers count more, see `_HEADER_WORK`."""
MAX_HEADER_BLOCK: Final = 64 * 1024
"""The maximum size of a header block in bytes, as large as the headers in it may be."""
MAX_SETTINGS: Final = 64
"""The maximum number of settings in a frame. RFC 9113 and its extensions define nine."""
MAX_SETTINGS_IN_ALL: Final = 1000
"""The same for all frames of a connection: h2 keeps each setting, and visits all of them for each frame."""

_HEADER: Final = struct.Struct(">BHBB4x")
"""Length (24 bits), type, flags, and the stream id (RFC 9113, section 4.1)."""
_DATA, _HEADERS, _SETTINGS, _CONTINUATION = 0, 1, 4, 9
_SETTING_SIZE: Final = 6
_END_STREAM: Final = 0x1
_NAMES: Final = {
    _DATA: "empty DATA",
    _HEADERS: "HEADERS",
    2: "PRIORITY",
    3: "RST_STREAM",
    _SETTINGS: "SETTINGS",
    5: "PUSH_PROMISE",
    6: "PING",
    7: "GOAWAY",
    8: "WINDOW_UPDATE",
    _CONTINUATION: "CONTINUATION",
}
LIMITS: Final = {
    _DATA: 5_000,
    _HEADERS: 5_000,
    2: 1_000,
    3: 5_000,
    _SETTINGS: 50,
    5: 10,
    6: 500,
    7: 50,
    8: 10_000,
    _CONTINUATION: 1_000,
}
"""How many frames of a type a peer may send within a second. Of DATA, only empty frames count: windows bound others."""
OTHER_LIMIT: Final = 1_000
"""The same for all frames of unknown types together."""
_HEADER_WORK: Final = 16
"""The work of a frame of headers, in frames: h2 decodes up to 64 KiB of them."""
_UNKNOWN: Final = 256


class FrameMeter:
    """Meters what one peer sends. `address`: its name, for errors."""

    __slots__ = ("_address", "_block", "_counts", "_partial", "_second", "_settings", "_skip")

    def __init__(self, address: str) -> None:
        self._address = address
        self._partial = b""  # the start of a frame header
        self._skip = 0  # the number of bytes of a frame that have not arrived
        self._second = 0.0  # when the present second began
        self._counts: dict[int, int] = {}  # the frames of each type in it
        self._block = 0  # the bytes of the present header block
        self._settings = 0

    def steps(self, data: bytes | bytearray, now: float) -> Iterator[bytes | bytearray | memoryview]:
        """Yield `data` in steps of bounded work, nearly always as a whole. Between two steps, other tasks should run.

        `now`: monotonic seconds. Raises TransportError as soon as the peer exceeds a limit; the frames before it were
        yielded, but for the last step.
        """
        if now >= self._second + 1:
            self._second, self._counts = now, {}
        size, unpack = len(data), _HEADER.unpack_from
        start = work = 0
        at = self._complete(data) if self._partial else self._skip
        while at + _HEADER.size <= size:
            high, low, kind, flags = unpack(data, at)
            length = high << 16 | low
            at += _HEADER.size + length
            work += 1
            if kind or not length:
                work += self._count(kind, flags, length)
            if work >= MAX_STEP and at < size:
                yield memoryview(data)[start:at]
                start, work = at, 0
        if not self._partial:
            self._skip, self._partial = max(0, at - size), bytes(data[at:])
        yield memoryview(data)[start:] if start else data

    def passed(self, partial: bytes) -> None:
        """Note a read that nothing of counts: frames of DATA that are not empty, and this start of another frame."""
        self._skip, self._partial = 0, partial
        if len(partial) >= _HEADER.size:
            high, low, _, _ = _HEADER.unpack_from(partial)
            self._skip, self._partial = _HEADER.size + (high << 16 | low) - len(partial), b""

    def _complete(self, data: bytes | bytearray) -> int:
        """Complete the frame header that the last read ended in. Return where its frame ends, or the end of `data`."""
        missing = _HEADER.size - len(self._partial)
        header = self._partial + data[:missing]
        if len(header) < _HEADER.size:
            self._partial = header
            return len(data)
        self._partial = b""
        high, low, kind, flags = _HEADER.unpack_from(header)
        length = high << 16 | low
        if kind or not length:
            self._count(kind, flags, length)
        return missing + int(length)

    def _count(self, kind: int, flags: int, length: int) -> int:
        """Count a frame that is not DATA, or is empty; return how much more work it is than others."""
        if kind == _DATA and flags & _END_STREAM:
            return 0
        known = kind if kind in LIMITS else _UNKNOWN
        count = self._counts[known] = self._counts.get(known, 0) + 1
        limit = LIMITS.get(kind, OTHER_LIMIT)
        if count > limit:
            name = _NAMES.get(kind, "unknown")
            raise TransportError(f"{self._address} sent more than {limit} {name} frames within a second")
        if kind == _SETTINGS:
            settings = length // _SETTING_SIZE
            self._settings += settings
            if settings > MAX_SETTINGS or self._settings > MAX_SETTINGS_IN_ALL:
                raise TransportError(
                    f"{self._address} sent {settings} settings in a frame and {self._settings} in all: at most"
                    f" {MAX_SETTINGS} and {MAX_SETTINGS_IN_ALL} are accepted"
                )
        elif kind in {_HEADERS, _CONTINUATION}:
            self._block = length + (self._block if kind == _CONTINUATION else 0)
            if self._block > MAX_HEADER_BLOCK:
                raise TransportError(f"{self._address} sent a header block of more than {MAX_HEADER_BLOCK} bytes")
            return _HEADER_WORK - 1
        return 0
