"""The fake's state: streams and consumers, found by name or ARN. Synchronous, and free of any I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from efo.testing.errors import in_use, invalid_argument, limit_exceeded, not_found, validation
from efo.testing.settings import FakeSettings
from efo.testing.state.consumers import Consumers, ConsumerState
from efo.testing.state.retention import trim
from efo.testing.state.shards import ShardState
from efo.testing.state.streams import StreamState
from efo.testing.state.throttle import Throttle

_NAME: Final = re.compile(r"[a-zA-Z0-9_.-]{1,128}")
_CONSUMER_SUFFIX: Final = "/consumer/"
MAX_SHARDS: Final = 10_000
MAX_CREATING: Final = 5
"""How many streams may be CREATING at once (AWS: CreateStream)."""
_TRIM_INTERVAL: Final = 1.0


class Core:
    """All that the fake knows. `clock` gives the wall clock, seconds since the epoch.

    `listing`: the shards of a stream as ListShards is to tell them; the fault script may make it lie.
    """

    def __init__(self, settings: FakeSettings, clock: Callable[[], float]) -> None:
        self.settings = settings
        self.clock = clock
        self.listing: Callable[[StreamState], list[ShardState]] = lambda stream: list(stream.shards.values())
        self.streams: dict[str, StreamState] = {}
        self.throttle = Throttle()
        self._consumers: dict[str, Consumers] = {}

    @property
    def millis(self) -> int:
        """The wall clock, milliseconds since the epoch."""
        return int(self.clock() * 1000)

    @property
    def open_shards(self) -> int:
        """How many open shards all streams have."""
        return sum(len(stream.open_shards) for stream in self.listed_streams())

    # --- streams -------------------------------------------------------------------------------------------

    def create_stream(self, name: str, shards: int, *, creating: float = 0.0) -> StreamState:
        """Add a stream; it is ACTIVE after `creating` seconds (AWS: CreateStream).

        Raises ResourceInUseException (it exists), ValidationException (its name or count of shards),
        LimitExceededException (too many shards in all, or too many streams CREATING).
        """
        check_name(name, "streamName")
        if not 1 <= shards <= MAX_SHARDS:
            raise validation(f"ShardCount {shards}: 1 to {MAX_SHARDS} are allowed")
        settings, now = self.settings, self.clock()
        streams = self.listed_streams()
        if name in self.streams:
            raise in_use(f"Stream {name} under account {settings.account} already exists")
        if sum(stream.status(now) == "CREATING" for stream in streams) >= MAX_CREATING:
            raise limit_exceeded(f"{MAX_CREATING} streams of account {settings.account} are being created")
        self.check_shard_limit(shards)
        arn = f"arn:aws:kinesis:{settings.region}:{settings.account}:stream/{name}"
        self._consumers[name] = Consumers(
            arn,
            creating=settings.consumer_creating,
            deleting=settings.consumer_deleting,
            most=settings.consumers_per_stream,
            most_creating=settings.consumers_creating,
        )
        stream = StreamState(
            name,
            arn,
            shards,
            now,
            retention_hours=settings.retention_hours,
            max_record_bytes=settings.max_record_bytes,
        )
        stream.creating_until = now + creating
        self.streams[name] = stream
        return stream

    def check_shard_limit(self, more: int) -> None:
        """Raise LimitExceededException where so many more open shards are too many for the account."""
        if self.open_shards + more > self.settings.shard_limit:
            raise limit_exceeded(
                f"This request would exceed the shard limit for the account {self.settings.account} in "
                f"{self.settings.region}: {self.settings.shard_limit}, with {self.open_shards} open now"
            )

    def delete_stream(self, stream: StreamState) -> None:
        """Begin a stream's deletion (AWS: DeleteStream); its consumers go with it, and end their subscriptions."""
        if stream.deleted_at is None:
            now = self.clock()
            stream.deleted_at = now + self.settings.stream_deleting
            for consumer in self.consumers(stream).list(now):
                self.consumers(stream).deregister(consumer, now)

    def listed_streams(self) -> list[StreamState]:
        """Return the streams that are not gone, by name."""
        now = self.clock()
        for stream in tuple(self.streams.values()):
            if stream.deleted_at is not None and now >= stream.deleted_at:
                del self.streams[stream.name], self._consumers[stream.name]
        return [stream for _, stream in sorted(self.streams.items())]

    def stream(self, name: str | None = None, arn: str | None = None) -> StreamState:
        """Return a stream by its name, its ARN, or both; what its retention period does not cover is trimmed.

        Raises ResourceNotFoundException, and InvalidArgumentException for neither, or for two that differ.
        """
        if name is None and arn is None:
            raise invalid_argument("Either StreamName or StreamARN is required")
        stream = self._find(name, arn)
        now = self.clock()
        if stream.deleted_at is not None and now >= stream.deleted_at:
            self.listed_streams()
            raise not_found(f"Stream {stream.name} under account {self.settings.account} not found")
        if now - stream.trimmed_at >= _TRIM_INTERVAL:
            stream.trimmed_at = now
            trim(stream, now)
        return stream

    def _find(self, name: str | None, arn: str | None) -> StreamState:
        wanted = arn.rpartition("stream/")[2] if arn is not None else name
        if name is not None and wanted != name:
            raise invalid_argument(f"StreamName {name} is not that of StreamARN {arn}")
        stream = self.streams.get(wanted or "")
        if stream is None or arn not in {None, stream.arn}:
            raise not_found(f"Stream {arn or name} under account {self.settings.account} not found")
        return stream

    def data_stream(self, name: str | None = None, arn: str | None = None) -> StreamState:
        """Return a stream that takes and gives records: neither CREATING nor DELETING, or else it is not found."""
        stream = self.stream(name, arn)
        if stream.status(self.clock()) in {"CREATING", "DELETING"}:
            raise not_found(f"Stream {stream.name} under account {self.settings.account} not found")
        return stream

    def active_stream(self, name: str | None = None, arn: str | None = None) -> StreamState:
        """Return a stream that can be changed. Raises ResourceInUseException where it is not ACTIVE."""
        stream = self.stream(name, arn)
        if (status := stream.status(self.clock())) != "ACTIVE":
            raise in_use(
                f"Stream {stream.name} under account {self.settings.account} not ACTIVE, instead in state {status}"
            )
        return stream

    # --- consumers -----------------------------------------------------------------------------------------

    def consumers(self, stream: StreamState) -> Consumers:
        """Return the consumers of a stream."""
        return self._consumers[stream.name]

    def consumer(
        self, arn: str | None = None, stream_arn: str | None = None, name: str | None = None
    ) -> tuple[StreamState, ConsumerState]:
        """Return a consumer and its stream, by the consumer's ARN or by the stream's ARN and its name.

        Raises ResourceNotFoundException, and InvalidArgumentException where neither is complete, or the two differ.
        """
        if arn is not None:
            stream = self.stream(arn=arn.partition(_CONSUMER_SUFFIX)[0])
            consumer = self.consumers(stream).by_arn(arn, self.clock())
            if stream_arn not in {None, stream.arn} or name not in {None, consumer.name}:
                raise invalid_argument(f"StreamARN or ConsumerName is not that of ConsumerARN {arn}")
            return stream, consumer
        if stream_arn is None or name is None:
            raise invalid_argument("Either ConsumerARN, or both StreamARN and ConsumerName are required")
        stream = self.stream(arn=stream_arn)
        return stream, self.consumers(stream).by_name(name, self.clock())

    def register(self, stream_arn: str, name: str, tags: Mapping[str, str] | None = None) -> ConsumerState:
        """Register a consumer (AWS: RegisterStreamConsumer)."""
        check_name(name, "consumerName")
        stream = self.stream(arn=stream_arn)
        if (status := stream.status(self.clock())) in {"CREATING", "DELETING"}:
            raise in_use(f"Stream {stream.name} is {status}: consumers are registered once it is ACTIVE")
        consumer = self.consumers(stream).register(name, self.clock())
        consumer.tags.add(tags or {})
        return consumer

    def deregister(self, stream: StreamState, consumer: ConsumerState) -> None:
        """Deregister a consumer (AWS: DeregisterStreamConsumer)."""
        self.consumers(stream).deregister(consumer, self.clock())


def check_name(name: str, field: str) -> None:
    """Raise ValidationException for a name that AWS' service model does not allow."""
    if not _NAME.fullmatch(name):
        raise validation(
            f"Value {name!r} at '{field}' failed to satisfy constraint: Member must satisfy regular expression "
            "pattern: [a-zA-Z0-9_.-]+, with a length of 1 to 128"
        )
