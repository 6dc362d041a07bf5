"""Which stream a consumer reads, and whether it is still the same one; why a shard is missing (rule R15)."""

from __future__ import annotations

from math import inf
from typing import Final

import trio

from efo.errors import (
    EfoError,
    NotVisibleError,
    ResourceNotFoundError,
    ServiceError,
    ShardGoneError,
    StreamRecreatedError,
)
from efo.identity import REMEDY, created_text, recreated
from efo.kinesis.client import ControlPlane
from efo.model import StreamDescription
from efo.protocol.identity import TOLERANCE, are_same


class StreamIdentity:
    """The description of one stream (AWS: DescribeStreamSummary), for as long as a consumer reads it.

    The service permits 20 such calls a second to a whole account. So it is asked at the start and when there is a
    reason, and all that ask at the same time share one call.

    `description`: as last asked; None before, and while the service does not permit the call. `opened_at`: when the
    consumer was opened (trio's clock): what was asked before may be of another stream.
    """

    def __init__(self, control_plane: ControlPlane, opened_at: float = -inf) -> None:
        self.opened_at = opened_at
        self.description: StreamDescription | None = None
        self._control_plane = control_plane
        self._asking = trio.Lock()
        self._asked_at = -inf
        self._created_at: float | None = None
        self._is_unreliable = False

    @property
    def created_at(self) -> float | None:
        """When the stream was created, by the first description; None if unknown."""
        return None if self._is_unreliable else self._created_at

    async def look(self, since: float) -> StreamDescription | None:
        """Return the description as of `since` (trio's clock) or later; None if the service does not permit the call.

        Raises as `describe` does.
        """
        async with self._asking:
            if self._asked_at < since:
                try:
                    await self._describe()
                except ServiceError as error:
                    if error.retryable or isinstance(error, ResourceNotFoundError):
                        raise
        return self.description

    async def describe(self) -> StreamDescription:
        """Ask for the description. Raises StreamRecreatedError, ServiceError and TransportError."""
        async with self._asking:
            return await self._describe()

    async def _describe(self) -> StreamDescription:
        asked_at = trio.current_time()
        try:
            description = await self._control_plane.describe_stream()
        except ServiceError as error:
            if not error.retryable:  # an answer too
                self._asked_at = asked_at
            raise
        if self._created_at is None:
            self._created_at = description.created_at
        elif await self.differs_from(self._created_at, description):
            how = created_text(self._created_at, description.created_at)
            raise StreamRecreatedError(recreated(description.name, how))
        self.description, self._asked_at = description, asked_at
        return description

    async def differs_from(self, created_at: float, described: StreamDescription | None = None) -> bool:
        """Return whether the stream is another one than that which was created at this time.

        `described`: as asked just now; None: as last asked. Before it says so it asks once more, some time later: a
        server whose times change from call to call says nothing by them.
        """
        described = described or self.description
        if self._is_unreliable or described is None or are_same(created_at, described.created_at) is not False:
            return False
        await trio.sleep(2 * TOLERANCE)
        again = await self._control_plane.describe_stream()
        self._is_unreliable = not are_same(described.created_at, again.created_at)
        return not self._is_unreliable


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
