"""Finds the fan-out consumer or registers it, and waits until it is ACTIVE (rule R13)."""

from __future__ import annotations

from typing import Final

import trio

from efo.errors import (
    ConsumerReplacedError,
    EfoError,
    NotVisibleError,
    ResourceInUseError,
    ResourceNotFoundError,
    ServiceError,
    ShardGoneError,
)
from efo.events import ConsumerReady, Observer, ignore
from efo.kinesis.control_plane import ControlPlane
from efo.model import FanOutConsumer

POLL_INTERVAL: Final = 1.0
"""Seconds between two looks at a consumer that is not ACTIVE yet (AWS: DescribeStreamConsumer, 20 per second)."""
PATIENCE: Final = 300.0
"""Seconds to wait for ACTIVE. AWS takes some; a consumer that is stuck should be seen, not waited for."""


class Registration:
    """The fan-out consumer of one application on one stream. It is never deregistered here."""

    def __init__(self, control: ControlPlane, name: str, observer: Observer = ignore) -> None:
        self.name = name
        self._control = control
        self._observer = observer
        self._consumer: FanOutConsumer | None = None
        self._checking = trio.Lock()

    @property
    def arn(self) -> str:
        """The consumer's ARN, once `ensure` has returned."""
        if self._consumer is None:
            raise RuntimeError("the consumer's ARN is known after ensure()")
        return self._consumer.arn

    @property
    def is_active(self) -> bool:
        """Whether the consumer was found ACTIVE."""
        return self._consumer is not None

    async def ensure(self) -> FanOutConsumer:
        """Return the consumer once it is ACTIVE, registered now if there was none.

        One that is being deleted is waited for and registered again. Raises ServiceError and TransportError, and
        ServiceError with the code ConsumerNotActive after 5 minutes.
        """
        stream_arn = (await self._control.describe_stream()).arn
        registered = False
        with trio.move_on_after(PATIENCE):
            while True:
                try:
                    consumer = await self._control.describe_consumer(stream_arn, self.name)
                except ResourceNotFoundError:
                    if not registered:
                        registered = await self._register(stream_arn)
                        continue
                    # Ours, but not visible yet: wait for it below.
                    consumer = None
                if consumer is not None and consumer.status == "ACTIVE":
                    self._consumer = consumer
                    self._observer(ConsumerReady(consumer.name, consumer.arn, registered))
                    return consumer
                await trio.sleep(POLL_INTERVAL)
        raise ServiceError(
            "ConsumerNotActive",
            f"the consumer {self.name!r} of {stream_arn} was not ACTIVE within {PATIENCE:g} s: look at it with "
            "DescribeStreamConsumer",
        )

    async def diagnose(self, shard_id: str, error: ResourceNotFoundError) -> EfoError:
        """Return what a ResourceNotFound on subscribe means: the consumer is gone, or the shard, or neither.

        A consumer that is gone is registered again first. Where both exist the call is to be made again: a stream
        that was opened before the consumer was replaced may say so long afterwards, when its reader comes to it.
        """
        # Of all that ask at the same time the first finds out, and the others wait for it: so this is from before.
        before = self.arn
        async with self._checking:
            try:
                after = await self.ensure()
                if after.arn != before:
                    return ConsumerReplacedError(f"the consumer {self.name!r} was gone; it is now {after.arn}")
                listed = {shard.shard_id for shard in await self._control.list_shards()}
                # Kinesis numbers shards in the order of their making: a listing without a newer one may be older
                # than this shard, and to believe it would lose all its records.
                if shard_id not in listed:
                    if any(other > shard_id for other in listed):
                        return ShardGoneError(f"{shard_id} exists no longer")
                    return NotVisibleError(
                        f"{shard_id} is neither known to SubscribeToShard nor listed, but newer than all that are: it "
                        "is too new to be visible; or, if this goes on, the stream was made anew under its old name, "
                        "and the leases of the old one are to be deleted (efo leases delete)"
                    )
            except EfoError as failure:
                return failure
            return NotVisibleError(f"{shard_id} and the consumer {self.name!r} exist, but the service said: {error}")

    async def _register(self, stream_arn: str) -> bool:
        try:
            await self._control.register_consumer(stream_arn, self.name)
        except ResourceInUseError:
            # Another worker was quicker, or the old one is still being deleted: look again.
            await trio.sleep(POLL_INTERVAL)
            return False
        return True
