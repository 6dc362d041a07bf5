"""Which stream a consumer reads: what the service says of it, and whether that is still the same stream (rule R15)."""

from __future__ import annotations

from math import inf

import trio

from efo.errors import ResourceNotFoundError, ServiceError, StreamRecreatedError
from efo.identity import created_text, recreated
from efo.kinesis.control_plane import ControlPlane
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
