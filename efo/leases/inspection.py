"""What an operator may ask about a lease store before it is opened. Nothing is created or changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What was found in a lease store that can be read.

    `exists`: whether it has its table, file or key. If not, the first worker that opens it creates it.
    `leases`: how many this application has on this stream; None where counting them would read the whole table.
    `version`: of the format, None if the store has none.
    `denied`: the writes that are not permitted; None where only a write shows that.
    """

    exists: bool
    leases: int | None = None
    version: int | None = None
    denied: tuple[str, ...] | None = ()


class Inspectable(Protocol):
    """A lease store that can be inspected without opening it."""

    async def inspect(self) -> Inspection:
        """Look at the store, which is not open. Raises what opening it raises, except that it is missing."""
        ...
