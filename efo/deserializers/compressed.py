"""Compressed data: gzip and Zstandard. What a record may become is bounded: a megabyte of it may hold gigabytes.

zlib-ng inflates: zlib needs up to twenty times as long for what is compressed most, 16 MiB of one byte.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

from zlib_ng import zlib_ng as zlib

from efo.checks import check_callable, check_count
from efo.deserializers.base import Deserializer, missing_extra, refused, with_data
from efo.model import Record

T = TypeVar("T")

MAX_SIZE: Final = 16 * 1024 * 1024
"""How many bytes the data of one record may be without compression, by default."""
MAX_PARTS: Final = 1000
"""How many members (gzip) or frames (Zstandard) the data of one record may have: each has a decompressor of its own."""
_PIECE: Final = 128 * 1024
_GZIP: Final = 31
_ZLIB: Final = 15
"""`wbits` of zlib: with gzip's header, and with zlib's."""
_GZIP_BEGINS: Final = (b"\x1f\x8b",)
_ZSTD_BEGINS: Final = (b"\x28\xb5\x2f\xfd", *(bytes((0x50 + i, 0x2A, 0x4D, 0x18)) for i in range(16)))
"""The first bytes of a member (RFC 1952), and of a frame or a frame that is skipped (RFC 8878)."""
_ZLIB_ERROR: Final[Any] = zlib.error  # its types have it as an instance
_WINDOW_LOGS: Final = (10, 31)
"""The limits of Zstandard for the logarithm of its window."""


class _Unpacked(threading.local):
    """How many bytes this thread has decompressed so far. Who gathers the values of many records looks at it."""

    size = 0

    def count(self, size: int) -> None:
        """Count data that was decompressed."""
        self.size += size


unpacked: Final = _Unpacked()


def gzip(inner: Deserializer[T], *, max_size: int = MAX_SIZE, or_plain: bool = False) -> Deserializer[T]:
    """Return a deserializer that decompresses data with gzip, and passes it to `inner`.

    `max_size`: data that is more bytes than this without compression is refused. `or_plain`: data that does not begin
    as gzip's does is passed on as it is. Raises ConfigurationError.
    """
    plain = _GZIP_BEGINS if or_plain else None
    return _decompressing(inner, max_size, lambda record: inflated(record, record.data, max_size, _GZIP, "gzip"), plain)


def zstd(inner: Deserializer[T], *, max_size: int = MAX_SIZE, or_plain: bool = False) -> Deserializer[T]:
    """Return a deserializer that decompresses data with Zstandard, and passes it to `inner`.

    `max_size`, `or_plain`: as for `gzip`. Raises MissingExtraError before Python 3.14 without backports.zstd, and
    ConfigurationError.
    """
    zstandard: Any = zstd_module()
    low, high = _WINDOW_LOGS

    def decompress(record: Record) -> bytes:
        # A frame may ask for a window that is far larger than its data.
        options = {zstandard.DecompressionParameter.window_log_max: min(max(low, max_size.bit_length()), high)}

        def new() -> Any:
            return zstandard.ZstdDecompressor(options=options)

        return _all_of(record, record.data, max_size, new, zstandard.ZstdError, "zstd")

    return _decompressing(inner, max_size, decompress, _ZSTD_BEGINS if or_plain else None)


def inflated(record: Record, data: bytes, max_size: int, wbits: int = _ZLIB, name: str = "zlib") -> bytes:
    """Return data without zlib's compression, or without gzip's. Raises DeserializationError."""
    return _all_of(record, data, max_size, lambda: zlib.decompressobj(wbits), _ZLIB_ERROR, name)


def _decompressing(
    inner: Deserializer[T],
    max_size: int,
    decompress: Callable[[Record], bytes],
    begins: tuple[bytes, ...] | None,
) -> Deserializer[T]:
    """`begins`: data that begins with none of these is not compressed; None: all data is."""
    check_callable("inner", inner, "a deserializer", "record")
    check_count("max_size", max_size, unit=" bytes")

    def deserialize(record: Record) -> T:
        if begins is not None and not record.data.startswith(begins):
            return inner(record)
        return inner(with_data(record, decompress(record)))

    return deserialize


def _all_of(
    record: Record, data: bytes, max_size: int, new: Callable[[], Any], error: type[Exception], name: str
) -> bytes:
    """Decompress each member (gzip) or frame (Zstandard) of the data.

    It is passed in pieces: a decompressor copies what follows its member, which may be nearly all of the data.
    """
    view: bytes | memoryview = data if len(data) <= _PIECE else memoryview(data)
    at = 0
    parts: list[bytes] = []
    room = max_size
    for _ in range(MAX_PARTS):
        one = new()
        while not one.eof:
            piece = view[at : at + _PIECE]
            if not piece:
                raise refused(record, f"not {name}: its end is missing")
            try:
                part = one.decompress(piece, room + 1)
            except error:
                raise refused(record, f"not {name}") from None
            parts.append(part)
            room -= len(part)
            if room < 0:
                raise refused(record, f"{name} of more than {max_size:,} bytes: set max_size if that is right")
            at += len(piece)
        at -= len(one.unused_data)
        if at == len(data):
            unpacked.count(max_size - room)
            return parts[0] if len(parts) == 1 else b"".join(parts)
    raise refused(record, f"{name} in more than {MAX_PARTS:,} parts")


def zstd_module() -> Any:
    """Return the module that reads Zstandard. Raises MissingExtraError."""
    try:
        if sys.version_info >= (3, 14):
            from compression import zstd as module  # noqa: PLC0415 - only for this
        else:
            from backports import zstd as module  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise missing_extra("zstd", "backports.zstd", "zstd") from error
    return module
