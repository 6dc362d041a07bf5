"""The tags of streams and consumers (AWS: AddTagsToStream, TagResource)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from efo.testing.errors import invalid_argument

MAX_TAGS: Final = 50
"""How many one resource may have."""


class Tags:
    """The tags of one resource, by key."""

    def __init__(self, tags: Mapping[str, str] | None = None) -> None:
        self._tags: dict[str, str] = {}
        self.add(tags or {})

    def add(self, tags: Mapping[str, str]) -> None:
        """Add tags, or give those that exist another value. Raises InvalidArgumentException: too many."""
        merged = self._tags | dict(tags)
        if len(merged) > MAX_TAGS:
            raise invalid_argument(f"{len(merged)} tags: a resource may have {MAX_TAGS}")
        self._tags = merged

    def remove(self, keys: Iterable[str]) -> None:
        """Remove tags; those that do not exist are no error."""
        for key in keys:
            self._tags.pop(key, None)

    def listed(self) -> list[dict[str, str]]:
        """Return the tags by key, as the wire tells them."""
        return [{"Key": key, "Value": value} for key, value in sorted(self._tags.items())]
