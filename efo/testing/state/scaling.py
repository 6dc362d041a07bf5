"""UpdateShardCount: a stream gets as many shards of equal size as wanted, by splits and merges with their lineage."""

from __future__ import annotations

from typing import Final

from efo.model import MAX_HASH_KEY
from efo.testing.errors import invalid_argument, limit_exceeded
from efo.testing.state.streams import StreamState

_DAY: Final = 24 * 3600.0
UPDATES_A_DAY: Final = 10


def scale(stream: StreamState, target: int, now: float) -> None:
    """Reshard to `target` shards that share the hash keys equally; `now` is in seconds since the epoch.

    As AWS does it, shards that live for a moment only appear in between: every open shard is split where a bound of
    the new ones lies inside it, then the pieces of each new shard are merged (AWS: UpdateShardCount).
    Raises InvalidArgumentException (more than double, less than half), LimitExceededException (the 11th in 24 h).
    """
    current = len(stream.open_shards)
    if target > 2 * current or target < (current + 1) // 2:
        raise invalid_argument(
            f"UpdateShardCount cannot scale stream {stream.name} from {current} to {target} shards: at most double, "
            "and at least half, are allowed"
        )
    stream.scalings = [at for at in stream.scalings if now - at < _DAY]
    if len(stream.scalings) >= UPDATES_A_DAY:
        raise limit_exceeded(f"UpdateShardCount was called {UPDATES_A_DAY} times within 24 hours")
    stream.scalings.append(now)
    bounds = [number * (MAX_HASH_KEY + 1) // target for number in range(1, target)]
    _split_at(stream, bounds, int(now * 1000))
    _merge_between(stream, bounds, int(now * 1000))


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
