"""A store around another that makes a read again if the store did not answer it. Writes are made once.

A read may be made again at any time. A check at the start reads each partition, so without this one refused request in
twenty would let no check ever succeed. A store that stays unreachable is waited for by the caller.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, TypeVar

from efo.protocol.backoff import backoff
from efo_service.object_store.store import Listed, Store, StoredObject, Version
from efo_service.relay.errors import StoreUnavailableError

T = TypeVar("T")

ATTEMPTS: Final = 5
BACKOFF: Final = 0.05
"""Most seconds before the second attempt; twice as many before each next one, with jitter."""
LONGEST_SECONDS: Final = 3.0
"""After this time no attempt begins: a thread waits for them, and so does a cancellation."""


class RepeatingStore:
    """Passes all calls to `store`. Repeats reads of one object, and listings of folders, after StoreUnavailableError.

    `sleep`, `clock`: of the thread, in seconds. `rng`: source of the jitter.
    """

    def __init__(
        self,
        store: Store,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        self._store = store
        self._sleep = sleep
        self._clock = clock
        self._rng = rng or random.Random()  # noqa: S311 - not used for security

    @property
    def name(self) -> str:
        """The name of the store."""
        return self._store.name

    def get(self, key: str, unless: Version | None = None) -> StoredObject | None:
        """Return an object, unless its version is known."""
        return self._repeat(partial(self._store.get, key, unless))

    def head(self, key: str, size: int) -> StoredObject | None:
        """Return the first bytes of an object."""
        return self._repeat(partial(self._store.head, key, size))

    def create(self, key: str, content: bytes) -> Version:
        """Create an object."""
        return self._store.create(key, content)

    def replace(self, key: str, content: bytes, version: Version) -> Version:
        """Replace an object."""
        return self._store.replace(key, content, version)

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects."""
        self._store.delete(keys)

    def keys(self, prefix: str) -> Iterator[Listed]:
        """Yield the keys below a prefix. A listing that fails in its middle is not begun again."""
        return self._store.keys(prefix)

    def folders(self, prefix: str) -> list[str]:
        """Return the names below a prefix that have keys below them."""
        return self._repeat(partial(self._store.folders, prefix))

    def _repeat(self, read: Callable[[], T]) -> T:
        began = self._clock()
        for attempt in range(1, ATTEMPTS):
            try:
                return read()
            except StoreUnavailableError:
                delay = backoff(attempt, initial=BACKOFF, limit=LONGEST_SECONDS, random=self._rng.random, jitter=0.5)
                if self._clock() + delay - began > LONGEST_SECONDS:
                    raise
            self._sleep(delay)
        return read()
