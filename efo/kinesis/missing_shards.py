"""Why the service does not find a shard: it is gone, it is not visible yet, or the stream is another one."""

from __future__ import annotations

from math import inf
from typing import Final

import trio

from efo.errors import EfoError, NotVisibleError, ShardGoneError, StreamRecreatedError
from efo.identity import REMEDY
from efo.kinesis.control_plane import ControlPlane
from efo.kinesis.identity import StreamIdentity

NOT_VISIBLE_FOR: Final = 300.0
"""Seconds after which a shard that neither a call nor ListShards finds is not merely late."""


class MissingShards:
    """Looks for shards that a call did not find. Thousands of shards may ask at once: they share one ListShards.

    `identity`: of the stream, to notice first that it is another one.
    """

    def __init__(self, control_plane: ControlPlane, identity: StreamIdentity | None = None) -> None:
        self._control_plane = control_plane
        self._identity = identity or StreamIdentity(control_plane)
        self._listing = trio.Lock()
        self._listed: set[str] = set()
        self._listed_at = -inf  # when the call began that listed these shards
        self._missing_since: dict[str, float] = {}

    async def explain(self, shard_id: str, operation: str, asked_at: float) -> EfoError | None:
        """Return why `operation` did not find a shard; None if the shard is listed.

        `asked_at`: a listing of that time or later is new enough. Raises ServiceError, TransportError and
        StreamRecreatedError.
        """
        async with self._listing:
            if self._listed_at <= asked_at:
                started_at = trio.current_time()
                await self._identity.look(asked_at)
                self._listed = {shard.shard_id for shard in await self._control_plane.list_shards()}
                self._listed_at = started_at
        # Kinesis numbers shards in the order of their creation. A list without a newer shard may be older than this
        # shard; to trust it would lose all records of the shard.
        is_visible = shard_id in self._listed
        if is_visible or any(other > shard_id for other in self._listed):
            self._missing_since.pop(shard_id, None)
            return None if is_visible else ShardGoneError(f"{shard_id} no longer exists")
        what = (
            f"{operation} does not find {shard_id}, ListShards does not have it, and it is newer than all listed shards"
        )
        missing_for = asked_at - self._missing_since.setdefault(shard_id, asked_at)
        if missing_for < NOT_VISIBLE_FOR:
            return NotVisibleError(f"{what}: it is not visible yet")
        return StreamRecreatedError(
            f"{what}, for {missing_for:.0f} s: its lease is of a former stream of this name, which was deleted and"
            f" created again; {REMEDY}"
        )
