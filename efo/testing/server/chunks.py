"""What the body of a response is made of: bytes, and what else can happen in its place."""

from __future__ import annotations

from typing import Protocol, TypeAlias

import msgspec

from efo.testing.faults.kinds import WireFault


class Pause(msgspec.Struct, frozen=True, tag_field="kind", tag="pause"):
    """Nothing for so many seconds; for ever without a number."""

    seconds: float | None = None


Chunk: TypeAlias = bytes | Pause | WireFault


class Body(Protocol):
    """The body of a response that is made as it is sent. Whoever has it must close it."""

    async def next_chunk(self) -> Chunk | None:
        """Wait for what comes next; None is the end."""
        ...

    def close(self) -> None:
        """Free what the body holds."""
        ...
