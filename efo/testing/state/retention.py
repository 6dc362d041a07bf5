"""What is older than a stream's retention period goes: records first, then the closed shards that held them."""

from __future__ import annotations

from typing import Final

from efo.testing.errors import invalid_argument
from efo.testing.state.streams import StreamState

LEAST_HOURS: Final = 24
MOST_HOURS: Final = 8760
_HOUR: Final = 3600.0


def trim_horizon(stream: StreamState, now: float) -> float:
    """Return the time of the oldest record that may still be there: seconds since the epoch."""
    return max(stream.created_at, now - stream.retention_hours * _HOUR)


def trim(stream: StreamState, now: float) -> None:
    """Forget what the retention period does not cover at `now`, seconds since the epoch. Memory is given back.

    A closed shard is forgotten once nothing that it can have held is left; its children keep its name as their
    parent's (AWS: "Data routing, data persistence, and shard state after a reshard").
    """
    # Not from the stream's creation on: records arrive in whole milliseconds, so the first ones may seem older than it.
    horizon = now - stream.retention_hours * _HOUR
    for shard in tuple(stream.shards.values()):
        if shard.records and shard.records[0].approximate_arrival_timestamp < horizon:
            shard.trim(horizon)
        if shard.closed_at is not None and shard.closed_at / 1000 < horizon:
            del stream.shards[shard.id]


def increase(stream: StreamState, hours: int) -> None:
    """Keep records longer (AWS: IncreaseStreamRetentionPeriod). Raises InvalidArgumentException."""
    _check(hours)
    if hours <= stream.retention_hours:
        raise invalid_argument(
            f"Requested retention period ({hours} hours) for stream {stream.name} can not be less than or equal to "
            f"the existing one ({stream.retention_hours} hours)"
        )
    stream.retention_hours = hours


def decrease(stream: StreamState, hours: int) -> None:
    """Keep records shorter (AWS: DecreaseStreamRetentionPeriod). Raises InvalidArgumentException."""
    _check(hours)
    if hours >= stream.retention_hours:
        raise invalid_argument(
            f"Requested retention period ({hours} hours) for stream {stream.name} can not be longer than or equal to "
            f"the existing one ({stream.retention_hours} hours)"
        )
    stream.retention_hours = hours


def _check(hours: int) -> None:
    if not LEAST_HOURS <= hours <= MOST_HOURS:
        raise invalid_argument(f"RetentionPeriodHours {hours}: {LEAST_HOURS} to {MOST_HOURS} are allowed")
