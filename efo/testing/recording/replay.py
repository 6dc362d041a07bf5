"""Replays a recording: sends the recorded bodies again, with the recorded timing."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Sequence

import trio

from efo.errors import ConfigurationError
from efo.model import HashKeyRange, Shard
from efo.testing.errors import FakeError
from efo.testing.faults.wire import Body, Chunk
from efo.testing.operations.requests import SubscribeToShard
from efo.testing.recording.file import RecordedLine, RecordedShard, Recording
from efo.testing.state.core import Core
from efo.testing.state.subscriptions import INITIAL_RESPONSE


class Replay:
    """Serves a recording: the n-th call for a shard receives the body of the n-th recorded call for this shard.

    `speed`: relative to the recorded timing. After the last recorded call, a call receives only the initial response.
    """

    def __init__(self, recording: Recording, core: Core, speed: float = 1.0) -> None:
        self._core = core
        self._speed = speed
        self._calls: dict[tuple[str, str], deque[Sequence[RecordedLine]]] = defaultdict(deque)
        for lines in recording.calls.values():
            if (call := lines[0].subscribe) is not None:
                self._calls[call.stream, call.shard].append(lines)
        for name, shards in recording.streams.items():
            _create_stream(core, name, shards)

    def open_body(self, request: SubscribeToShard, stream: str) -> Body:
        """Return the body of the next recorded call for the shard. Raises ResourceNotFoundException."""
        found, _ = self._core.consumer(request.consumer_arn)
        found.shard(request.shard_id)
        calls = self._calls[stream, request.shard_id]
        return _ReplayedBody(calls.popleft() if calls else [RecordedLine(data=INITIAL_RESPONSE)], self._speed)


class _ReplayedBody:
    def __init__(self, lines: Sequence[RecordedLine], speed: float) -> None:
        self._lines = iter(lines)  # one line at a time is in memory
        self._speed = speed
        self._recorded_at = lines[0].at
        self._started_at = trio.current_time()

    async def next_chunk(self) -> Chunk | None:
        for line in self._lines:
            await trio.sleep_until(self._started_at + (line.at - self._recorded_at) / self._speed)
            if line.end:
                return None
            if (chunk := line.data if line.data is not None else line.fault) is not None:
                return chunk
        await trio.sleep(math.inf)  # the recorded stream did not end cleanly, so this one stays open
        return None

    def close(self) -> None:
        self._lines = iter(())


def _create_stream(core: Core, name: str, shards: tuple[RecordedShard, ...]) -> None:
    """Create a stream with these shards, as they were at the end. Raises ConfigurationError."""
    parents = {parent for shard in shards for parent in shard.parents}
    try:
        stream = core.create_stream(name, 1)
        stream.replace_shards([_as_shard(shard, is_parent=shard.id in parents) for shard in shards], core.millis)
    except (FakeError, ValueError) as error:
        raise ConfigurationError(f"the recorded stream {name} cannot be created: {error}") from error


def _as_shard(shard: RecordedShard, *, is_parent: bool) -> Shard:
    """Return a shard. Version 1 does not say where it starts and ends: "" is replaced by numbers of the fake."""
    parent, adjacent = (*shard.parents, None, None)[:2]
    closed = "" if is_parent else None
    return Shard(
        shard.id, HashKeyRange(shard.start, shard.end), shard.first or "", shard.last or closed, parent, adjacent
    )
