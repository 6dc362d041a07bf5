"""UpdateShardCount: reshards a stream by splits and merges."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from efo.testing.errors import invalid_argument, limit_exceeded
from efo.testing.state.shards import ShardState
from efo.testing.state.streams import StreamState

_DAY: Final = 24 * 3600.0
UPDATES_A_DAY: Final = 10
_GROUP: Final = 4
_ROUNDING: Final = 1024
"""More hash keys than roundings can add up to."""
_MIN_SIZE: Final = 4 * _ROUNDING
"""The fewest hash keys of a shard after scaling, so that rounding never leaves a shard without keys."""


def count_scaling(stream: StreamState, target: int, now: float) -> None:
    """Count a call of UpdateShardCount. `now`: seconds since the epoch.

    Raises InvalidArgumentException: more than double or less than half the current shards, or (only the fake) shards
    of a few hash keys. Raises LimitExceededException: more than 10 calls within 24 hours.
    """
    current = len(stream.open_shards)
    if target > 2 * current or target < (current + 1) // 2:
        beyond = "up over double" if target > current else "down below half"
        raise invalid_argument(
            f"UpdateShardCount cannot scale {beyond} your current open shard count. Current open shard count: "
            f"{current} Target shard count: {target}"
        )
    if any(_size(group) // count < _MIN_SIZE for group, count in _groups(stream, target)):
        raise invalid_argument(f"UpdateShardCount would create shards of less than {_MIN_SIZE} hash keys")
    stream.scalings = [at for at in stream.scalings if now - at < _DAY]
    if len(stream.scalings) >= UPDATES_A_DAY:
        raise limit_exceeded(f"UpdateShardCount was called {UPDATES_A_DAY} times within 24 hours")
    stream.scalings.append(now)


def scale(stream: StreamState, target: int, now_millis: int) -> None:
    """Reshard to `target` shards, with temporary shards, as AWS does (AWS: UpdateShardCount).

    Four shards after the other are scaled by themselves, to shards of equal size. So if the target is a multiple of
    25 % of the current shards, and these have equal sizes, then so have the new ones. That it is groups of four is
    inferred: from the numbers of shards observed after scalings, and from AWS's advice to use multiples of 25 %.
    """
    for group, count in tuple(_groups(stream, target)):
        _scale_group(stream, group, count, now_millis)


def _groups(stream: StreamState, target: int) -> Iterator[tuple[list[ShardState], int]]:
    """Yield each group of open shards, and how many shards it becomes."""
    shards = stream.open_shards
    for first in range(0, len(shards), _GROUP):
        group = shards[first : first + _GROUP]
        end = first + len(group)
        yield group, target * end // len(shards) - target * first // len(shards)


def _size(group: list[ShardState]) -> int:
    return group[-1].end + 1 - group[0].start


def _scale_group(stream: StreamState, group: list[ShardState], target: int, now_millis: int) -> None:
    """Replace adjacent shards by `target` shards of equal size, from the lowest hash key to the highest."""
    start, size = group[0].start, _size(group)
    starts = [shard.start for shard in group]
    bounds = [_bound(starts, start + number * size // target) for number in range(1, target)]
    for first, following in pairwise((start, *bounds, start + size)):
        shard = stream.shard_of(first)
        while shard.end + 1 < following:
            adjacent = stream.shard_of(shard.end + 1)
            if adjacent.end + 1 > following:
                adjacent, _ = stream.split(adjacent.id, following, now_millis)
            shard = stream.merge(shard.id, adjacent.id, now_millis)
        if shard.end + 1 > following:
            stream.split(shard.id, following, now_millis)


def _bound(starts: list[int], key: int) -> int:
    """Return the start of a shard that differs from this bound only by rounding; without one, the bound itself."""
    nearest = min(starts, key=lambda start: abs(start - key))
    return nearest if abs(nearest - key) < _ROUNDING else key
