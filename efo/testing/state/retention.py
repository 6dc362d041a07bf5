"""The retention period of a stream: deletes expired records, and then the closed shards that held them."""

from __future__ import annotations

from typing import Final

from efo.testing.errors import FakeError, invalid_argument
from efo.testing.state.streams import StreamState

MIN_HOURS: Final = 24
MAX_HOURS: Final = 8760
_HOUR: Final = 3600.0


def trim_horizon(stream: StreamState, now: float) -> float:
    """Return the trim horizon, the earliest arrival time of a kept record, in seconds since the epoch."""
    return max(stream.created_at, now - stream.retention_hours * _HOUR)


def trim(stream: StreamState, now: float) -> None:
    """Delete the records and shards that are expired at `now`, seconds since the epoch. Their memory is freed.

    A closed shard is deleted when all records that it can have held are expired. Its children keep its id as their
    parent's id (AWS: "Data routing, data persistence, and shard state after a reshard").
    """
    # Not limited to the stream's creation time as in trim_horizon: arrival times are whole milliseconds, so the first
    # records can appear older than the stream.
    horizon = now - stream.retention_hours * _HOUR
    for shard in tuple(stream.shards.values()):
        if shard.records and shard.records[0].approximate_arrival_timestamp < horizon:
            shard.trim(horizon)
        if shard.closed_at is not None and shard.closed_at / 1000 < horizon:
            del stream.shards[shard.id]


def increase(stream: StreamState, hours: int) -> None:
    """Increase the retention period (AWS: IncreaseStreamRetentionPeriod). The present period is accepted.

    Raises InvalidArgumentException.
    """
    _check(hours)
    if hours < stream.retention_hours:
        raise _refused(stream, hours, "shorter", "Decrease")
    stream.retention_hours = hours


def decrease(stream: StreamState, hours: int) -> None:
    """Decrease the retention period (AWS: DecreaseStreamRetentionPeriod). The present period is accepted.

    Raises InvalidArgumentException.
    """
    _check(hours)
    if hours > stream.retention_hours:
        raise _refused(stream, hours, "longer", "Increase")
    stream.retention_hours = hours


def _refused(stream: StreamState, hours: int, comparison: str, other: str) -> FakeError:
    return invalid_argument(
        f"Requested retention period ({hours} hours) for stream {stream.name} can not be {comparison} than existing "
        f"retention period ({stream.retention_hours:g} hours). Use {other}RetentionPeriod API."
    )


def _check(hours: int) -> None:
    if hours < MIN_HOURS:
        limit, problem = f"Minimum allowed retention period is {MIN_HOURS} hours", "short"
    elif hours > MAX_HOURS:
        limit, problem = f"Maximum allowed retention period is {MAX_HOURS} hours", "long"
    else:
        return
    raise invalid_argument(f"{limit}. Requested retention period ({hours} hours) is too {problem}.")
