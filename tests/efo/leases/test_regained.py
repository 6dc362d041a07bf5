"""The state of a worker after it lost and regained a lease, and after a failed write."""

import pytest
import trio

from efo.errors import LeaseLostError, LeaseStoreUnavailableError
from efo.model import Checkpoint


@pytest.mark.scenario("G27")
async def test_the_former_held_lease_cannot_write_after_the_lease_is_regained(autojump_clock, fleet):
    """The former shard task may still save its progress, which is older than that of the current one."""
    await fleet.create(1)
    ann = fleet.start("ann")
    await trio.testing.wait_all_tasks_blocked()
    former = ann.coordinator.held["s0"]
    (row,) = await fleet.store.list()
    await fleet.store.take(row, "bob")  # bob never renews it
    await former.lost.wait()
    await trio.sleep(15)
    current = ann.coordinator.held["s0"]
    assert current is not former
    await current.checkpoint(Checkpoint("20"))
    for write in (lambda: former.checkpoint(Checkpoint("10")), lambda: former.save_children(("a",))):
        with pytest.raises(LeaseLostError, match="not held by this worker any more"):
            await write()
    await former.release()  # does nothing: it has ended
    (row,) = await fleet.store.list()
    assert (row.owner, row.checkpoint, row.children) == ("ann", Checkpoint("20"), ())


@pytest.mark.scenario("G30")
async def test_a_failed_write_does_not_change_the_held_lease(autojump_clock, fleet):
    await fleet.create(1)
    ann = fleet.start("ann")
    await trio.testing.wait_all_tasks_blocked()
    held = ann.coordinator.held["s0"]
    await held.checkpoint(Checkpoint("1"))
    lease = held.lease
    ann.store.faults["*"] = "down"
    for _ in range(2):
        with pytest.raises(LeaseStoreUnavailableError):
            await held.checkpoint(Checkpoint("2"))
        assert held.lease == lease
    assert not held.lost.is_set()
    ann.store.faults.clear()
    await held.checkpoint(Checkpoint("3"))
    (row,) = await fleet.store.list()
    assert row == held.lease
    assert row.checkpoint == Checkpoint("3")
