"""Splits GOAWAY frames, and the DATA of known streams, from an HTTP/2 byte stream. Everything else is for h2.

GOAWAY: h2 rejects every frame after one. But the protocol lets the streams up to its last stream id continue (RFC 9113,
section 6.8), and a server sends GOAWAY some time before it shuts down.

DATA: h2 needs longer for the frames of a record stream than TLS and the kernel together. Here a frame costs one look at
its header, and one copy of its content.
"""

from __future__ import annotations

import struct
from collections.abc import Container, Iterator
from typing import Final

import msgspec

from efo.protocol.native import STEP, Step, StreamData

MAX_JOINED: Final = 64 * 1024
"""The content of a `Data` is at most this many bytes."""

_HEADER: Final = struct.Struct(">BHBBI")
"""Length (24 bits), type, flags, stream id (RFC 9113, section 4.1)."""
_DATA, _HEADERS, _PUSH_PROMISE, _GOAWAY, _CONTINUATION = 0, 1, 5, 7, 9
_END_STREAM_OR_PADDED: Final = 0x1 | 0x8
_END_HEADERS: Final = 0x4
_MIN_GOAWAY: Final = 8
_MAX_LENGTH: Final = 16_384
"""SETTINGS_MAX_FRAME_SIZE, which efo leaves at its default. h2 rejects longer frames."""
_STREAM_ID_MASK: Final = 0x7FFF_FFFF


class GoAwayFrame(msgspec.Struct, frozen=True):
    """The peer accepts no new streams. Streams up to `last_stream_id` continue. `error_code`: RFC 9113, section 7."""

    last_stream_id: int
    error_code: int


class Data(msgspec.Struct, frozen=True):
    """The content of DATA frames of one stream, which have no padding and do not end the stream."""

    stream_id: int
    content: bytes


