"""Finds the fan-out consumer or registers it, and waits until it is ACTIVE (rule R13)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from math import inf
from typing import Final

import trio

from efo.arn import parse_consumer
from efo.errors import (
    AccessDeniedError,
    ConsumerLimitError,
    ConsumerNotActiveError,
    ConsumerNotFoundError,
    ConsumerReplacedError,
    EfoError,
    NotVisibleError,
    ResourceInUseError,
    ResourceNotFoundError,
    StreamRecreatedError,
    ThrottledError,
    without_tracebacks,
)
from efo.events import ConsumerDeregistered, ConsumerReady, Observer, StartDelayed, ignore_events
from efo.kinesis.client import ControlPlane
from efo.kinesis.identity import MissingShards, StreamIdentity
from efo.model import FanOutConsumer
from efo.retrying import retry

POLL_INTERVAL: Final = 1.0
"""Seconds between two calls of DescribeStreamConsumer while the consumer is not ACTIVE (AWS: 20 calls per second)."""
UNREADABLE: Final = frozenset({"CREATING", "DELETING"})
"""The states in which a consumer cannot read (AWS: ConsumerStatus). In any other it can, such as ACTIVE."""
LIMIT_EXCEEDED: Final = "LimitExceededException"
"""The code of RegisterStreamConsumer's error if the stream has as many consumers as it may (AWS: 20, or 50), or too
many are registered at the same time."""
ROOM_TIMEOUT: Final = 30.0
ROOM_INTERVAL: Final = 5.0
"""How long, and how often, a registration is tried that the limits of a stream refuse. AWS has one error for a stream
that has as many consumers as it may, and for one with five that are being created, by a fleet that starts together."""
DEREGISTER_TIMEOUT: Final = 15.0
"""Seconds that the end of an ephemeral consumer may take: one that is being created must become ACTIVE first."""
ACTIVE_TIMEOUT: Final = 300.0
"""Seconds to wait for ACTIVE. AWS takes a few seconds; an operator should see a consumer that is stuck."""


class Registration:
    """The registration of one application's fan-out consumer on one stream. Only `end` deregisters it.

    `given`: the ARN of a consumer that somebody else registers, often in another account. It is used as it is. `tags`:
    those that the consumer gets when it is registered. `identity`: of the stream: none is registered on another stream
    of the same name. `waits_for_room`: whether a first registration that the limits of the stream refuse is tried for
    ROOM_TIMEOUT.
    """

    def __init__(
        self,
        control_plane: ControlPlane,
        name: str,
        observer: Observer = ignore_events,
        given: str | None = None,
        tags: Mapping[str, str] | None = None,
        identity: StreamIdentity | None = None,
        *,
        waits_for_room: bool = False,
    ) -> None:
        self.name = name if given is None else parse_consumer(given)[1]
        self._given = given
        self._tags = tags or {}
        self._waits_for_room = waits_for_room
        self._control_plane = control_plane
        self._observer = observer
        self._consumer: FanOutConsumer | None = None
        self._may_exist = False
        self._checking = trio.Lock()
        self._checked_at = -inf  # when the last check of the consumer began
        self._failure: EfoError | None = None  # of that check
        self._identity = identity or StreamIdentity(control_plane)
        self._missing_shards = MissingShards(control_plane, self._identity)

    @property
    def arn(self) -> str:
        """The consumer's ARN. `ensure` must have returned."""
        if self._consumer is None:
            raise RuntimeError("the consumer's ARN is known after ensure()")
        return self._consumer.arn

    @property
    def is_active(self) -> bool:
        """Whether the consumer was found ACTIVE."""
        return self._consumer is not None

    async def ensure(self) -> FanOutConsumer:
        """Return the consumer once it is ACTIVE. Register it if it does not exist, unless its ARN is given.

        A consumer that is being deleted is registered again when it is gone. Raises ServiceError, TransportError,
        StreamRecreatedError if the stream is another one than at the first call, ConsumerLimitError if the stream may
        have no more consumers, ConsumerNotActiveError after 5 minutes, and ConsumerNotFoundError if a given consumer is
        gone.
        """
        stream_arn = await self._stream_arn()
        registered = False
        room_until = trio.current_time() + (ROOM_TIMEOUT if self._waits_for_room and not self.is_active else 0)
        with trio.move_on_after(ACTIVE_TIMEOUT):
            while True:
                try:
                    consumer = await self._control_plane.describe_consumer(stream_arn, self.name)
                except ResourceNotFoundError:
                    if self._given is not None:
                        raise self._gone() from None
                    if not registered:
                        await self._check_stream()
                        registered = await self._register(stream_arn, room_until)
                        continue
                    # Registered, but not visible yet: wait for it below.
                    consumer = None
                if self._given is not None and consumer is not None and consumer.arn != self._given:
                    raise self._gone()
                self._may_exist = True
                if consumer is not None and consumer.status not in UNREADABLE:
                    if self._consumer is not None and self._consumer.arn != consumer.arn:
                        await self._check_stream()
                    self._consumer = consumer
                    self._observer(ConsumerReady(consumer.name, consumer.arn, registered))
                    return consumer
                await trio.sleep(POLL_INTERVAL)
        raise ConsumerNotActiveError(
            f"the consumer {self.name!r} of {stream_arn} was not ACTIVE within {ACTIVE_TIMEOUT:g} s: "
            "DescribeStreamConsumer shows its status"
        )

    async def end(self) -> None:
        """Deregister the consumer if it may exist, and report it: for ephemeral consumers, also when cancelled."""
        if not self._may_exist:
            return
        failure: EfoError | None = None

        def failed(error: EfoError, _delay: float) -> None:
            nonlocal failure
            failure = error

        with trio.move_on_after(DEREGISTER_TIMEOUT, shield=True) as scope:
            try:
                await retry(self._deregister, lambda: POLL_INTERVAL, on_failure=failed)
            except EfoError as error:
                failure = error
            else:
                failure = None
        if failure is not None:
            event = ConsumerDeregistered(self.name, failure.error_type, str(failure))
        else:
            event = ConsumerDeregistered(self.name, "timeout" if scope.cancelled_caught else None)
        self._observer(event)

    async def _deregister(self) -> None:
        with suppress(ResourceNotFoundError):
            consumer = await self._control_plane.describe_consumer(await self._stream_arn(), self.name)
            if consumer.status != "DELETING":
                await self._control_plane.deregister_consumer(consumer.arn)

    async def diagnose(self, shard_id: str, error: ResourceNotFoundError) -> EfoError:
        """Return the error that explains a ResourceNotFoundException of SubscribeToShard.

        The consumer is gone, and was registered again now, or cannot be; or the shard or the stream is gone; or all
        exist, and the call is to be repeated. The last happens with a subscription that was opened before the consumer
        was replaced, when its reader takes the exception much later.
        """
        # Of several tasks that ask at once, the first one checks and the others wait. They compare with this ARN.
        before, asked_at = self.arn, trio.current_time()
        async with self._checking:
            try:
                # What was looked up since this task asked is new enough for it: thousands may ask at once.
                if self.arn == before and self._checked_at <= asked_at:
                    await self._check(shard_id, asked_at)
                if self._failure is not None:
                    return self._failure
                if self.arn != before:
                    return ConsumerReplacedError(f"the consumer {self.name!r} was gone; it is now {self.arn}")
                found = await self._missing_shards.explain(shard_id, "SubscribeToShard", asked_at)
            except EfoError as failure:
                return failure
            return found or NotVisibleError(
                f"{shard_id} and the consumer {self.name!r} exist, but not for SubscribeToShard: {error}"
            )

    async def _check(self, shard_id: str, asked_at: float) -> None:
        """Register the consumer again if it is gone. `_failure` is why that was not possible."""
        started_at = trio.current_time()
        self._failure = None
        try:
            await self.ensure()
        except ConsumerNotFoundError as gone:
            # A stream that is deleted takes its consumers along: then that is what has to be reported.
            try:
                await self._missing_shards.explain(shard_id, "SubscribeToShard", asked_at)
            except (ResourceNotFoundError, StreamRecreatedError) as no_stream:
                self._failure = without_tracebacks(no_stream)
            except EfoError:
                self._failure = without_tracebacks(gone)
            else:
                self._failure = without_tracebacks(gone)
        except EfoError as failure:
            self._failure = without_tracebacks(failure)
        self._checked_at = started_at

    async def _stream_arn(self) -> str:
        if self._given is not None:
            return parse_consumer(self._given)[0]
        return (await self._identity.describe()).arn

    async def _check_stream(self) -> None:
        """Raise StreamRecreatedError if the stream has become another one, maybe while this waits for its consumer."""
        if self._consumer is not None:
            await self._identity.look(trio.current_time())

    def _gone(self) -> ConsumerNotFoundError:
        return ConsumerNotFoundError(
            f"the fan-out consumer {self._given} does not exist, and efo does not register one whose ARN is given: ask"
            " its owner for the ARN of the present one, or give a name instead"
        )

    async def _register(self, stream_arn: str, room_until: float) -> bool:
        self._may_exist = True
        try:
            await self._control_plane.register_consumer(stream_arn, self.name, self._tags)
        except ResourceInUseError:
            # Another worker has registered it, or the old one is still being deleted: check again.
            await trio.sleep(POLL_INTERVAL)
            return False
        except AccessDeniedError as error:
            if not self._tags:
                raise
            raise AccessDeniedError(
                error.code,
                f"{error.message.rstrip('.')}; to register a consumer with tags, kinesis:TagResource is needed beside "
                "kinesis:RegisterStreamConsumer",
                status=error.status,
            ) from error
        except ThrottledError as error:
            if error.code != LIMIT_EXCEEDED:
                raise
            if trio.current_time() < room_until:  # or too many are being registered at the same time
                self._observer(StartDelayed("RegisterStreamConsumer", error.error_type, str(error), ROOM_INTERVAL))
                await trio.sleep(ROOM_INTERVAL)
                return False
            raise ConsumerLimitError(
                error.code,
                f"{error.message.rstrip('.')}; the fan-out consumer {self.name!r} cannot be registered: deregister one "
                "that nobody uses (efo consumers), or read without one: read_mode 'polling' or 'auto'",
                status=error.status,
            ) from error
        return True
