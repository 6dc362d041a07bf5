"""Why the service does not find a shard: it is gone, or it is not visible yet."""

from __future__ import annotations

from math import inf

import trio

from efo.errors import EfoError, NotVisibleError, ShardGoneError
from efo.kinesis.control_plane import ControlPlane


class MissingShards:
    """Looks for shards that a call did not find. Thousands of shards may ask at once: they share one ListShards."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self._control_plane = control_plane
        self._listing = trio.Lock()
        self._listed: set[str] = set()
        self._listed_at = -inf  # when the call began that listed these shards

    async def explain(self, shard_id: str, operation: str, asked_at: float) -> EfoError | None:
        """Return why `operation` did not find a shard; None if the shard is listed.

        `asked_at`: a listing of that time or later is new enough. Raises ServiceError and TransportError.
        """
        async with self._listing:
            if self._listed_at <= asked_at:
                started_at = trio.current_time()
                self._listed = {shard.shard_id for shard in await self._control_plane.list_shards()}
                self._listed_at = started_at
        if shard_id in self._listed:
            return None
        # Kinesis numbers shards in the order of their creation. A list without a newer shard may be older than this
        # shard; to trust it would lose all records of the shard.
        if any(other > shard_id for other in self._listed):
            return ShardGoneError(f"{shard_id} no longer exists")
        return NotVisibleError(
            f"{operation} does not find {shard_id}, ListShards does not have it, and it is newer than all listed "
            "shards: it is not visible yet; if this goes on, the stream was deleted and created again, and the leases "
            "of the old stream must be deleted (efo leases delete)"
        )
