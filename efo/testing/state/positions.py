"""The starting position of a subscription or an iterator: five types, with AWS's checks."""

from __future__ import annotations

from efo.model import Position, PositionType
from efo.testing.errors import invalid_argument
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
