"""Applies the fault script to calls, listings and subscriptions."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

from efo.testing.errors import FakeError
from efo.testing.faults.body import FaultyBody, FaultyResponse
from efo.testing.faults.effects import effects
from efo.testing.faults.kinds import RESPONSE_FAULTS, NoResponse, Refuse, Site, StaleListing
from efo.testing.faults.script import FaultScript, FaultTarget
from efo.testing.faults.wire import Body
from efo.testing.state.shards import ShardState
from efo.testing.state.streams import StreamState


class FaultInjector:
    """Applies a fault script. `clock` returns seconds since the fake's start."""

    def __init__(self, script: FaultScript, clock: Callable[[], float]) -> None:
        self._script = script
        self._clock = clock

    def call(self, operation: str, stream: str | None = None, shard: str | None = None) -> float:
        """Return the delay of a call's response in seconds; infinity: no response, and the call has no effect.

        Raises FakeError if the script rejects the call.
        """
        match self._script.take(Site.CALL, FaultTarget(operation, stream, shard), self._clock()):
            case Refuse(code=code, message=message, status=status):
                raise FakeError(code, message, status)
            case NoResponse(seconds=seconds):
                return math.inf if seconds is None else seconds
            case _:
                return 0.0

    def body(self, body: Body, stream: str, shard: str) -> Body:
        """Return the body of a subscription, changed by the script's faults."""
        return FaultyBody(body, self._script, FaultTarget("SubscribeToShard", stream, shard), self._clock)

    def response(self, operation: str, body: bytes | Body) -> bytes | Body:
        """Return the body of a response of another operation, changed by the script's faults."""
        if not isinstance(body, bytes) or not self._script:
            return body
        fault = self._script.take(Site.EVENT, FaultTarget(operation), self._clock())
        return FaultyResponse(effects(fault, body)) if isinstance(fault, RESPONSE_FAULTS) else body

    def listing(self, stream: StreamState, now_millis: int) -> list[ShardState]:
        """Return the shards for ListShards, stale if the script has a StaleListing, in the order of their ids."""
        shards = list(stream.shards.values())
        fault = self._script.take(Site.LISTING, FaultTarget("ListShards", stream.name), self._clock())
        if not isinstance(fault, StaleListing):
            return shards
        last = len(shards) if fault.last is None else fault.last
        moment = now_millis - int(fault.seconds * 1000)
        stale = [old for shard in shards[fault.first : last] if (old := _as_of(shard, moment)) is not None]
        return [*shards[: fault.first], *stale, *shards[last:]]


def stream_of_consumer(consumer_arn: str) -> str:
    """Return the name of the stream in a consumer's ARN. The stream may not exist."""
    return consumer_arn.partition("/consumer/")[0].rpartition("/")[2]


def _as_of(shard: ShardState, millis: int) -> ShardState | None:
    """Return the shard as it was at this time; None if it did not exist. Initial shards always exist."""
    if shard.parents and shard.opened_at > millis:
        return None
    if shard.closed_at is None or shard.closed_at <= millis:
        return shard
    old = copy.copy(shard)
    old.closed_at, old.ending_number, old.children = None, None, ()
    return old
