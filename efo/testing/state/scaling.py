"""UpdateShardCount: reshards a stream to shards of equal size by splits and merges."""

from __future__ import annotations

from typing import Final

from efo.model import MAX_HASH_KEY
from efo.testing.errors import invalid_argument, limit_exceeded
from efo.testing.state.streams import StreamState

_DAY: Final = 24 * 3600.0
UPDATES_A_DAY: Final = 10


def count_scaling(stream: StreamState, target: int, now: float) -> None:
    """Count a call of UpdateShardCount. `now`: seconds since the epoch.

    Raises InvalidArgumentException: more than double or less than half the current shards. Raises
    LimitExceededException: more than 10 calls within 24 hours.
    """
    current = len(stream.open_shards)
    if target > 2 * current or target < (current + 1) // 2:
        raise invalid_argument(
            f"UpdateShardCount cannot scale stream {stream.name} from {current} to {target} shards: at most double "
            "and at least half are allowed"
        )
    stream.scalings = [at for at in stream.scalings if now - at < _DAY]
    if len(stream.scalings) >= UPDATES_A_DAY:
        raise limit_exceeded(f"UpdateShardCount was called {UPDATES_A_DAY} times within 24 hours")
    stream.scalings.append(now)


def scale(stream: StreamState, target: int, now_millis: int) -> None:
    """Reshard to `target` shards with hash key ranges of equal size.

    As on AWS, temporary shards appear: first every open shard is split at the boundaries of the new shards, then the
    parts of each new shard are merged (AWS: UpdateShardCount).
    """
    bounds = [number * (MAX_HASH_KEY + 1) // target for number in range(1, target)]
    _split_at(stream, bounds, now_millis)
    _merge_between(stream, bounds, now_millis)


def _split_at(stream: StreamState, bounds: list[int], now_millis: int) -> None:
    for bound in bounds:
        shard = stream.shard_of(bound)
        if shard.start != bound:
            stream.split(shard.id, bound, now_millis)


def _merge_between(stream: StreamState, bounds: list[int], now_millis: int) -> None:
    starts = {0, *bounds}
    merged = stream.open_shards[0]
    for piece in stream.open_shards[1:]:
        merged = piece if piece.start in starts else stream.merge(merged.id, piece.id, now_millis)
