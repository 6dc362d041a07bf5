"""The fan-out consumers of one stream: CREATING, then ACTIVE; DELETING, then deleted."""

from __future__ import annotations

from efo.testing.errors import in_use, limit_exceeded, not_found, stream_and_account
from efo.testing.state.shards import Listeners
from efo.testing.state.tags import Tags


class ConsumerState:
    """One fan-out consumer. Times are seconds since the epoch.

    `policy`: the resource policy, in JSON. `listeners` are called when the consumer is deregistered.
    """

    __slots__ = ("_active_at", "_deleted_at", "arn", "created_at", "listeners", "name", "policy", "stream_arn", "tags")

    def __init__(self, name: str, stream_arn: str, arn: str, now: float, creating: float) -> None:
        self.name = name
        self.stream_arn = stream_arn
        self.arn = arn
        self.created_at = now
        self._active_at = now + creating
        self._deleted_at: float | None = None
        self.listeners = Listeners()
        self.tags = Tags()
        self.policy: str | None = None

    @property
    def title(self) -> str:
        """The consumer in the words of AWS's error messages: its name, creation, stream and account."""
        stream, account = stream_and_account(self.stream_arn)
        created = f"creation timestamp {int(self.created_at)}"
        return f"Consumer {self.name} with {created} under stream {stream} and account {account}"

    @property
    def deregistered(self) -> bool:
        """Whether the consumer is DELETING or deleted."""
        return self._deleted_at is not None

    def status(self, now: float) -> str:
        """Return CREATING, ACTIVE or DELETING (AWS: ConsumerStatus)."""
        if self._deleted_at is not None:
            return "DELETING"
        return "ACTIVE" if now >= self._active_at else "CREATING"

    def is_deleted(self, now: float) -> bool:
        """Return whether the deletion is complete."""
        return self._deleted_at is not None and now >= self._deleted_at

    def deregister(self, now: float, deleting: float) -> None:
        """Start the deletion, which takes `deleting` seconds, and notify the listeners."""
        self._deleted_at = now + deleting
        self.listeners.notify()


class Consumers:
    """The fan-out consumers of one stream, by name.

    `creating`, `deleting`: seconds that a consumer stays in that state. `max_consumers`: maximum number of consumers.
    `max_creating`: maximum number of consumers that are CREATING at the same time.
    """

    def __init__(
        self, stream_arn: str, *, creating: float, deleting: float, max_consumers: int, max_creating: int
    ) -> None:
        self._stream_arn = stream_arn
        self._creating = creating
        self._deleting = deleting
        self._max_consumers = max_consumers
        self._max_creating = max_creating
        self._by_name: dict[str, ConsumerState] = {}
        self._newest_epoch = 0

    def list(self, now: float) -> list[ConsumerState]:
        """Return the consumers that are not deleted, sorted by name."""
        self._by_name = {n: c for n, c in sorted(self._by_name.items()) if not c.is_deleted(now)}
        return list(self._by_name.values())

    def register(self, name: str, now: float) -> ConsumerState:
        """Add a consumer.

        Raises ResourceInUseException: the name is in use. Raises LimitExceededException: too many consumers.
        """
        consumers = self.list(now)
        if any(consumer.name == name for consumer in consumers):
            raise in_use(f"Consumer {name} under {self._title} already exists.")
        if len(consumers) >= self._max_consumers:
            raise limit_exceeded(
                f"Stream {self._stream_arn} has {self._max_consumers} registered consumers, which is the limit"
            )
        if sum(consumer.status(now) == "CREATING" for consumer in consumers) >= self._max_creating:
            raise limit_exceeded(f"{self._max_creating} consumers of stream {self._stream_arn} are being created")
        # The ARN ends with the creation time: each registration has a different ARN.
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
        raise not_found(f"Consumer {name} under {self._title} not found.")

    def by_arn(self, arn: str, now: float) -> ConsumerState:
        """Return a consumer. Raises ResourceNotFoundException, also for the ARN of an earlier registration."""
        for consumer in self.list(now):
            if consumer.arn == arn:
                return consumer
        name = arn.rpartition("/")[2].partition(":")[0]
        raise not_found(f"Consumer {name} under {self._title} not found.")

    @property
    def _title(self) -> str:
        stream, account = stream_and_account(self._stream_arn)
        return f"stream {stream} under account {account}"

    def deregister(self, consumer: ConsumerState, now: float) -> None:
        """Start the deletion of a consumer. A second call has no effect."""
        if not consumer.deregistered:
            consumer.deregister(now, self._deleting)
