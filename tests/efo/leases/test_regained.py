"""A lease that was lost and got again, and one that the store would not write: what the worker knows afterwards."""

import pytest
import trio

from efo.errors import LeaseLostError, LeaseStoreUnavailableError
from efo.model import Checkpoint


@pytest.mark.scenario("G27")
async def test_a_lease_that_was_got_again_is_not_written_by_who_held_it_before(autojump_clock, team):
    """The reading of before may still be at its last save, with progress that is older than what is read now."""
    await team.create(1)
    ann = team.start("ann")
    await trio.testing.wait_all_tasks_blocked()
    before = ann.keeper.held["s0"]
    (row,) = await team.store.list()
    await team.store.take(row, "bob")  # who never renews
    await before.lost.wait()
    await trio.sleep(15)
    now = ann.keeper.held["s0"]
    assert now is not before
    await now.checkpoint(Checkpoint("20"))
    for write in (lambda: before.checkpoint(Checkpoint("10")), lambda: before.save_children(("a",))):
        with pytest.raises(LeaseLostError, match="no longer in our hands"):
            await write()
    await before.release()  # does nothing: it has ended
    (row,) = await team.store.list()
    assert (row.owner, row.checkpoint, row.children) == ("ann", Checkpoint("20"), ())


@pytest.mark.scenario("G30")
async def test_a_write_that_is_refused_for_now_leaves_what_we_know(autojump_clock, team):
    await team.create(1)
    ann = team.start("ann")
    await trio.testing.wait_all_tasks_blocked()
    held = ann.keeper.held["s0"]
    await held.checkpoint(Checkpoint("1"))
    known = held.lease
    ann.store.faults["*"] = "down"
    for _ in range(2):
        with pytest.raises(LeaseStoreUnavailableError):
            await held.checkpoint(Checkpoint("2"))
        assert held.lease == known
    assert not held.lost.is_set()
    ann.store.faults.clear()
    await held.checkpoint(Checkpoint("3"))
    (row,) = await team.store.list()
    assert row == held.lease
    assert row.checkpoint == Checkpoint("3")
