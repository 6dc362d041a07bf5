"""The seam to an object store: what the log needs of one, and nothing else.

Every write is conditional. `create` makes an object that does not exist, `replace` changes one that nobody has changed
since. tests/efo_service/object_store/test_conformance.py checks every implementation. All calls block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


@dataclass(frozen=True, slots=True)
class Version:
    """What identifies one content of an object to its store: an ETag, or a generation, or both."""

    e_tag: str | None
    generation: str | None = None


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object that was read. `content`: all of it, or the range. `modified`: the store's time, epoch seconds."""

    content: bytes
    version: Version
    modified: float
    size: int


class Listed(NamedTuple):
    """A key of a listing, and the object's size in bytes."""

    key: str
    size: int


class ExistsError(Exception):
    """`create`: there is an object, or another writer was at it at the same time. Look."""


class ChangedError(Exception):
    """`replace`: the object is not the one that was read, or another writer was at it at the same time. Look."""


class UnchangedError(Exception):
    """`get`: the object still has the version that is known, so that its content was not sent."""


class Store(Protocol):
    """An object store below one prefix. Keys are relative to it.

    All methods raise StoreUnavailableError, StoreDeniedError and StoreError. After StoreUnavailableError a write may
    have happened, may happen later, or never.
    """

    @property
    def name(self) -> str:
        """Where the keys are, for messages: a URL."""
        ...

    def get(self, key: str, unless: Version | None = None) -> StoredObject | None:
        """Return an object, None if there is none. Raises UnchangedError if it has the version `unless`."""
        ...

    def head(self, key: str, size: int) -> StoredObject | None:
        """Return the first `size` bytes of an object, or all of it if it is smaller; None if there is none."""
        ...

    def create(self, key: str, content: bytes) -> Version:
        """Create an object. Raises ExistsError."""
        ...

    def replace(self, key: str, content: bytes, version: Version) -> Version:
        """Replace the content of an object that has this version. Raises ChangedError."""
        ...

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects. One that does not exist is no error."""
        ...

    def keys(self, prefix: str) -> Iterator[Listed]:
        """Yield the keys below a prefix that ends in a slash, in no order. It costs a request for each 1,000."""
        ...

    def folders(self, prefix: str) -> list[str]:
        """Return the names of what has keys below it, directly below a prefix ('' or ending in a slash), sorted."""
        ...
