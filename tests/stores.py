"""A lease store that tests can make unreachable."""

from __future__ import annotations

from efo.errors import LeaseStoreUnavailableError
from efo.leases.stores.memory import MemoryLeaseStore


class UnreachableStore(MemoryLeaseStore):
    """A lease store in memory. Its calls fail while `is_down`."""

    def __init__(self) -> None:
        super().__init__()
        self.is_down = False

    def _check(self) -> None:
        if self.is_down:
            raise LeaseStoreUnavailableError("the lease store is down")

    async def list(self):
        self._check()
        return await super().list()

    async def get(self, key):
        self._check()
        return await super().get(key)

    async def create(self, lease):
        self._check()
        return await super().create(lease)

    async def _write(self, key, change):
        self._check()
        return await super()._write(key, change)

    async def _write_rows(self, writes):
        self._check()
        return await super()._write_rows(writes)
