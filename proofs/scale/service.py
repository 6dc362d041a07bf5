"""Kinesis' control plane within its limits: a call takes time, a listing has pages, and too many calls are refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import Any, Final, cast

import trio

from efo.errors import ThrottledError
from efo.kinesis.client import ControlPlane, KinesisClient
from efo.model import FanOutConsumer, Shard, StreamDescription
from efo.testing import FakeKinesis
from efo.testing.errors import FakeError
from efo.testing.state.throttle import Throttle

CALL_SECONDS: Final = 0.030
"""How long a call takes: assumed, typical of one region."""
PAGE_SHARDS: Final = 1000
"""Shards of one response of ListShards (AWS: ListShards)."""
TRIES: Final = 3
RETRY_SECONDS: Final = 0.3
"""A throttled call is tried so often, with pauses of this and twice this length, as botocore does by default."""


class LimitedService:
    """What all workers of an account share. `calls`, `throttled`: calls of the control plane, by operation."""

    def __init__(self, fake: FakeKinesis, stream: str) -> None:
        self.calls: Counter[str] = Counter()
        self.throttled: Counter[str] = Counter()
        self.by_second: Counter[tuple[str, int]] = Counter()
        self._stream = stream
        self._fake = fake
        self._throttle = Throttle()

    def client(self) -> KinesisClient:
        """Return what one worker needs to read the stream."""
        kinesis = self._fake.kinesis(self._stream)

        async def sign(_target: str, _body: bytes) -> Sequence[tuple[str, str]]:
            await trio.sleep(CALL_SECONDS)
            return ()

        plane = cast("ControlPlane", _LimitedPlane(self, kinesis.control_plane))
        return replace(kinesis, control_plane=plane, sign=sign)

    async def call(self, operation: str) -> None:
        """Make one call. Raises ThrottledError."""
        for attempt in range(TRIES):
            await trio.sleep(CALL_SECONDS)
            self.calls[operation] += 1
            try:
                self._throttle.call(operation, self._stream, trio.current_time())
            except FakeError:
                self.throttled[operation] += 1
                await trio.sleep(RETRY_SECONDS * 2**attempt)
            else:
                self.by_second[operation, int(trio.current_time())] += 1
                return
        raise ThrottledError("LimitExceededException", "Rate exceeded", status=400)

    def most_per_second(self, operation: str) -> int:
        """Return the most calls of an operation in one second."""
        return max((count for (name, _), count in self.by_second.items() if name == operation), default=0)


class _LimitedPlane:
    """A ControlPlane: that of the fake, within the limits of the account."""

    def __init__(self, service: LimitedService, inner: ControlPlane) -> None:
        self._service = service
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        """Return a call that is made too seldom to be limited here."""
        return getattr(self._inner, name)

    async def describe_stream(self) -> StreamDescription:
        await self._service.call("DescribeStreamSummary")
        return await self._inner.describe_stream()

    async def describe_consumer(self, stream_arn: str, name: str) -> FanOutConsumer:
        await self._service.call("DescribeStreamConsumer")
        return await self._inner.describe_consumer(stream_arn, name)

    async def list_shards(self) -> Sequence[Shard]:
        shards = await self._inner.list_shards()
        for _ in range(ceil(len(shards) / PAGE_SHARDS)):
            await self._service.call("ListShards")
        return shards
