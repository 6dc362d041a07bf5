"""Records on their way: the entries of requests, and the user records in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from efo.errors import EfoError


@dataclass(frozen=True, slots=True)
class AcceptedRecord:
    """The service has accepted a Kinesis record (AWS: PutRecordsResultEntry)."""

    shard_id: str
    sequence_number: str


class Carrier:
    """What carries user records: an aggregate that grows, or an entry. `done`: whether its outcome is known."""

    __slots__ = ("_callbacks", "done")

    def __init__(self) -> None:
        self.done = False
        self._callbacks: list[Callable[[], None]] | None = None

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call `callback` when it is done, or when something else carries its user records."""
        if self._callbacks is None:
            self._callbacks = []
        self._callbacks.append(callback)

    def changed(self) -> None:
        """Call the callbacks."""
        callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            callback()


class Outgoing:
    """A user record that was put. `put_at`: a time of the monotonic clock. `index`: its place in what carries it."""

    __slots__ = ("carrier", "index", "put_at")

    if TYPE_CHECKING:  # not in the public names, which a Delivery inherits
        carrier: Carrier

    def __init__(self, put_at: float) -> None:
        self.put_at = put_at
        self.index: int = 0


class Entry(Carrier):
    """One Kinesis record that is to be put: a user record, or an aggregate of several.

    `size`: data and partition key in bytes, as the service counts them. `weight`: what it counts in the buffer.
    `order_key`: in one request of an ordered producer, no two entries have the same one; None: alone in its shard.
    `put_at`: when its first user record was put. `epoch`: see `Buffer.flush`. `attempts`: requests with it, so far.
    `alone`: send it in a request of its own, since one with others was refused as a whole.
    `error`: the last failure. `maybe_stored`: whether a request failed that the service may have carried out.
    `stored`, `failed`: the outcome, once it is `done`, at `done_at`.
    """

    __slots__ = (
        "alone", "attempts", "data", "done_at", "epoch", "error", "explicit_hash_key",
        "maybe_stored", "order_key", "partition_key", "put_at", "records", "size", "stored", "users", "weight",
    )  # fmt: skip

    def __init__(
        self,
        users: list[Outgoing],
        partition_key: str | None,
        data: bytes,
        explicit_hash_key: str | None,
        *,
        size: int,
        weight: int,
        order_key: bytes | None,
        epoch: int,
    ) -> None:
        super().__init__()
        self.users = users
        self.partition_key = partition_key
        self.data = data
        self.explicit_hash_key = explicit_hash_key
        self.size = size
        self.weight = weight
        self.order_key = order_key
        self.epoch = epoch
        self.put_at = users[0].put_at
        self.records = len(users)
        self.attempts = 0
        self.alone = False
        self.error: EfoError | None = None
        self.maybe_stored = False
        self.stored: AcceptedRecord | None = None
        self.done_at = 0.0
        for index, user in enumerate(users):
            user.carrier = self
            user.index = index

    @property
    def is_aggregate(self) -> bool:
        """Whether it carries several user records."""
        return self.records > 1

    def finish(self, stored: AcceptedRecord | None, now: float) -> None:
        """Set the outcome: where it was stored; None: it failed, because of `error`. Its data is given up."""
        self.stored = stored
        self.done, self.done_at = True, now
        self.users, self.data = [], b""
        self.changed()


class Unseen:
    """How many records have failed without anyone having looked at their deliveries."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0
