"""The writes of a batch as values, and batches for stores that write each row by itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio

from efo.errors import LeaseLostError, LeaseStoreUnavailableError
from efo.leases.stores.memory import MemoryLeaseStore
from efo.leases.writes import ReleaseLease, RenewLease, TakeLease, check_distinct, row_after, write_each, write_one
from efo.model import Checkpoint, Lease

LEASE = Lease("s", Checkpoint("5"), owner="ann", counter=7)
ROWS = [
    (TakeLease(LEASE, "bob"), replace(LEASE, owner="bob", counter=8, owner_switches=1)),
    (RenewLease(LEASE), replace(LEASE, counter=8)),
    (RenewLease(LEASE, None, 2.5), replace(LEASE, counter=8, throughput_kbps=2.5)),
    (
        RenewLease(LEASE, Checkpoint("6"), 2.5),
        replace(LEASE, checkpoint=Checkpoint("6"), counter=8, throughput_kbps=2.5),
    ),
    (ReleaseLease(LEASE), replace(LEASE, owner=None, counter=8)),
]


@pytest.mark.parametrize(("write", "row"), ROWS)
async def test_each_write_makes_its_row_by_itself_and_in_a_batch(write, row):
    assert row_after(write, LEASE) == row
    with pytest.raises(LeaseLostError):
        row_after(write, replace(LEASE, counter=9))
    store = MemoryLeaseStore()
    await store.create(LEASE)
    assert await write_one(store, write) == row
    assert await store.get("s") == row


def test_a_batch_has_one_write_of_a_lease():
    other = replace(LEASE, key="t")
    check_distinct([])
    check_distinct([RenewLease(LEASE), RenewLease(other)])
    with pytest.raises(ValueError, match="two writes of one lease"):
        check_distinct([RenewLease(LEASE), RenewLease(other), ReleaseLease(LEASE)])


async def test_twenty_five_writes_of_a_batch_are_made_at_a_time_and_each_is_settled_as_it_ends(autojump_clock):
    class Slow(MemoryLeaseStore):
        async def renew(self, lease, throughput_kbps=None):
            await trio.sleep(1)
            if lease.key == "3":
                raise LeaseStoreUnavailableError("down")
            return await super().renew(lease, throughput_kbps)

    store, settled = Slow(), {}
    leases = [Lease(str(number), Checkpoint("5"), owner="ann") for number in range(60)]
    for lease in leases[1:]:
        await store.create(lease)
    await write_each(
        store,
        [RenewLease(lease) for lease in leases],
        lambda index, result: settled.update({index: (trio.current_time(), result)}),
    )
    times = [at for at, _ in settled.values()]
    assert {at: times.count(at) for at in times} == {1.0: 25, 2.0: 25, 3.0: 10}
    assert isinstance(settled[0][1], LeaseLostError)
    assert isinstance(settled[3][1], LeaseStoreUnavailableError)
    assert all(settled[index][1] == replace(leases[index], counter=1) for index in range(60) if index not in {0, 3})
