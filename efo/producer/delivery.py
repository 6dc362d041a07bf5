"""The delivery of a record: what `put` returns, and what it becomes."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import trio

from efo.errors import DeliveryError, EfoError
from efo.producer.entry import Entry, Outgoing, Unseen


@dataclass(frozen=True, slots=True)
class PutResult:
    """Where a record was stored.

    `shard_id`, `sequence_number`: of the Kinesis record. `sub_sequence_number`: the index in a KPL aggregate; 0 for a
    record that was put alone. `attempts`: the number of requests that it took. `latency`: seconds from `put` until the
    service's response.
    """

    shard_id: str
    sequence_number: str
    sub_sequence_number: int
    attempts: int
    latency: float


class Delivery(Outgoing):
    """A record that was put and may not be stored yet. Made by `Producer.put`.

    `await` it for its PutResult; several tasks may.

    Raises DeliveryError if the record was given up.
    """

    __slots__ = ("_unseen",)

    def __init__(self, put_at: float, unseen: Unseen) -> None:
        self.put_at = put_at
        self.index: int = 0
        self._unseen: Unseen | None = unseen

    @property
    def is_done(self) -> bool:
        """Whether its outcome is known: `result` returns or raises it."""
        return self.carrier.done

    def result(self) -> PutResult:
        """Return where the record was stored. Raises DeliveryError; RuntimeError while its outcome is not known."""
        entry = self.carrier
        if not entry.done or not isinstance(entry, Entry):
            raise RuntimeError("the delivery is not done: await it, or look at is_done before")
        if (stored := entry.stored) is not None:
            latency = entry.done_at - self.put_at
            return PutResult(stored.shard_id, stored.sequence_number, self.index, entry.attempts, latency)
        if self._unseen is not None:
            self._unseen.count -= 1
            self._unseen = None
        raise delivery_error(entry, entry.done_at - self.put_at) from entry.error

    async def wait(self) -> PutResult:
        """Wait until its outcome is known, and return or raise it as `result` does."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self.carrier.done:
            changed = trio.Event()
            self.carrier.on_change(changed.set)
            await changed.wait()
        return self.result()

    def __await__(self) -> Generator[Any, Any, PutResult]:
        return self.wait().__await__()


def delivery_error(entry: Entry, age: float) -> DeliveryError:
    """Return the error for the records of an entry that was given up."""
    error = entry.error
    attempts = f"{entry.attempts} attempt{'s' * (entry.attempts != 1)}"
    reason = f"{type(error).__name__}: {error}" if isinstance(error, EfoError) else "it was not sent in time"
    doubt = "; it may be in the stream nevertheless" if entry.maybe_stored else ""
    return DeliveryError(
        f"the record was not delivered within {age:.1f} s and {attempts}: {reason}{doubt}",
        attempts=entry.attempts,
        maybe_stored=entry.maybe_stored,
    )
