"""Reads a shard by enhanced fan-out while that is possible, and by polling while it is not.

One source is read at a time, and the next one continues at its position. So nothing is lost or repeated at a change. A
shard changes to fan-out between two of its events, and to polling when its subscription is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

import trio

from efo.errors import AccessDeniedError, FanOutRefusedError, SilenceError
from efo.events import EndReason
from efo.health import ActiveReadMode, SubscriptionState
from efo.kinesis.polling.fan_out import TRIAL_TIMEOUT, FanOut
from efo.kinesis.shard_source import ShardEnd, ShardSource
from efo.model import Position
from efo.protocol.messages import SubscribeToShardEvent

_REFUSALS: Final = (AccessDeniedError, FanOutRefusedError)


class AutoSource:
    """The events of one shard, by fan-out or by polling. A ShardSource.

    `subscribe`, `poll`: make a source at a position. `fan_out`: what is possible now, for all shards of the consumer.
    """

    def __init__(
        self,
        position: Position,
        *,
        subscribe: Callable[[Position], ShardSource],
        poll: Callable[[Position], ShardSource],
        fan_out: FanOut,
    ) -> None:
        self._subscribe = subscribe
        self._poll = poll
        self._fan_out = fan_out
        self._is_subscribed = fan_out.is_used
        self._source = subscribe(position) if self._is_subscribed else poll(position)
        self._trial_until = inf

    @property
    def position(self) -> Position:
        """The position after what `receive` has returned."""
        return self._source.position

    @property
    def state(self) -> SubscriptionState:
        """The state of the source that is read."""
        return self._source.state

    @property
    def read_mode(self) -> ActiveReadMode:
        """How the events are read now."""
        return self._source.read_mode

    @property
    def has_pending(self) -> bool:
        """Whether the reader, not Kinesis, is what is slow."""
        return self._source.has_pending

    @property
    def pending_since(self) -> float | None:
        """When the event arrived that the reader has not taken yet; None if none is known."""
        return self._source.pending_since

    async def receive(self) -> SubscribeToShardEvent | ShardEnd | None:
        """Wait for the next event; None after `interrupt`. Raises the EfoError that retries cannot cure."""
        while True:
            if not self._is_subscribed:
                if self._source.state == "ended" or not self._fan_out.may_subscribe(self):
                    return await self._source.receive()
                self._trial_until = inf if self._fan_out.is_used else trio.current_time() + TRIAL_TIMEOUT
                self._continue_with(self._subscribe, "shutdown")
            try:
                with trio.move_on_at(self._trial_until) as trial:
                    event = await self._source.receive()
            except _REFUSALS as error:
                self._fan_out.refused(error, by=self)
                self._continue_with(self._poll, "service")
                continue
            if trial.cancelled_caught:
                silence = SilenceError(f"no event arrived by fan-out within {TRIAL_TIMEOUT:g} s")
                self._fan_out.refused(silence, by=self)
                self._continue_with(self._poll, "silence")
                continue
            if event is not None and self._trial_until < inf:
                self._trial_until = inf
                self._fan_out.works()
            return event

    def interrupt(self) -> None:
        """Let a `receive` that waits return None, without loss."""
        self._source.interrupt()

    def close(self, reason: EndReason) -> None:
        """End the source."""
        self._fan_out.end_trial(self)
        self._source.close(reason)

    def _continue_with(self, make: Callable[[Position], ShardSource], reason: EndReason) -> None:
        """Replace the source by another one, which continues at its position."""
        self._source.close(reason)
        self._is_subscribed = make is self._subscribe
        self._source = make(self._source.position)
        if not self._is_subscribed:
            self._trial_until = inf
