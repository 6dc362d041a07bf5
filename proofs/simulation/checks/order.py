"""The order of the records of each key. Pure."""

from __future__ import annotations

from collections.abc import Iterable


class KeyOrder:
    """Checks that the records of each key first take effect in order, across all shards."""

    def __init__(self) -> None:
        self._next_number: dict[str, int] = {}

    def skip(self, identities: Iterable[tuple[str, int]]) -> None:
        """Expect none of these records, each the number of one in its key."""
        for key, number in identities:
            self._next_number[key] = max(self._next_number.get(key, 0), number + 1)

    def problem(self, shard_id: str, key: str, number: int) -> str | None:
        """Note that a record takes effect; return what is wrong with its order, None if nothing is."""
        expected = self._next_number.get(key, 0)
        self._next_number[key] = max(expected, number + 1)
        if number == expected:
            return None
        return f"{key}: its record {number} (in {shard_id}) takes effect before its record {expected}"
