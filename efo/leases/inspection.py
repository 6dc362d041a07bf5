"""What an operator may ask about a lease store before it is opened. Nothing is created or changed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from efo.model import Lease


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What was found in a lease store that can be read.

    `exists`: whether it has its table, file or key. If not, the first worker that opens it creates it.
    `leases`: how many this application has on this stream; None where counting them would read the whole table.
    `version`: of the format, None if the store has none.
    `denied`: the writes that are not permitted; None where only a write shows that.
    `created_at`: when the streams were created that its leases are of, as far as they say it: one, if all is well.
    """

    exists: bool
    leases: int | None = None
    version: int | None = None
    denied: tuple[str, ...] | None = ()
    created_at: tuple[float, ...] = ()


def streams_of(leases: Iterable[Lease]) -> tuple[float, ...]:
    """Return the times of creation that leases name, each once."""
    return tuple(sorted({lease.stream_created_at for lease in leases if lease.stream_created_at is not None}))


class Inspectable(Protocol):
    """A lease store that can be inspected without opening it."""

    async def inspect(self) -> Inspection:
        """Look at the store, which is not open. Raises what opening it raises, except that it is missing."""
        ...
