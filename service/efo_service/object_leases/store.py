"""A lease store on an object store: for a relay onto a log there, which needs no other server then.

All leases of an application on a stream are one document (efo_service.object_leases.document). A write replaces
it if nobody has replaced it since it was read. Writes that wait at the same time share one replacement.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Final, Self

import trio

from efo.arn import parse_stream
from efo.errors import LeaseError, LeaseStoreUnavailableError
from efo.exception_groups import collapse_groups
from efo.leases.known_rows import KnownRows
from efo.leases.row_store import Change, RowStore
from efo.leases.store import Inspection, LeaseScope, streams_of
from efo.leases.writes import LeaseWrite, row_after
from efo.model import Lease
from efo_service.object_leases.document import FORMAT_VERSION, Edit, Result, decode_lease
from efo_service.object_leases.shared_document import SharedDocument
from efo_service.object_store.store import Store

PATIENCE_SHARE: Final = 0.15
"""How long writes wait for those before them, as a share of the timeout: a request that hangs must not stop all."""


@dataclass(slots=True, eq=False)
class _Writing:
    """Edits of one call. `outcome`: their results, or the error of all of them."""

    edits: Sequence[tuple[str, Edit]]
    outcome: Sequence[Result] | LeaseError | None = None
    is_done: trio.Event = field(default_factory=trio.Event)

    def settle(self, outcome: Sequence[Result] | LeaseError) -> None:
        self.outcome = outcome
        self.is_done.set()


class ObjectLeaseStore(RowStore):
    """A LeaseStore on an object store: `async with ObjectLeaseStore(...) as store:`.

    `store`: what honours conditions on writes (efo_service.object_store.probe), at the root of the log.
    `timeout`: maximum seconds per call. `connections`: maximum number of concurrent requests, each in a thread. A
    request that hangs occupies one for as long as the store's own timeout. `doubt`: seconds for which damage must stay
    until it is believed (rule R16); before, the store is unavailable.

    Raises ConfigurationError for the name of an application that cannot be part of a key. Opening raises
    LeaseStoreUnavailableError (not reachable, no rights) and LeaseStoreCorruptError (damaged, or of a newer efo).

    A cancelled call returns at once. Its write may take place in the background; it is never partial.
    """

    def __init__(
        self,
        store: Store,
        application: str,
        stream: str,
        *,
        timeout: float = 5.0,
        connections: int = 4,
        doubt: float = 0.0,
    ) -> None:
        self._lease_scope = LeaseScope(application, stream)
        self._document = SharedDocument(store, application, parse_stream(stream)[0], timeout, connections, doubt)
        self._patience = PATIENCE_SHARE * timeout
        self._rows = KnownRows[bytes]()
        self._queue: list[_Writing] = []
        self._queued = trio.Event()
        self._stack = AsyncExitStack()
        self._is_open = False

    async def __aenter__(self) -> Self:
        self._stack = AsyncExitStack()
        await self._stack.enter_async_context(self._writes())
        self._is_open = True
        try:
            await self.list()
        except BaseException:
            self._is_open = False
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        self._is_open = False
        return await self._stack.__aexit__(kind, error, traceback)

    @property
    def is_open(self) -> bool:
        """Whether the store is open."""
        return self._is_open

    def ensure_scope(self, application: str, stream: str) -> None:
        """Raise ConfigurationError if the store keeps the leases of another application or stream."""
        self._lease_scope.ensure(application, stream)

    async def inspect(self) -> Inspection:
        """Look at the document; the store is not open. Only a write shows whether it is permitted."""
        async with self:
            leases = await self.list()
        known = self._document.known
        exists = known is not None and known.version is not None
        version = FORMAT_VERSION if exists else None
        return Inspection(
            exists=exists, leases=len(leases), version=version, denied=None, created_at=streams_of(leases)
        )

    async def list(self) -> Sequence[Lease]:
        """Return all leases, in no particular order."""
        self._check_open()
        return await self._document.read(lambda document: self._rows.replace(document.rows, self._lease_of))

    async def get(self, key: str) -> Lease | None:
        """Return one lease, or None."""
        self._check_open()
        row = await self._document.read(lambda document: document.rows.get(key))
        return None if row is None else self._lease_of(key, row)

    async def create(self, lease: Lease) -> bool:
        """Add a lease unless its key exists; return whether it was added."""
        is_added = False

        def add(row: Lease | None) -> Lease:
            nonlocal is_added
            is_added = row is None
            return lease if row is None else row

        _checked(await self._edit([(lease.key, add)]))
        return is_added

    async def delete(self, key: str) -> None:
        """Delete a lease, if it exists."""
        _checked(await self._edit([(key, lambda _row: None)]))

    async def _write(self, key: str, change: Change) -> Lease:
        return _lease(_checked(await self._edit([(key, change)])))

    async def _write_rows(self, writes: Sequence[LeaseWrite]) -> Sequence[Lease | LeaseError]:
        if not writes:
            return []
        results = await self._edit([(write.lease.key, partial(row_after, write)) for write in writes])
        return [result if isinstance(result, LeaseError) else _lease(result) for result in results]

    # --- writing -------------------------------------------------------------------------------------------

    async def _edit(self, edits: Sequence[tuple[str, Edit]]) -> Sequence[Result]:
        """Put edits into the next replacement of the document; return their results. Raises LeaseError."""
        self._check_open()
        await trio.lowlevel.checkpoint_if_cancelled()
        writing = _Writing(edits)
        self._queue.append(writing)
        self._queued.set()
        try:
            await writing.is_done.wait()
        except trio.Cancelled:
            with suppress(ValueError):
                self._queue.remove(writing)
            raise
        outcome = writing.outcome
        if outcome is None or isinstance(outcome, LeaseError):
            error = outcome or LeaseStoreUnavailableError(f"lease store {self._document.name}: no result")
            raise copy.copy(error) from error  # several calls may share it
        return outcome

    @asynccontextmanager
    async def _writes(self) -> AsyncIterator[None]:
        """Replace the document for calls of `_edit` for the duration of the context.

        Also after a cancellation, until it ends: workers save progress and release leases in shielded scopes.
        """
        writing = trio.CancelScope(shield=True)
        with collapse_groups():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._replace_document, writing)
                try:
                    yield
                finally:
                    writing.cancel()
                    while self._queue:
                        self._queue.pop().settle(self._closed())

    async def _replace_document(self, scope: trio.CancelScope) -> None:
        """Replace the document once for all calls that wait, and while this is done, gather further ones."""
        with scope:
            async with trio.open_nursery() as nursery:
                while True:
                    await self._queued.wait()
                    await trio.lowlevel.checkpoint()  # for the other tasks that write now
                    writings, self._queue, self._queued = self._queue, [], trio.Event()
                    is_done = trio.Event()
                    nursery.start_soon(self._perform, writings, is_done)
                    with trio.move_on_after(self._patience):
                        await is_done.wait()

    async def _perform(self, writings: Sequence[_Writing], is_done: trio.Event) -> None:
        """Perform the edits of some calls by one replacement, and settle each of them."""
        outcome: Sequence[Result] | LeaseError = self._closed()
        edits = [edit for writing in writings for edit in writing.edits]
        try:
            outcome = await self._document.edit(edits)
        except LeaseError as error:
            outcome = error
        finally:
            at = 0
            for writing in writings:
                if isinstance(outcome, LeaseError):
                    writing.settle(outcome)
                else:
                    writing.settle(outcome[at : at + len(writing.edits)])
                at += len(writing.edits)
            is_done.set()

    def _lease_of(self, key: str, row: bytes) -> Lease:
        return decode_lease(key, row, self._document.name)

    def _check_open(self) -> None:
        if not self._is_open:
            raise LeaseStoreUnavailableError(f"lease store {self._document.name} is not open: use `async with`")

    def _closed(self) -> LeaseStoreUnavailableError:
        return LeaseStoreUnavailableError(f"lease store {self._document.name} was closed during the write")


def _checked(results: Sequence[Result]) -> Lease | None:
    """Return the result of the only edit. Raises the error that it met."""
    [result] = results
    if isinstance(result, LeaseError):
        raise result
    return result


def _lease(result: Lease | None) -> Lease:
    if result is None:
        raise TypeError("the write has deleted its lease")
    return result
