"""The tags of streams and consumers (AWS: AddTagsToStream, TagResource)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final
from unicodedata import category

from efo.testing.errors import invalid_argument

MAX_TAGS: Final = 50
"""Maximum number of tags of one resource."""


_MARKS: Final = frozenset("_./=+-@:")


class Tags:
    """The tags of one resource, by key."""

    def __init__(self, tags: Mapping[str, str] | None = None) -> None:
        self._tags: dict[str, str] = {}
        self.add(tags or {})

    def add(self, tags: Mapping[str, str]) -> None:
        """Add tags; replace the values of existing ones.

        Raises InvalidArgumentException: too many tags, or a character that is not allowed. Then none is added.
        """
        _check_characters((*tags, *tags.values()))
        merged = self._tags | dict(tags)
        if len(merged) > MAX_TAGS:
            raise invalid_argument(f"The resource would have {len(merged)} tags: at most {MAX_TAGS} are allowed")
        self._tags = merged

    def remove(self, keys: Iterable[str]) -> None:
        """Remove tags. Missing keys are ignored. Raises InvalidArgumentException: a character is not allowed."""
        removed = tuple(keys)
        _check_characters(removed)
        for key in removed:
            self._tags.pop(key, None)

    def listed(self) -> list[dict[str, str]]:
        """Return the tags, sorted by key (AWS: Tag)."""
        return [{"Key": key, "Value": value} for key, value in sorted(self._tags.items())]


def _check_characters(texts: Iterable[str]) -> None:
    """Raise InvalidArgumentException unless all characters of the keys and values are allowed.

    Letters, digits and spaces of any script are allowed, and some marks. AWS documents the marks without the colon,
    but accepts it.
    """
    for character in sorted(set().union(*texts)):
        if character == "%":
            raise invalid_argument(
                "Some tags contained illegal characters. The allowed characters are Unicode letters, white-spaces, "
                "'_',',','/','=','+','-','@'."
            )
        if character not in _MARKS and category(character)[0] not in "LNZ":
            raise invalid_argument(
                "Some tags contain invalid characters. Valid characters: Unicode letters, digits, white space, "
                "_ . / = + - % @."
            )
