"""Reads shards by fan-out while that is possible, else by polling: all shards of a consumer share that decision.

One source is read at a time, and the next one continues at its position. So nothing is lost or repeated at a change. A
shard changes to fan-out between two of its events, and to polling when its subscription is refused.

Fan-out is refused if the fan-out consumer cannot be registered, since the stream has as many as it may, or if the
credentials permit no registration or no SubscribeToShard, or if the consumer was deleted and efo may not register it.
Then all shards are polled. After an interval the consumer is registered, if that is what failed, and one shard
subscribes as a trial. If an event arrives, all shards follow.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

import trio

from efo.errors import (
    AccessDeniedError,
    ConsumerLimitError,
    ConsumerNotActiveError,
    ConsumerNotFoundError,
    EfoError,
    FanOutRefusedError,
    ResourceNotFoundError,
    SilenceError,
    without_tracebacks,
)
from efo.events import EndReason, Observer, ReadModeChanged
from efo.health import ActiveReadMode, SubscriptionState
from efo.kinesis.registration import Registration
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


REGISTER_TIMEOUT: Final = 60.0
"""Seconds for the registration. A start that is throttled, or meets a consumer that is stuck, polls meanwhile."""
TRIAL_TIMEOUT: Final = 30.0
"""Seconds in which the first event of a trial must arrive. A shard that waits for it is not read meanwhile."""


class FanOut:
    """Whether enhanced fan-out is used. `is_used`: whether shards are to be read by it now. `error`: why not, if not.

    `retry_interval`: seconds after which it is tried again, by one shard at a time, however short the interval is.
    """

    def __init__(self, registration: Registration, *, retry_interval: float, observer: Observer) -> None:
        self.is_used = True
        self.error: EfoError | None = None
        self._registration = registration
        self._is_registered = False
        self._retry_interval = retry_interval
        self._retry_at = -inf
        self._observer = observer
        self._trial: object = None  # the source of the shard that tries
        self._trial_until = -inf

    async def keep_registered(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Register the consumer; if that is refused, try again at the interval, until cancelled.

        Raises EfoError if the first registration fails for another reason.
        """
        await self._register()
        task_status.started()
        while True:
            await trio.sleep(self._retry_interval)
            if not self._is_registered:
                try:
                    await self._register()
                except EfoError as error:
                    self.refused(error)

    async def _register(self) -> None:
        try:
            with trio.move_on_after(REGISTER_TIMEOUT) as scope:
                await self._registration.ensure()
        except (ConsumerLimitError, ConsumerNotActiveError, AccessDeniedError) as error:
            self.refused(error)
        else:
            if scope.cancelled_caught:
                message = f"the fan-out consumer was not found and ACTIVE within {REGISTER_TIMEOUT:g} s"
                self.refused(ConsumerNotActiveError(message))
                return
            self._is_registered = True
            self._retry_at = -inf

    def may_subscribe(self, source: object) -> bool:
        """Return whether a shard that is polled may subscribe now. If that is a trial, only one shard may.

        `source`: what asks. Its trial ends with `refused`, `works` or `end_trial`, or when its time is over: a reader
        that was paused in it must not keep the others from trying.
        """
        if self.is_used:
            return True
        now = trio.current_time()
        if not self._is_registered or now < self._retry_at or now < self._trial_until:
            return False
        self._retry_at = now + self._retry_interval
        self._trial, self._trial_until = source, now + TRIAL_TIMEOUT
        return True

    def end_trial(self, source: object) -> None:
        """Note that this source does not try any more, if it did."""
        if self._trial is source:
            self._trial, self._trial_until = None, -inf

    def refused(self, error: EfoError, by: object = None) -> None:
        """Note that fan-out is not possible: all shards are polled until it works again. `by`: the shard's source."""
        self.end_trial(by)
        self._retry_at = trio.current_time() + self._retry_interval
        if isinstance(error, FanOutRefusedError):
            error = error.reason
        self.error = without_tracebacks(error)
        if self.is_used:
            self.is_used = False
            self._observer(ReadModeChanged("polling", error.error_type, str(error), self._retry_interval))

    def works(self) -> None:
        """Note that an event has arrived by fan-out: all shards subscribe."""
        self._trial, self._trial_until = None, -inf
        self.error = None
        if not self.is_used:
            self.is_used = True
            self._observer(ReadModeChanged("fanout"))

    async def diagnose(self, shard_id: str, error: ResourceNotFoundError) -> EfoError:
        """Return the error that explains a ResourceNotFoundException of SubscribeToShard (rule R13).

        FanOutRefusedError: the consumer is gone, and cannot be registered again.
        """
        found = await self._registration.diagnose(shard_id, error)
        if isinstance(found, ConsumerLimitError | ConsumerNotFoundError | ConsumerNotActiveError):
            self._is_registered = False
            return FanOutRefusedError(found)
        return found
