"""The document of leases on an object store: read, and replaced by compare-and-set.

Each replacement has an identity, which the document keeps. So one whose answer was lost is looked up in the document,
and not taken for a conflict with itself.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from math import inf
from typing import Final, TypeVar

import trio

from efo.errors import EfoError, LeaseStoreCorruptError, LeaseStoreUnavailableError
from efo.protocol.backoff import Backoff, backoff
from efo.retrying import retry
from efo_service.object_leases.document import (
    Edit,
    LeaseDocument,
    Plan,
    Result,
    decode_document,
    encode_document,
    key_of,
    plan,
)
from efo_service.object_store.store import ChangedError, ExistsError, Store, UnchangedError, Version
from efo_service.relay.errors import StoreError, StoreUnavailableError

T = TypeVar("T")

READS: Final = 4
"""How often a read is tried: a store that answers one request of many with 503, or with a page, is not away."""

_FIRST_PAUSE: Final = 0.02
_PAUSE: Final = 0.5
"""Longest pause between two tries, in seconds; the first one is at most `_FIRST_PAUSE`."""


@dataclass(frozen=True, slots=True)
class DocumentSnapshot:
    """The document as it was read or written. `version`: of the object, None if there is none."""

    document: LeaseDocument
    version: Version | None


class SharedDocument:
    """The document of an application on a stream, which several workers read and replace.

    `store`: at the root of the log. `timeout`: maximum seconds per call. `connections`: maximum number of concurrent
    requests, each in a thread. `doubt`: seconds for which a document that looks damaged counts as unavailable, since an
    answer may be another server's, or cut. `name`: of the document, for messages. `known`: what was last read or
    written, None before. Raises ConfigurationError for an application whose name cannot be part of a key.
    """

    def __init__(
        self, store: Store, application: str, stream: str, timeout: float, connections: int, doubt: float = 0.0
    ) -> None:
        self._store = store
        self._application, self._stream = application, stream
        self._key = key_of(application, stream)
        self.name = f"{store.name}/{self._key}"
        self.known: DocumentSnapshot | None = None
        self._is_alone = True
        self._damaged_since: float | None = None
        self._timeout = timeout
        self._doubt = doubt
        self._threads = trio.CapacityLimiter(connections)

    async def read(self, decode: Callable[[LeaseDocument], T]) -> T:
        """Read the document, and return what `decode` makes of it, in a thread.

        Raises LeaseStoreUnavailableError, LeaseStoreCorruptError, and what `decode` raises.
        """

        def work() -> tuple[DocumentSnapshot, T]:
            snapshot = self._fetch()
            return snapshot, decode(snapshot.document)

        snapshot, result = await self._in_time(partial(self._patiently, work, READS))
        known = self.known
        if known is not None and snapshot.version != known.version:
            self._is_alone = False
        # What a write has overtaken is forgotten. Else this is a guess, too: each write has its condition.
        if known is None or snapshot.version is None or snapshot.document.revision > known.document.revision:
            self.known = snapshot
        return result

    async def edit(self, edits: Sequence[tuple[str, Edit]]) -> Sequence[Result]:
        """Replace the document by the edited one; return the results. Nothing is written if no edit changes anything.

        Raises LeaseStoreUnavailableError: then the effect is unknown, but all edits took place or none.
        """
        return await self._in_time(partial(self._compare_and_set, edits))

    async def _compare_and_set(self, edits: Sequence[tuple[str, Edit]]) -> Sequence[Result]:
        """Edit the document, and replace it if it is still the one that was edited: until it is.

        What is known of the document may be an old copy. To replace it is refused then, and so a replacement proves
        that it was none. Whatever else is concluded from it, is concluded again from the current document. While others
        write, a look before is cheaper than a write that is refused.
        """
        write = secrets.token_hex(8)
        snapshot, is_current = self.known if self._is_alone else None, False
        planned: Plan | None = None
        unanswered: LeaseDocument | None = None
        for attempt in count():
            if snapshot is None:
                known = self.known
                self.known = snapshot = await self._patiently(self._fetch, READS if unanswered is None else inf)
                self._is_alone, is_current = known is None or snapshot.version == known.version, True
                if planned is not None and write in snapshot.document.writes:
                    return planned.results  # of the last try: an earlier one of another document has failed for ever
                self._check_memory(snapshot.document, unanswered)
            planned = await self._in_thread(partial(plan, snapshot.document, edits, write, self.name))
            if is_current or not planned.depends_on_currency:
                if planned.document is None:
                    return planned.results
                try:
                    version = await self._in_thread(partial(self._put, planned.document, snapshot.version))
                except (ExistsError, ChangedError):
                    pass
                except StoreUnavailableError:
                    unanswered = unanswered or snapshot.document
                else:
                    self.known = DocumentSnapshot(planned.document, version)
                    return planned.results
                await self._pause(attempt)
            snapshot = None
        raise AssertionError("unreachable")

    def _check_memory(self, document: LeaseDocument, unanswered: LeaseDocument | None) -> None:
        """Raise LeaseStoreUnavailableError if the document no longer tells whether an unanswered write took place."""
        if unanswered is not None and document.has_forgotten(unanswered):
            raise LeaseStoreUnavailableError(
                f"lease store {self.name}: a write had no answer, and after too many others it cannot be seen whether"
                " it took place"
            )

    # --- requests ------------------------------------------------------------------------------------------

    def _fetch(self) -> DocumentSnapshot:
        """Read the document. Runs in a thread. Raises StoreError and LeaseStoreCorruptError."""
        known = self.known
        try:
            stored = self._store.get(self._key, None if known is None else known.version)
        except UnchangedError:
            if known is None:
                raise
            return known
        if stored is None:
            return DocumentSnapshot(LeaseDocument(), None)
        document = decode_document(stored.content, self._application, self._stream, self.name)
        return DocumentSnapshot(document, stored.version)

    def _put(self, document: LeaseDocument, version: Version | None) -> Version:
        """Create or replace the document. Runs in a thread. Raises ExistsError, ChangedError and StoreError."""
        content = encode_document(document, self._application, self._stream)
        if version is None:
            return self._store.create(self._key, content)
        return self._store.replace(self._key, content, version)

    async def _patiently(self, work: Callable[[], T], attempts: float) -> T:
        """Read in a thread. `attempts`: infinite, to learn what became of a write, for as long as there is time.

        While damage is new, raises LeaseStoreUnavailableError (rule R16).
        """
        waits = Backoff(random.random, initial=2 * _FIRST_PAUSE, limit=_PAUSE)
        reading = partial(self._in_thread, work)
        try:
            result = await retry(reading, waits.next, attempts=attempts, repeats=_may_pass)
        except LeaseStoreCorruptError as error:
            now = trio.current_time()
            self._damaged_since = now if self._damaged_since is None else self._damaged_since
            if now - self._damaged_since < self._doubt:
                raise LeaseStoreUnavailableError(f"{error}; it is read again for {self._doubt:g} s") from error
            raise
        self._damaged_since = None
        return result

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._threads)

    async def _in_time(self, work: Callable[[], Awaitable[T]]) -> T:
        """Call `work` within the timeout. Raises LeaseStoreUnavailableError for what the store raises."""
        try:
            with trio.move_on_after(self._timeout):
                return await work()
        except StoreError as error:
            raise LeaseStoreUnavailableError(f"lease store {self.name}: {error}") from error
        raise LeaseStoreUnavailableError(
            f"lease store {self.name}: no result within {self._timeout:g} s: check the store and the network"
        )

    @staticmethod
    async def _pause(attempt: int) -> None:
        """Wait, so that workers that replaced the document at the same time do not meet again."""
        await trio.sleep(backoff(attempt + 1, initial=_FIRST_PAUSE, limit=_PAUSE, random=random.random))


def _may_pass(error: EfoError) -> bool:
    """Return whether a read is worth another try: what looks damaged may be one damaged answer."""
    return error.retryable or isinstance(error, LeaseStoreCorruptError)
