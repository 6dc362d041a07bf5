"""The registered consumers of one stream: CREATING, then ACTIVE; DELETING, then gone."""

from __future__ import annotations

from efo.testing.errors import in_use, limit_exceeded, not_found
from efo.testing.state.listeners import Listeners
from efo.testing.state.tags import Tags


class ConsumerState:
    """One registered consumer. Times are seconds since the epoch.

    `listeners` are called when it is deregistered.
    """

    __slots__ = ("_active_at", "_gone_at", "arn", "created_at", "listeners", "name", "stream_arn", "tags")

    def __init__(self, name: str, stream_arn: str, arn: str, now: float, creating: float) -> None:
        self.name = name
        self.stream_arn = stream_arn
        self.arn = arn
        self.created_at = now
        self._active_at = now + creating
        self._gone_at: float | None = None
        self.listeners = Listeners()
        self.tags = Tags()

    @property
    def deregistered(self) -> bool:
        """Whether the consumer is DELETING, or gone."""
        return self._gone_at is not None

    def status(self, now: float) -> str:
        """Return CREATING, ACTIVE or DELETING (AWS: ConsumerStatus)."""
        if self._gone_at is not None:
            return "DELETING"
        return "ACTIVE" if now >= self._active_at else "CREATING"

    def is_gone(self, now: float) -> bool:
        """Tell whether its deletion is complete."""
        return self._gone_at is not None and now >= self._gone_at

    def deregister(self, now: float, deleting: float) -> None:
        """Begin its deletion, and tell the listeners."""
        self._gone_at = now + deleting
        self.listeners.tell()


class Consumers:
    """The consumers of one stream, by name. At most `most` there are, and at most `most_creating` CREATING."""

    def __init__(self, stream_arn: str, *, creating: float, deleting: float, most: int, most_creating: int) -> None:
        self._stream_arn = stream_arn
        self._creating = creating
        self._deleting = deleting
        self._most = most
        self._most_creating = most_creating
        self._by_name: dict[str, ConsumerState] = {}
        self._newest_epoch = 0

    def list(self, now: float) -> list[ConsumerState]:
        """Return the consumers that are not gone, by name."""
        self._by_name = {n: c for n, c in sorted(self._by_name.items()) if not c.is_gone(now)}
        return list(self._by_name.values())

    def register(self, name: str, now: float) -> ConsumerState:
        """Add a consumer.

        Raises ResourceInUseException (one of that name is not gone yet), LimitExceededException (too many).
        """
        consumers = self.list(now)
        if any(consumer.name == name for consumer in consumers):
            raise in_use(f"Consumer {name} under stream {self._stream_arn} already exists")
        if len(consumers) >= self._most:
            raise limit_exceeded(f"Stream {self._stream_arn} has {self._most} registered consumers, which is the limit")
        if sum(consumer.status(now) == "CREATING" for consumer in consumers) >= self._most_creating:
            raise limit_exceeded(f"{self._most_creating} consumers of stream {self._stream_arn} are being created")
        # The ARN ends in the time of creation, so that a consumer registered again has another one.
        self._newest_epoch = max(int(now), self._newest_epoch + 1)
        arn = f"{self._stream_arn}/consumer/{name}:{self._newest_epoch}"
        consumer = ConsumerState(name, self._stream_arn, arn, now, self._creating)
        self._by_name[name] = consumer
        return consumer

    def by_name(self, name: str, now: float) -> ConsumerState:
        """Return a consumer. Raises ResourceNotFoundException."""
        for consumer in self.list(now):
            if consumer.name == name:
                return consumer
        raise not_found(f"Consumer {name} under stream {self._stream_arn} not found")

    def by_arn(self, arn: str, now: float) -> ConsumerState:
        """Return a consumer; that of an earlier registration is not found. Raises ResourceNotFoundException."""
        for consumer in self.list(now):
            if consumer.arn == arn:
                return consumer
        raise not_found(f"Consumer {arn} not found")

    def deregister(self, consumer: ConsumerState, now: float) -> None:
        """Begin a consumer's deletion; once begun, a second call changes nothing."""
        if not consumer.deregistered:
            consumer.deregister(now, self._deleting)
