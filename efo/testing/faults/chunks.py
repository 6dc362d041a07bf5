"""The chunks of a response body: bytes, pauses and faults."""

from __future__ import annotations

from typing import Protocol, TypeAlias

import msgspec

from efo.testing.faults.kinds import WireFault


class Pause(msgspec.Struct, frozen=True, tag_field="kind", tag="pause"):
    """Send nothing for `seconds`; None: forever."""

    seconds: float | None = None


Chunk: TypeAlias = bytes | Pause | WireFault


class Body(Protocol):
    """A response body that is created while it is sent. The sender must close it."""

    async def next_chunk(self) -> Chunk | None:
        """Wait for the next chunk and return it; return None at the end."""
        ...

    def close(self) -> None:
        """Release the resources of the body."""
        ...
