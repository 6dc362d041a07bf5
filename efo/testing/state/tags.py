"""The tags of streams and consumers (AWS: AddTagsToStream, TagResource)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from efo.testing.errors import invalid_argument

MAX_TAGS: Final = 50
"""Maximum number of tags of one resource."""


class Tags:
    """The tags of one resource, by key."""

    def __init__(self, tags: Mapping[str, str] | None = None) -> None:
        self._tags: dict[str, str] = {}
        self.add(tags or {})

    def add(self, tags: Mapping[str, str]) -> None:
        """Add tags; replace the values of existing ones. Raises InvalidArgumentException: too many tags."""
        merged = self._tags | dict(tags)
        if len(merged) > MAX_TAGS:
            raise invalid_argument(f"The resource would have {len(merged)} tags: at most {MAX_TAGS} are allowed")
        self._tags = merged

    def remove(self, keys: Iterable[str]) -> None:
        """Remove tags. Missing keys are ignored."""
        for key in keys:
            self._tags.pop(key, None)

    def listed(self) -> list[dict[str, str]]:
        """Return the tags, sorted by key (AWS: Tag)."""
        return [{"Key": key, "Value": value} for key, value in sorted(self._tags.items())]
