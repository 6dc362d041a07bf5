"""How a consumer ends: by its time, or by an error, and what is reported of that."""

from __future__ import annotations

from typing import Final, Protocol

import trio

from efo.errors import EfoError, HandlerError, IsolateShardError, class_name_of, error_type_of
from efo.events import ConsumerFailed
from efo.third_party_errors import places_of

TWO_READERS: Final = (
    "this consumer is read already, by another run or an iteration: read it once, with one reader, or open another"
    " consumer of the same application, which shares the shards"
)
CLOSED: Final = "this consumer is closed: use it within the `async with` block that opened it"


class Drains(Protocol):
    """What can be drained: a consumer of one stream or of many."""

    def drain(self) -> None:
        """Stop at the next batch of each shard."""


async def drain_after(seconds: float, consumer: Drains) -> None:
    """Drain a consumer when its time is over."""
    await trio.sleep(seconds)
    consumer.drain()


def failure_of(error: Exception) -> ConsumerFailed:
    """Return what is reported of an error that ends a consumer."""
    return ConsumerFailed(type_of(error), detail_of(error), places_of(error))


def type_of(error: Exception) -> str:
    """Return the type of an error; of one that isolates a shard because of another error, the type of that one."""
    cause = error.__cause__ if isinstance(error, IsolateShardError) else None
    return error_type_of(error if cause is None else cause)


def detail_of(error: Exception) -> str:
    """Return the text of an error of efo. That of an application's exception may contain data."""
    if isinstance(error, HandlerError) and error.__cause__ is not None:
        return f"the application's code does not fit efo: {class_name_of(error.__cause__)}"
    return str(error) if isinstance(error, EfoError) else ""
