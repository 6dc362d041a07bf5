"""What a consumer holds while it lives, and what is left of it: the only room here that looks inside one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from efo.consumer.consumer import Consumer

STREAMS_PER_SHARD: Final = 2
"""A shard's live attempt, and the candidate that is to take over from it (rule R7)."""
ON_THEIR_WAY: Final = 2
"""Streams that may be open for shards whose reading has just ended or is about to begin."""


@dataclass(frozen=True, slots=True)
class Gauge:
    """`buffered`: the most bytes that arrived on one stream and were not taken. `streams`: how many are open.

    `most_streams`: how many may be, by the shards that are read.
    """

    buffered: int
    streams: int
    most_streams: int


def gauge(consumer: Consumer) -> Gauge:
    """Return what a consumer holds now."""
    streams = [stream for c in consumer._caller._pool._connections for stream in c._streams.values()]
    shards = len(consumer._running)
    most = STREAMS_PER_SHARD * (shards + ON_THEIR_WAY)
    return Gauge(max((stream.buffered for stream in streams), default=0), len(streams), most)


def leftovers(consumer: Consumer) -> dict[str, int]:
    """Return what is left in the tables of a consumer whose context was left: nothing must be."""
    gate = consumer._gate
    tables = {
        "leases held": consumer.keeper.held,
        "shards read": consumer._running,
        "shards begun": consumer._started,
        "connections": consumer._caller._pool._connections,
        "subscribes admitted": gate._admitted,
        "subscribes asked for": gate._pacer._waiting,
    }
    return {name: len(table) for name, table in tables.items() if table}
