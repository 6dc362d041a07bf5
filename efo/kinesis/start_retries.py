"""The control plane while a consumer or producer starts: what passes by itself is waited for (rule R16).

When a fleet starts together, AWS throttles it; a service may answer 500 for a minute, and something in between may
answer in its place. None of it is a mistake of the operator. A mistake is reported at once: a stream that does not
exist, a missing right, an endpoint that cannot be reached and never was.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar, cast

import trio

from efo.errors import EfoError, InternalFailureError, ServiceError, ThrottledError, TransportError
from efo.events import Event, Observer, ShardsListed, StartDelayed
from efo.kinesis.client import ControlPlane
from efo.model import FanOutConsumer, Shard, StreamDescription
from efo.protocol.backoff import Backoff
from efo.protocol.denials import DOUBTS, is_odd

T = TypeVar("T")

LONGEST: Final = 20.0
"""The longest wait between two calls, in seconds. Waits are random between 0 and their bound, which doubles."""


class StartingControlPlane:
    """A ControlPlane that repeats calls until the start is over: until an event says that the shards are listed.

    It is an observer too. Later calls are made once: whoever makes them tries again. `plane`: the same, for mypy, which
    does not see the calls that are passed on.
    """

    def __init__(self, control_plane: ControlPlane, observer: Observer, rng: random.Random) -> None:
        self._inner = control_plane
        self._observer = observer
        self._rng = rng
        self._has_started = False
        self._has_answered = False
        self.plane = cast("ControlPlane", self)

    def observes(self, event_type: type) -> bool:
        """Whether an event of this type ends the start."""
        return event_type is ShardsListed

    def __call__(self, event: Event) -> None:
        """Note an event."""
        self._has_started |= isinstance(event, ShardsListed)

    async def describe_stream(self) -> StreamDescription:
        """Describe the stream."""
        return await self._patiently("DescribeStreamSummary", self._inner.describe_stream)

    async def list_shards(self) -> Sequence[Shard]:
        """List all shards."""
        return await self._patiently("ListShards", self._inner.list_shards)

    async def shards_open_at(self, timestamp: float) -> frozenset[str]:
        """List the shards that were open at a time."""
        return await self._patiently("ListShards", lambda: self._inner.shards_open_at(timestamp))

    async def describe_consumer(self, stream_arn: str, name: str) -> FanOutConsumer:
        """Describe a consumer."""
        return await self._patiently("DescribeStreamConsumer", lambda: self._inner.describe_consumer(stream_arn, name))

    async def register_consumer(
        self, stream_arn: str, name: str, tags: Mapping[str, str] | None = None
    ) -> FanOutConsumer:
        """Register a consumer. LimitExceededException is raised: it may be about the number of consumers."""
        call = partial(self._inner.register_consumer, stream_arn, name, tags)
        return await self._patiently("RegisterStreamConsumer", call)

    def __getattr__(self, name: str) -> Any:
        """Return a call that no start needs: it is made once."""
        return getattr(self._inner, name)

    async def _patiently(self, operation: str, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call; while the start lasts, until it succeeds or fails for good. `operation`: AWS's name."""
        backoff = Backoff(self._rng.random, initial=1.0, limit=LONGEST)
        odd = 0
        while True:
            try:
                result = await call()
            except EfoError as error:
                self._has_answered |= isinstance(error, ServiceError)
                odd += is_odd(error)
                if self._has_started or odd > DOUBTS or not self._passes(operation, error):
                    raise
                delay = backoff.next()
                self._observer(StartDelayed(operation, error.error_type, f"{operation}: {error}", delay))
            else:
                self._has_answered = True
                return result
            await trio.sleep(delay)

    def _passes(self, operation: str, error: EfoError) -> bool:
        if isinstance(error, ThrottledError):
            return not (operation == "RegisterStreamConsumer" and error.code == "LimitExceededException")
        if isinstance(error, TransportError):  # an endpoint that has never answered may be a wrong one
            return error.retryable and self._has_answered
        return isinstance(error, InternalFailureError) or is_odd(error)
