"""A lease store on whatever keeps bytes by key and can replace them on a condition: for stores of an application."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

import msgspec
import trio

from efo.errors import ConfigurationError, LeaseStoreCorruptError, LeaseStoreUnavailableError
from efo.leases.lease_row import LeaseRow
from efo.leases.row_store import Change, RowStore
from efo.leases.store import LeaseScope
from efo.model import Lease
from efo.third_party_errors import reason_of

MAX_TRIES: Final = 100
"""How often a write is tried whose row others change meanwhile. Each time, one of them has succeeded."""


class KeyValueLeaseStore(RowStore):
    """A lease store of your own: a subclass has two methods, and a third one where a single row can be read.

    Its rows are bytes by key, those of one application on one stream. `efo.testing.check_lease_store` checks that it
    does what efo's own do. `unavailable`: the exceptions of your client after which a call may be tried again; efo
    waits for their end, as for that of each outage. Every other exception ends the consumer.

    The methods run on trio: wrap a client that blocks, `await trio.to_thread.run_sync(...)`. A call that is cancelled
    may take effect or not.
    """

    unavailable: ClassVar[tuple[type[Exception], ...]] = (OSError,)

    def __init__(self, application: str | None = None, stream: str | None = None) -> None:
        self._lease_scope = LeaseScope(application, stream)

    @abstractmethod
    async def read_rows(self) -> Mapping[str, bytes]:
        """Return all rows, as of now: a row that was written before the call is in it."""

    @abstractmethod
    async def replace_row(self, key: str, old: bytes | None, new: bytes | None) -> bool:
        """Replace a row if it is still `old`, in one atomic step; return whether it was. None: there is no such row."""

    async def read_row(self, key: str) -> bytes | None:
        """Return one row as of now, or None. By default it is looked for among all rows."""
        return (await self.read_rows()).get(key)

    # --- what efo calls ---------------------------------------------------------------------------------------------

    def ensure_scope(self, application: str, stream: str) -> None:
        """Raise ConfigurationError if the store keeps the leases of another application or stream."""
        self._lease_scope.ensure(application, stream)

    async def list(self) -> Sequence[Lease]:
        """Return all leases, in no particular order."""
        await trio.lowlevel.checkpoint()
        try:
            rows = await self.read_rows()
        except self.unavailable as error:
            raise _unavailable("read_rows", error) from error
        return [_lease(key, row) for key, row in rows.items()]

    async def get(self, key: str) -> Lease | None:
        """Return one lease, or None."""
        row = await self._read(key)
        return None if row is None else _lease(key, row)

    async def create(self, lease: Lease) -> bool:
        """Add a lease unless its key exists; return whether it was added."""
        return await self._replace(lease.key, None, _row(lease))

    async def delete(self, key: str) -> None:
        """Delete a lease, if it exists."""
        for _ in range(MAX_TRIES):
            if (old := await self._read(key)) is None or await self._replace(key, old, None):
                return
        raise _contended(key)

    async def _write(self, key: str, change: Change) -> Lease:
        for _ in range(MAX_TRIES):
            old = await self._read(key)
            lease = change(None if old is None else _lease(key, old))
            if await self._replace(key, old, _row(lease)):
                return lease
        raise _contended(key)

    async def _read(self, key: str) -> bytes | None:
        await trio.lowlevel.checkpoint()
        try:
            return await self.read_row(key)
        except self.unavailable as error:
            raise _unavailable("read_row", error) from error

    async def _replace(self, key: str, old: bytes | None, new: bytes | None) -> bool:
        await trio.lowlevel.checkpoint()
        try:
            return await self.replace_row(key, old, new)
        except self.unavailable as error:
            raise _unavailable("replace_row", error) from error


def _row(lease: Lease) -> bytes:
    return msgspec.json.encode(LeaseRow.of(lease))


_DECODER: Final = msgspec.json.Decoder(LeaseRow)


def _lease(key: str, row: bytes) -> Lease:
    try:
        return _DECODER.decode(row).lease()
    except (msgspec.MsgspecError, ConfigurationError) as error:
        raise LeaseStoreCorruptError(f"the row of the lease {key} cannot be read: {reason_of(error)}") from error


def _unavailable(method: str, error: Exception) -> LeaseStoreUnavailableError:
    return LeaseStoreUnavailableError(f"{method} of the lease store failed: {reason_of(error)}")


def _contended(key: str) -> LeaseStoreUnavailableError:
    return LeaseStoreUnavailableError(f"the lease {key} was changed by others {MAX_TRIES} times in a row")
