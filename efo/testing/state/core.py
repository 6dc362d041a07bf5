"""All streams and fan-out consumers, by name or ARN. Synchronous, without I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from efo.testing.errors import FakeError, in_use, invalid_argument, limit_exceeded, not_found, validation
from efo.testing.settings import FakeSettings
from efo.testing.state.consumers import Consumers, ConsumerState
from efo.testing.state.retention import trim
from efo.testing.state.shards import ShardState
from efo.testing.state.streams import StreamState
from efo.testing.state.tags import Tags
from efo.testing.state.throttle import Throttle

_NAME: Final = re.compile(r"[a-zA-Z0-9_.-]{1,128}")
_CONSUMER_SUFFIX: Final = "/consumer/"
MAX_SHARDS: Final = 10_000
MAX_CREATING: Final = 5
"""Maximum number of streams that are CREATING at the same time (AWS: CreateStream)."""
_TRIM_INTERVAL: Final = 1.0


class Core:
    """The complete state of a fake. `clock` returns the wall-clock time in seconds since the epoch.

    `listing` returns the shards of a stream for ListShards; the fault script can make it return stale shards.
    `after` calls a function after some seconds. Without it, an UPDATING that is over ends with the next call.
    """

    def __init__(self, settings: FakeSettings, clock: Callable[[], float]) -> None:
        self.settings = settings
        self.clock = clock
        self.after: Callable[[float, Callable[[], object]], None] = lambda _seconds, _call: None
        self.listing: Callable[[StreamState], list[ShardState]] = lambda stream: list(stream.shards.values())
        self.streams: dict[str, StreamState] = {}
        self.throttle = Throttle()
        self._consumers: dict[str, Consumers] = {}

    def take_over(self, ended: Core) -> None:
        """Have the streams, their records and their fan-out consumers of another core, which is not used any more."""
        self.streams, self._consumers = ended.streams, ended._consumers

    @property
    def millis(self) -> int:
        """The wall-clock time in milliseconds since the epoch."""
        return int(self.clock() * 1000)

    @property
    def open_shards(self) -> int:
        """The number of open shards of all streams."""
        return sum(len(stream.open_shards) for stream in self.listed_streams())

    # --- streams -------------------------------------------------------------------------------------------

    def create_stream(self, name: str, shards: int, *, creating: float = 0.0) -> StreamState:
        """Add a stream that is ACTIVE after `creating` seconds (AWS: CreateStream).

        Raises ResourceInUseException: the stream exists. Raises ValidationException: the name or the number of shards
        is invalid. Raises LimitExceededException: the account has too many shards or too many streams CREATING.
        """
        check_name(name, "streamName")
        if not 1 <= shards <= MAX_SHARDS:
            raise validation(f"ShardCount {shards}: expected 1 to {MAX_SHARDS}")
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
            max_consumers=settings.consumers_per_stream,
            max_creating=settings.consumers_creating,
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

    def check_shard_limit(self, additional: int) -> None:
        """Raise LimitExceededException if `additional` open shards would exceed the account's limit."""
        if self.open_shards + additional > self.settings.shard_limit:
            raise limit_exceeded(
                f"This request would exceed the shard limit for the account {self.settings.account} in "
                f"{self.settings.region}: {self.settings.shard_limit}, with {self.open_shards} open now"
            )

    def delete_stream(self, stream: StreamState) -> None:
        """Start the deletion of a stream (AWS: DeleteStream). Deregister its consumers; their subscriptions end."""
        if stream.deleted_at is None:
            now = self.clock()
            stream.deleted_at = now + self.settings.stream_deleting
            for consumer in self.consumers(stream).list(now):
                self.consumers(stream).deregister(consumer, now)

    def listed_streams(self) -> list[StreamState]:
        """Return the streams that are not deleted, sorted by name."""
        now = self.clock()
        for stream in tuple(self.streams.values()):
            if stream.deleted_at is not None and now >= stream.deleted_at:
                del self.streams[stream.name], self._consumers[stream.name]
            else:
                stream.settle(now)
        return [stream for _, stream in sorted(self.streams.items())]

    def stream(self, name: str | None = None, arn: str | None = None) -> StreamState:
        """Return a stream by its name, its ARN, or both. Trim its expired records first, and end its UPDATING.

        Raises ResourceNotFoundException. Raises InvalidArgumentException: both are missing, or they do not match.
        """
        if name is None and arn is None:
            raise invalid_argument("Either StreamName or StreamARN is required")
        stream = self._find(name, arn)
        now = self.clock()
        if stream.deleted_at is not None and now >= stream.deleted_at:
            self.listed_streams()
            raise self._stream_not_found(stream.name)
        stream.settle(now)
        if now - stream.trimmed_at >= _TRIM_INTERVAL:
            stream.trimmed_at = now
            trim(stream, now)
        return stream

    def _find(self, name: str | None, arn: str | None) -> StreamState:
        stream_name = arn.rpartition("stream/")[2] if arn is not None else name
        if name is not None and stream_name != name:
            raise invalid_argument(f"StreamName {name} does not match StreamARN {arn}")
        stream = self.streams.get(stream_name or "")
        if stream is None or arn not in {None, stream.arn}:
            raise self._stream_not_found(stream_name or "")
        return stream

    def _stream_not_found(self, name: str) -> FakeError:
        """Return the error of a call that names no stream. AWS's text has the name even if the call has the ARN."""
        return not_found(f"Stream {name} under account {self.settings.account} not found.")

    def update(self, stream: StreamState, change: Callable[[int], object] = lambda _millis: None) -> None:
        """Make a stream UPDATING. `change` is applied at the end of it, with the time in milliseconds."""
        now, seconds = self.clock(), self.settings.stream_updating
        until = now + seconds
        stream.update(until, change)
        stream.settle(now)
        if seconds > 0:
            self.after(seconds, lambda: stream.settle(max(until, self.clock())))

    def data_stream(self, name: str | None = None, arn: str | None = None) -> StreamState:
        """Return a stream whose records can be written and read.

        Raises ResourceNotFoundException also if the stream is CREATING or DELETING.
        """
        stream = self.stream(name, arn)
        if stream.status(self.clock()) in {"CREATING", "DELETING"}:
            raise self._stream_not_found(stream.name)
        return stream

    def active_stream(self, name: str | None = None, arn: str | None = None) -> StreamState:
        """Return a stream that can be changed. Raises ResourceInUseException if it is not ACTIVE."""
        stream = self.stream(name, arn)
        self.check_status(stream, "ACTIVE")
        return stream

    def check_status(self, stream: StreamState, *allowed: str) -> None:
        """Raise ResourceInUseException unless the stream's status is one of these."""
        if (status := stream.status(self.clock())) not in allowed:
            raise in_use(
                f"Stream {stream.name} under account {self.settings.account} not {' or '.join(allowed)}, instead in "
                f"state {status}"
            )

    # --- consumers -----------------------------------------------------------------------------------------

    def consumers(self, stream: StreamState) -> Consumers:
        """Return the consumers of a stream."""
        return self._consumers[stream.name]

    def consumer(
        self, arn: str | None = None, stream_arn: str | None = None, name: str | None = None
    ) -> tuple[StreamState, ConsumerState]:
        """Return a consumer and its stream, by the consumer's ARN, or by the stream's ARN and the consumer's name.

        Raises ResourceNotFoundException. Raises InvalidArgumentException: arguments are missing, or do not match.
        """
        if arn is not None:
            stream = self.stream(arn=arn.partition(_CONSUMER_SUFFIX)[0])
            consumer = self.consumers(stream).by_arn(arn, self.clock())
            if stream_arn not in {None, stream.arn} or name not in {None, consumer.name}:
                raise invalid_argument(f"StreamARN or ConsumerName does not match ConsumerARN {arn}")
            return stream, consumer
        if stream_arn is None or name is None:
            raise invalid_argument("ConsumerARN, or StreamARN and ConsumerName, are required")
        stream = self.stream(arn=stream_arn)
        return stream, self.consumers(stream).by_name(name, self.clock())

    def tags(self, arn: str) -> Tags:
        """Return the tags of a stream or a consumer. Raises ResourceNotFoundException."""
        return self.consumer(arn)[1].tags if _CONSUMER_SUFFIX in arn else self.stream(arn=arn).tags

    def register(self, stream_arn: str, name: str, tags: Mapping[str, str] | None = None) -> ConsumerState:
        """Register a consumer (AWS: RegisterStreamConsumer)."""
        check_name(name, "consumerName")
        stream = self.stream(arn=stream_arn)
        self.check_status(stream, "ACTIVE", "UPDATING")
        own = Tags(tags)
        consumer = self.consumers(stream).register(name, self.clock())
        consumer.tags = own
        return consumer

    def deregister(self, stream: StreamState, consumer: ConsumerState) -> None:
        """Deregister a consumer (AWS: DeregisterStreamConsumer)."""
        self.consumers(stream).deregister(consumer, self.clock())


def check_name(name: str, field: str) -> None:
    """Raise ValidationException if AWS's service model does not allow the name."""
    if not _NAME.fullmatch(name):
        raise validation(
            f"Value {name!r} at '{field}' failed to satisfy constraint: Member must satisfy regular expression "
            "pattern: [a-zA-Z0-9_.-]+, with a length of 1 to 128"
        )
