"""What a consumer holds while it runs, and what it leaks. Only this module reads private attributes of a consumer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from efo.consumer.consumer import Consumer
from efo.kinesis.pacing import SubscribePacer

STREAMS_PER_SHARD: Final = 2
"""The live attempt of a shard, and the candidate that takes over from it (rule R7)."""
SHARDS_IN_TRANSITION: Final = 2
"""Shards that may have open streams although their task has just ended or has not started yet."""


@dataclass(frozen=True, slots=True)
class StreamUsage:
    """The HTTP/2 streams of a consumer.

    `max_buffered`: the most bytes that one stream buffers. `open_streams`: how many streams are open. `max_streams`:
    how many may be open, for the shards that the consumer reads.
    """

    max_buffered: int
    open_streams: int
    max_streams: int


def stream_usage(consumer: Consumer) -> StreamUsage:
    """Return the stream usage of a running consumer."""
    streams = [stream for c in consumer._sources._pool._connections for stream in c._streams.values()]
    shards = len(consumer._running)
    max_streams = STREAMS_PER_SHARD * (shards + SHARDS_IN_TRANSITION)
    return StreamUsage(max((stream.buffered for stream in streams), default=0), len(streams), max_streams)


def find_leaks(consumer: Consumer) -> dict[str, int]:
    """Return how many entries each table of a consumer still has. After its context is left, this must be empty."""
    sources = consumer._sources
    limiter = sources._limiter
    if not isinstance(limiter, SubscribePacer):
        raise TypeError("the consumers of a simulation have a limiter each")
    tables = {
        "leases held": consumer._coordinator.held,
        "shards read": consumer._running,
        "shards begun": consumer._started,
        "connections": sources._pool._connections,
        "subscribes admitted": limiter._granted,
        "subscribes asked for": limiter._pacer._waiting,
    }
    return {name: len(table) for name, table in tables.items() if table}
