"""Makes the source of each shard's events, by the read mode of the consumer."""

from __future__ import annotations

import random
from functools import partial
from typing import Final

import trio

from efo.arn import parse_consumer
from efo.errors import AccessDeniedError, EfoError, RejectedCredentialsError
from efo.events import Observer, ReadModeChanged
from efo.health import ActiveReadMode
from efo.kinesis.client import KinesisClient
from efo.kinesis.connection_pool import ConnectionPool
from efo.kinesis.identity import MissingShards, StreamIdentity
from efo.kinesis.pacing import PacesSubscribes, SubscribePacer
from efo.kinesis.polling.auto_source import AutoSource, FanOut
from efo.kinesis.polling.shard_polling import PollCaller, ShardPolling
from efo.kinesis.registration import Registration
from efo.kinesis.shard_source import ShardSource
from efo.kinesis.shard_subscription import Diagnose, ShardSubscription
from efo.kinesis.subscribe_call import SubscribeCaller
from efo.model import Position
from efo.protocol.denials import Denials
from efo.settings import ConsumerSettings

FANOUT_RETRY_INTERVAL: Final = 300.0
"""With read_mode auto: seconds for which shards are polled until one of them tries fan-out again."""


class ShardSources:
    """Opens the sources of one consumer's shards. `run` must have started before.

    `pool`: the connections of all calls. `limiter`: that of several streams, which runs elsewhere; None for one of its
    own. `waits`: whether refusals for permissions are waited for (rule R16), and not for the consumer's policy.
    `rng`: the source of jitter.
    """

    def __init__(
        self,
        kinesis: KinesisClient,
        settings: ConsumerSettings,
        registration: Registration,
        identity: StreamIdentity,
        *,
        pool: ConnectionPool,
        limiter: PacesSubscribes | None = None,
        waits: bool = True,
        rng: random.Random,
        observer: Observer,
    ) -> None:
        self._denials = Denials()
        self._waits = waits
        self._settings = settings
        self._registration = registration
        self._pool = pool
        self._rng = rng
        self._observer = observer
        self._own_limiter: SubscribePacer | None = None
        if limiter is None:
            limiter = self._own_limiter = SubscribePacer(settings.subscribes_per_second)
        self._limiter = limiter
        self._fan_out = FanOut(registration, retry_interval=FANOUT_RETRY_INTERVAL, observer=observer)
        self._missing_shards = MissingShards(kinesis.control_plane, identity)
        self._subscriber = SubscribeCaller(
            pool,
            sign=kinesis.sign,
            authority=kinesis.authority,
            scheme=kinesis.scheme,
            correct=kinesis.correct,
            consumer_arn=lambda: registration.arn,
        )
        arn = None if settings.consumer_arn is None else parse_consumer(settings.consumer_arn)[0]
        self._poller = PollCaller(
            pool,
            sign=kinesis.sign,
            authority=kinesis.authority,
            scheme=kinesis.scheme,
            correct=kinesis.correct,
            stream=kinesis.stream,
            stream_arn=kinesis.stream_arn or arn,
            silence=settings.timing.silence_timeout,
        )

    @property
    def is_registered(self) -> bool:
        """Whether the fan-out consumer was found ACTIVE."""
        return self._registration.is_active

    @property
    def read_mode(self) -> ActiveReadMode:
        """How shards are read now."""
        if self._settings.read_mode == "auto":
            return "fanout" if self._fan_out.is_used else "polling"
        return self._settings.read_mode

    @property
    def fan_out_error(self) -> EfoError | None:
        """Why the shards are polled with the setting "auto"; None if they are not."""
        return self._fan_out.error

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Register the fan-out consumer as far as the read mode needs it, and grant subscribes until cancelled.

        It has started when shards can be read. Raises EfoError before, if the consumer cannot be registered.
        """
        if self._settings.read_mode == "polling":
            self._observer(ReadModeChanged("polling"))
            task_status.started()
            return
        async with trio.open_nursery() as nursery:
            if self._own_limiter is not None:
                await nursery.start(self._own_limiter.run)
            if self._settings.read_mode == "auto":
                await nursery.start(self._fan_out.keep_registered)
            else:
                await self._registration.ensure()
            task_status.started()

    def open(self, attempts: trio.Nursery, shard_id: str, position: Position) -> ShardSource:
        """Return the events of a shard after a position. Its tasks run in the nursery."""

        def subscribe(position: Position) -> ShardSubscription:
            return self._subscription(attempts, shard_id, position, partial(self._registration.diagnose, shard_id))

        def subscribe_or_fail(position: Position) -> ShardSubscription:
            return self._subscription(attempts, shard_id, position, partial(self._fan_out.diagnose, shard_id))

        def poll(position: Position) -> ShardPolling:
            return self._polling(shard_id, position)

        match self._settings.read_mode:
            case "fanout":
                return subscribe(position)
            case "polling":
                return poll(position)
            case "auto":
                return AutoSource(position, subscribe=subscribe_or_fail, poll=poll, fan_out=self._fan_out)

    def _is_final(self, error: EfoError) -> bool:
        return self._denials.is_final(error, trio.current_time()) if self._waits else not error.retryable

    def _is_final_for_fan_out(self, error: EfoError) -> bool:
        """Return whether an error ends a subscription: with "auto", the shard is polled if fan-out is denied."""
        is_denied = isinstance(error, AccessDeniedError) and not isinstance(error, RejectedCredentialsError)
        return (is_denied and self._settings.read_mode == "auto") or self._is_final(error)

    def _subscription(
        self, attempts: trio.Nursery, shard_id: str, position: Position, diagnose: Diagnose
    ) -> ShardSubscription:
        return ShardSubscription(
            attempts,
            shard_id,
            position,
            caller=self._subscriber,
            limiter=self._limiter,
            diagnose=diagnose,
            rng=self._rng,
            timing=self._settings.timing,
            is_final=self._is_final_for_fan_out,
            on_success=self._denials.worked,
            observer=self._observer,
        )

    def _polling(self, shard_id: str, position: Position) -> ShardPolling:
        return ShardPolling(
            shard_id,
            position,
            caller=self._poller,
            explain_missing=self._missing_shards.explain,
            rng=self._rng,
            interval=self._settings.poll_seconds,
            is_final=self._is_final,
            on_success=self._denials.worked,
            observer=self._observer,
        )
