"""The partitions of record keys, as Java's producer chooses them, for many keys at once.

The client library can compute them too, record by record. Computing them first allows passing records to the library
partition by partition. That takes it two thirds of the time of mixed records.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

_SEED: Final = 0x9747B28C
_M: Final = np.uint32(0x5BD1E995)
_R13, _R15, _R24 = np.uint32(13), np.uint32(15), np.uint32(24)
_WORD: Final = 4


def murmur2(keys: Sequence[bytes]) -> NDArray[np.uint32]:
    """Return the hashes of the keys, as unsigned numbers (org.apache.kafka.common.utils.Utils.murmur2)."""
    hashes = np.empty(len(keys), np.uint32)
    by_length: dict[int, list[int]] = defaultdict(list)
    for row, key in enumerate(keys):
        by_length[len(key)].append(row)
    for length, rows in by_length.items():
        hashes[rows] = _hash_equal_lengths([keys[row] for row in rows], length)
    return hashes


def partitions(keys: Sequence[bytes], count: int) -> NDArray[np.uint32]:
    """Return the partition of each key out of `count`: its hash without the sign bit, modulo `count`."""
    return (murmur2(keys) & np.uint32(0x7FFFFFFF)) % np.uint32(count)


def _hash_equal_lengths(keys: list[bytes], length: int) -> NDArray[np.uint32]:
    whole, rest = divmod(length, _WORD)
    size = (whole + bool(rest)) * _WORD
    padded = b"".join(key.ljust(size, b"\0") for key in keys) if rest else b"".join(keys)
    words: NDArray[np.uint32] = np.frombuffer(padded, "<u4").reshape(len(keys), size // _WORD)
    hashes = np.full(len(keys), _SEED ^ length, np.uint32)
    for column in range(whole):
        mixed = words[:, column] * _M
        mixed = (mixed ^ (mixed >> _R24)) * _M
        hashes = (hashes * _M) ^ mixed
    if rest:
        hashes = (hashes ^ words[:, whole]) * _M
    hashes = (hashes ^ (hashes >> _R13)) * _M
    return hashes ^ (hashes >> _R15)
