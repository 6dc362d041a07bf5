"""Shard iterators: opaque text with the position at which GetRecords continues.

An iterator is valid for 300 seconds (AWS: GetShardIterator).
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final

import msgspec

from efo.testing.errors import FakeError, invalid_argument

ITERATOR_LIFE: Final = 300.0


class ShardIterator(msgspec.Struct, frozen=True, array_like=True):
    """A position in a shard. Times are seconds since the epoch.

    `created_at`: when the stream was created; a later stream can have the same name. `index`: index of the record.
    """

    stream: str
    created_at: float
    shard_id: str
    index: int
    issued_at: float


def encode_iterator(iterator: ShardIterator) -> str:
    """Return the iterator as text for the client."""
    return urlsafe_b64encode(msgspec.json.encode(iterator)).decode()


def decode_iterator(text: str, now: float) -> ShardIterator:
    """Return the iterator that the text encodes. Raises InvalidArgumentException, ExpiredIteratorException."""
    try:
        iterator = msgspec.json.decode(urlsafe_b64decode(text.encode()), type=ShardIterator)
    except (ValueError, msgspec.DecodeError):
        raise invalid_argument("Invalid ShardIterator.") from None
    if now - iterator.issued_at > ITERATOR_LIFE:
        raise FakeError(
            "ExpiredIteratorException",
            f"Iterator expired. The iterator was created at {iterator.issued_at:.3f} while right now it is {now:.3f}, "
            f"which is further in the future than the tolerated delay of {ITERATOR_LIFE * 1000:.0f} milliseconds.",
        )
    return iterator
