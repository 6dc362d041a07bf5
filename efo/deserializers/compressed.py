"""Compressed data: gzip and Zstandard. What a record may become is bounded: a megabyte of it may hold gigabytes."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable
from typing import Any, Final, TypeVar

from efo.checks import check_callable, check_count
from efo.deserializers.base import Deserializer, missing_extra, refused, with_data
from efo.model import Record

T = TypeVar("T")

MAX_SIZE: Final = 16 * 1024 * 1024
"""How many bytes the data of one record may be without compression, by default."""
MAX_PARTS: Final = 1000
"""How many members (gzip) or frames (Zstandard) the data of one record may have. What follows each is copied, so very
many would take minutes."""
_GZIP: Final = 31
_ZLIB: Final = 15
"""`wbits` of zlib: with gzip's header, and with zlib's."""
_WINDOW_LOGS: Final = (10, 31)
"""The limits of Zstandard for the logarithm of its window."""


def gzip(inner: Deserializer[T], *, max_size: int = MAX_SIZE) -> Deserializer[T]:
    """Return a deserializer that decompresses data with gzip, and passes it to `inner`.

    `max_size`: data that is more bytes than this without compression is refused. Raises ConfigurationError.
    """
    return _decompressing(inner, max_size, lambda record: inflated(record, record.data, max_size, _GZIP, "gzip"))


def zstd(inner: Deserializer[T], *, max_size: int = MAX_SIZE) -> Deserializer[T]:
    """Return a deserializer that decompresses data with Zstandard, and passes it to `inner`.

    `max_size`: as for `gzip`. Raises MissingExtraError before Python 3.14 without backports.zstd, and
    ConfigurationError.
    """
    zstandard: Any = _zstd_module()
    low, high = _WINDOW_LOGS

    def decompress(record: Record) -> bytes:
        # A frame may ask for a window that is far larger than its data.
        options = {zstandard.DecompressionParameter.window_log_max: min(max(low, max_size.bit_length()), high)}

        def new() -> Any:
            return zstandard.ZstdDecompressor(options=options)

        return _all_of(record, record.data, max_size, new, zstandard.ZstdError, "zstd")

    return _decompressing(inner, max_size, decompress)


def inflated(record: Record, data: bytes, max_size: int, wbits: int = _ZLIB, name: str = "zlib") -> bytes:
    """Return data without zlib's compression, or without gzip's. Raises DeserializationError."""
    return _all_of(record, data, max_size, lambda: zlib.decompressobj(wbits), zlib.error, name)


def _decompressing(inner: Deserializer[T], max_size: int, decompress: Callable[[Record], bytes]) -> Deserializer[T]:
    check_callable("inner", inner, "a deserializer", "record")
    check_count("max_size", max_size, unit=" bytes")
    return lambda record: inner(with_data(record, decompress(record)))


def _all_of(
    record: Record, data: bytes, max_size: int, new: Callable[[], Any], error: type[Exception], name: str
) -> bytes:
    """Decompress each member (gzip) or frame (Zstandard) of the data."""
    parts: list[bytes] = []
    room = max_size
    while len(parts) < MAX_PARTS:
        one = new()
        try:
            part = one.decompress(data, room + 1)
        except error:
            raise refused(record, f"not {name}") from None
        parts.append(part)
        room -= len(part)
        if room < 0:
            raise refused(record, f"{name} of more than {max_size:,} bytes: set max_size if that is right")
        if not one.eof:
            raise refused(record, f"not {name}: its end is missing")
        if not one.unused_data:
            return parts[0] if len(parts) == 1 else b"".join(parts)
        data = one.unused_data
    raise refused(record, f"{name} in more than {MAX_PARTS:,} parts")


def _zstd_module() -> Any:
    try:
        if sys.version_info >= (3, 14):
            from compression import zstd as module  # noqa: PLC0415 - only for this
        else:
            from backports import zstd as module  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise missing_extra("zstd", "backports.zstd", "zstd") from error
    return module
