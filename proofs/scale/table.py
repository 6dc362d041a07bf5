"""A lease table as DynamoDB is one: each call takes time and units of capacity, and is throttled beyond them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

import trio

from efo.errors import LeaseStoreUnavailableError
from efo.leases.row_store import Change
from efo.leases.stores.dynamodb.items import ItemCodec
from efo.leases.stores.memory import MemoryLeaseStore
from efo.leases.writes import LeaseWrite, SettleWrite, write_each
from efo.model import MAX_HASH_KEY, Checkpoint, HashKeyRange, Lease

WRITE_SECONDS: Final = 0.006
PAGE_SECONDS: Final = 0.040
"""How long a write and a page of a scan take: assumed, typical of one region. A page has 1 MB (AWS: Scan)."""
PAGE_BYTES: Final = 1_000_000
UNIT_BYTES: Final = 4096
"""An eventually consistent read of so many bytes is half a read unit (AWS: DynamoDB)."""
TRIES: Final = 3
RETRY_SECONDS: Final = 0.1
"""A throttled call is tried so often, with pauses of this and twice this length, as botocore does by default."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """Units per second of the table. The defaults are those of a new table with on-demand billing (AWS: DynamoDB)."""

    writes: float = 4000.0
    reads: float = 12_000.0


class _Bucket:
    """Units per second, as a bucket that has those of one second. DynamoDB keeps unused ones for longer."""

    def __init__(self, rate: float) -> None:
        self._rate = self._left = rate
        self._at = 0.0

    def take(self, units: float) -> bool:
        """Return whether there are any units left, and take these. A page may take more than there are: it was read."""
        now = trio.current_time()
        self._left = min(self._rate, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left <= 0:
            return False
        self._left -= units
        return True


class LeaseTable(MemoryLeaseStore):
    """The table of a fleet. `of_worker` is what one worker has of it.

    `calls`, `units`: by operation. `write_units`, `read_units`: by second of the clock. `throttled`: by operation, the
    tries that were refused.
    """

    def __init__(self, capacity: Capacity) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.units: dict[str, float] = {}
        self.throttled: Counter[str] = Counter()
        self.write_units: dict[int, float] = {}
        self.read_units: dict[int, float] = {}
        self._writes, self._reads = _Bucket(capacity.writes), _Bucket(capacity.reads)

    @property
    def pages(self) -> int:
        """Return how many pages a scan has."""
        return max(1, ceil(len(self._rows) * ROW_BYTES / PAGE_BYTES))

    def of_worker(self) -> WorkerTable:
        """Return the table as one worker reaches it, until the worker is killed."""
        return WorkerTable(self)

    async def call(self, operation: str, units: float, seconds: float) -> None:
        """Make one call that takes effect at its end. Raises LeaseStoreUnavailableError if it is throttled."""
        is_read = operation in {"scan", "get"}
        for attempt in range(TRIES):
            await trio.sleep(seconds)
            self.calls[operation] += 1
            if (self._reads if is_read else self._writes).take(units):
                by_second, second = self.read_units if is_read else self.write_units, int(trio.current_time())
                by_second[second] = by_second.get(second, 0.0) + units
                self.units[operation] = self.units.get(operation, 0.0) + units
                return
            self.throttled[operation] += 1
            await trio.sleep(RETRY_SECONDS * 2**attempt)
        raise LeaseStoreUnavailableError("the lease table: throttled")

    async def read(self) -> Sequence[Lease]:
        """Scan the table, page by page."""
        left = len(self._rows) * ROW_BYTES
        while True:
            page = min(left, PAGE_BYTES)
            await self.call("scan", max(0.5, page / UNIT_BYTES / 2), PAGE_SECONDS * max(0.2, page / PAGE_BYTES))
            if (left := left - page) <= 0:
                return tuple(self._rows.values())


class WorkerTable(MemoryLeaseStore):
    """What a worker has of the table. `is_dead`: it was killed, and nothing that it does reaches the table."""

    def __init__(self, table: LeaseTable) -> None:
        super().__init__()
        self._table = table
        self._rows = table._rows  # noqa: SLF001 - the same rows
        self.is_dead = False

    async def list(self) -> Sequence[Lease]:
        """Return all leases."""
        self._check_alive()
        return await self._table.read()

    async def get(self, key: str) -> Lease | None:
        """Return one lease, or None."""
        await self._call("get", 1.0)
        return self._rows.get(key)

    async def create(self, lease: Lease) -> bool:
        """Add a lease unless its key exists; return whether it was added. A write that fails is paid, too."""
        await self._call("create")
        if lease.key in self._rows:
            return False
        self._rows[lease.key] = lease
        return True

    async def delete(self, key: str) -> None:
        """Delete a lease, if it exists."""
        await self._call("delete")
        self._rows.pop(key, None)

    async def write_many(self, writes: Sequence[LeaseWrite], settle: SettleWrite) -> None:
        """Perform writes one by one, some at the same time, as on DynamoDB."""
        await write_each(self, writes, settle)

    async def _write(self, key: str, change: Change) -> Lease:
        await self._call("update")
        row = self._rows[key] = change(self._rows.get(key))
        return row

    async def _call(self, operation: str, units: float = 1.0) -> None:
        self._check_alive()
        await self._table.call(operation, units, WRITE_SECONDS)
        self._check_alive()

    def _check_alive(self) -> None:
        if self.is_dead:
            raise LeaseStoreUnavailableError("the worker was killed")


def _row_bytes() -> int:
    """Return the size of a row of a shard that is being read (AWS: names and values, in UTF-8)."""
    keys = HashKeyRange(str(MAX_HASH_KEY // 2), str(MAX_HASH_KEY))
    number = Checkpoint(str(49_590_338_271_490_256_608_559_692_538_361_571_095_921_575_989_136_588_898))
    lease = Lease(
        "shardId-000000001234",
        number,
        owner="consumer-7d9c6b5f4-x2x4z-4f2a",
        counter=100_000,
        hash_key_range=keys,
        throughput_kbps=123.4,
        stream_created_at=1_767_225_600.0,
    )
    item = ItemCodec().new_item(lease)
    return sum(len(name) + len(str(next(iter(value.values())))) for name, value in item.items())


ROW_BYTES: Final = _row_bytes()