class FrameSplitter:
    """Splits what the peer sends, and keeps its order: of all frames but DATA, and of the DATA of each stream.

    `data_streams`: the streams whose DATA is split off. Its owner changes it between the items of `receive_data`: a
    stream is in it while h2 would accept DATA for it. `step`: the native step; None for the Python step alone.
    """

    __slots__ = ("_data_streams", "_in_header_block", "_partial", "_skip", "_step")

    def __init__(self, data_streams: Container[int] = frozenset(), step: Step | None = STEP) -> None:
        self._data_streams = data_streams
        self._step = step
        # The start of a frame header, or of a frame that is split off.
        self._partial = b""
        # The number of bytes of another frame that have not arrived.
        self._skip = 0
        # In a header block, any frame but CONTINUATION is an error, which h2 must see (RFC 9113, section 4.3).
        self._in_header_block = False

    @property
    def partial(self) -> bytes:
        """The start of a frame that was not returned yet."""
        return self._partial

    def data_alone(self, data: bytes | bytearray, start: int, max_frames: int) -> tuple[list[StreamData], int] | None:
        """Return what `receive_data` would yield of `data[start:]`, by stream, if it is DATA alone, and where it ends.

        That is after `max_frames`, or the end of `data`. None if it is anything else, or may be: then nothing has
        changed. Frames without content are something else.
        """
        if self._step is None or self._skip or self._in_header_block or type(data) is not bytes:
            return None
        split = self._step.split_data(data, start, self._partial, self._data_streams, MAX_JOINED, max_frames)
        if split is None:
            return None
        streams, rest, is_limited = split
        end = len(data) - rest
        self._partial = b"" if is_limited else data[end:]
        return streams, end if is_limited else len(data)

    def only_data(self, data: bytes | bytearray | memoryview) -> Data | None:
        """Return what `receive_data` would yield, if that is the whole of one frame of DATA, as of a small event.

        None if it is anything else: then nothing has changed.
        """
        size = len(data) - _HEADER.size
        if self._partial or self._skip or not 0 <= size <= _MAX_LENGTH:
            return None
        high, low, kind, flags, stream_id = _HEADER.unpack_from(data)
        if kind != _DATA or high << 16 | low != size or not self._is_split(kind, flags, stream_id, size):
            return None
        return Data(stream_id, bytes(data[_HEADER.size :]))

    def receive_data(self, data: bytes | bytearray | memoryview) -> Iterator[bytes | Data | GoAwayFrame]:
        """Yield the bytes for h2, and between them what is split off."""
        view = memoryview(data)
        while self._partial:
            # Completes this frame alone: the bytes after it are not copied.
            missing = _frame_length(self._partial) - len(self._partial)
            if not view:
                return
            first, view = self._partial + view[:missing], view[missing:]
            yield from self._split(memoryview(first))
        if view:
            yield from self._split(view)

    def _split(self, view: memoryview) -> Iterator[bytes | Data | GoAwayFrame]:
        """Yield the parts of `view`; keep a partial frame at its end."""
        size = len(view)
        joined = _JoinedData()
        start = 0  # view[start:at] is for h2. It is empty while `joined` is not.
        at = min(self._skip, size)
        self._skip -= at
        while size - at >= _HEADER.size:
            high, low, kind, flags, stream_id = _HEADER.unpack_from(view, at)
            length, stream_id = high << 16 | low, stream_id & _STREAM_ID_MASK
            content = at + _HEADER.size
            end = content + length
            if self._is_split(kind, flags, stream_id, length):
                if end > size:
                    break
                if at > start:
                    yield bytes(view[start:at])
                    start = at
                    if not self._is_split(kind, flags, stream_id, length):
                        continue  # h2 has just learned that the stream is over
                if kind == _GOAWAY:
                    yield from joined.take_all()
                    last_stream_id, error_code = struct.unpack_from(">II", view, content)
                    yield GoAwayFrame(last_stream_id & _STREAM_ID_MASK, error_code)
                elif joined.add(stream_id, view[content:end]):
                    yield joined.take(stream_id)
                start = at = end
                continue
            yield from joined.take_all()
            if kind in {_HEADERS, _PUSH_PROMISE, _CONTINUATION}:
                self._in_header_block = not flags & _END_HEADERS
            at = min(end, size)
            self._skip = end - at
        # Before anything is yielded: the caller may stop to iterate.
        self._partial = bytes(view[at:])
        if at > start:
            yield bytes(view[start:at])
        yield from joined.take_all()

    def _is_split(self, kind: int, flags: int, stream_id: int, length: int) -> bool:
        if length > _MAX_LENGTH:
            return False
        if kind == _DATA:
            is_plain = not flags & _END_STREAM_OR_PADDED and not self._in_header_block
            return is_plain and stream_id in self._data_streams
        # h2 rejects a GOAWAY that is too short or has a stream id.
        return kind == _GOAWAY and length >= _MIN_GOAWAY and not stream_id


class _JoinedData:
    """Joins the DATA of each stream, so that a reader is woken once for many frames."""

    __slots__ = ("_pieces", "_sizes")

    def __init__(self) -> None:
        self._pieces: dict[int, list[memoryview]] = {}
        self._sizes: dict[int, int] = {}

    def add(self, stream_id: int, content: memoryview) -> bool:
        """Add the content of a frame. Return whether it must be taken, because another frame may be too much."""
        self._pieces.setdefault(stream_id, []).append(content)
        size = self._sizes[stream_id] = self._sizes.get(stream_id, 0) + len(content)
        return size > MAX_JOINED - _MAX_LENGTH

    def take(self, stream_id: int) -> Data:
        del self._sizes[stream_id]
        return Data(stream_id, b"".join(self._pieces.pop(stream_id)))

    def take_all(self) -> Iterator[Data]:
        while self._pieces:
            yield self.take(next(iter(self._pieces)))


def _frame_length(partial: bytes) -> int:
    """Return the length of a frame with its header, or of the header alone if that is incomplete."""
    if len(partial) < _HEADER.size:
        return _HEADER.size
    return _HEADER.size + int.from_bytes(partial[:3])
