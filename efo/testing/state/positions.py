"""The starting position of a subscription or an iterator, and shard iterators as opaque text.

An iterator is valid for 300 seconds (AWS: GetShardIterator).
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final

import msgspec

from efo.model import Position, PositionType
from efo.testing.errors import FakeError, invalid_argument
from efo.testing.state.sequence_numbers import shard_number_of
from efo.testing.state.shards import ShardState, shard_id


def starting_index(shard: ShardState, position: Position, now: float) -> int:
    """Return the index of the first record that a reader receives from `position`.

    `now`: seconds since the epoch. A sequence number or a time before the trim horizon means the trim horizon.
    Raises InvalidArgumentException: a part of the position is missing or not allowed for its type, the sequence
    number is from another shard, or the timestamp is in the future (AWS: StartingPosition, GetShardIterator).
    """
    _check_parts(position)
    match position.type:
        case PositionType.TRIM_HORIZON:
            return shard.trimmed
        case PositionType.LATEST:
            return shard.end_index
        case PositionType.AT_TIMESTAMP:
            return shard.index_at_time(_timestamp(position, now))
        case PositionType.AT_SEQUENCE_NUMBER:
            return shard.index_at(_sequence_number(shard, position))
        case PositionType.AFTER_SEQUENCE_NUMBER:
            return shard.index_after(_sequence_number(shard, position))


def _check_parts(position: Position) -> None:
    by_number = position.type in {PositionType.AT_SEQUENCE_NUMBER, PositionType.AFTER_SEQUENCE_NUMBER}
    if position.sequence_number is not None and not by_number:
        raise invalid_argument(f"A sequence number is not allowed when the starting position is {position.type}")
    if position.timestamp is not None and position.type is not PositionType.AT_TIMESTAMP:
        raise invalid_argument(f"Timestamp is not allowed when the starting position is {position.type}")


def _timestamp(position: Position, now: float) -> float:
    if position.timestamp is None:
        raise invalid_argument("Timestamp is required when the starting position is AT_TIMESTAMP")
    if position.timestamp > now:
        raise invalid_argument(f"Timestamp {position.timestamp} is in the future: it is {now} now")
    return position.timestamp


def _sequence_number(shard: ShardState, position: Position) -> str:
    number = position.sequence_number
    if number is None:
        raise invalid_argument(f"SequenceNumber is required when the starting position is {position.type}")
    encoded = shard_number_of(number)
    if encoded not in {None, shard.number}:
        raise invalid_argument(
            f"Invalid StartingSequenceNumber. It encodes {shard_id(encoded or 0)}, while it was used in a call to a "
            f"shard with {shard.id}"
        )
    if encoded is None or number < shard.starting_number:
        raise invalid_argument(
            f"StartingSequenceNumber {number} used on shard {shard.id} is invalid because it "
            "did not come from this shard"
        )
    return number


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
