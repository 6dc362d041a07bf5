"""Where the events of one shard come from: a subscription, polling, or either in turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from efo.events import EndReason
from efo.health import ActiveReadMode, SubscriptionState
from efo.model import ChildShard, Position
from efo.protocol.messages import SubscribeToShardEvent


@dataclass(frozen=True, slots=True)
class ShardEnd:
    """The shard was read to its end; these are its children."""

    children: tuple[ChildShard, ...]


class ShardSource(Protocol):
    """The events of one shard after a position, in order, none lost or repeated.

    One source follows another at the `position` of the first: whatever kind they are, nothing is lost or repeated.
    """

    @property
    def position(self) -> Position:
        """The position after what `receive` has returned: where another source continues."""
        ...

    @property
    def state(self) -> SubscriptionState:
        """The state of the subscription, or of the polling."""
        ...

    @property
    def read_mode(self) -> ActiveReadMode:
        """How the events are read now."""
        ...

    @property
    def has_pending(self) -> bool:
        """Whether the reader, not Kinesis, is what is slow."""
        ...

    @property
    def pending_since(self) -> float | None:
        """When the event arrived that the reader has not taken yet, by trio's clock; None if none is known."""
        ...

    async def receive(self) -> SubscribeToShardEvent | ShardEnd | None:
        """Wait for the next event; at last for ShardEnd; None after `interrupt`.

        Raises the EfoError that retries cannot cure.
        """
        ...

    def interrupt(self) -> None:
        """Let a `receive` that waits return None, without loss."""
        ...

    def close(self, reason: EndReason) -> None:
        """End the source. `position` stays valid; do not call `receive` again."""
        ...
