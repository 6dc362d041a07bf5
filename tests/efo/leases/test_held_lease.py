"""One held lease: its writes, its renewals, and when it counts as lost. The fail-over time is 10 s throughout."""

from itertools import pairwise

import pytest
import trio

from efo.errors import LeaseLostError, LeaseStoreUnavailableError
from efo.events import LeaseStoreCalled
from efo.model import SHARD_END, Checkpoint


@pytest.fixture
async def ann(team):
    """A worker that holds the one lease there is."""
    await team.create(1)
    worker = team.start("ann")
    await trio.testing.wait_all_tasks_blocked()
    assert worker.keys == {"s0"}
    return worker


@pytest.fixture
def held(ann):
    return ann.keeper.held["s0"]


async def test_it_is_renewed_three_times_in_a_failover_time(autojump_clock, team, ann):
    await trio.sleep(99)
    times = ann.store.times("renew")
    assert len(times) == 29
    assert all(after - before == pytest.approx(10 / 3) for before, after in pairwise(times))
    assert (await team.rows())["s0"].counter == 1 + 29
    assert ann.keys == {"s0"}


async def test_a_checkpoint_is_a_sign_of_life_that_spares_a_renewal(autojump_clock, team, ann, held):
    for number in range(50):
        await trio.sleep(2)
        await held.checkpoint(Checkpoint(str(number)))
    assert ann.store.times("renew") == []
    row = (await team.rows())["s0"]
    assert row == held.lease
    assert (row.checkpoint, row.counter) == (Checkpoint("49"), 51)


async def test_a_checkpoint_can_be_prepared_and_is_a_sign_of_life_too(autojump_clock, team, ann, held):
    for number in range(10):
        await trio.sleep(2)
        await held.prepare_checkpoint(Checkpoint(str(number)), b"state")
    assert ann.store.times("renew") == []
    row = (await team.rows())["s0"]
    assert (row.pending_checkpoint, row.pending_checkpoint_state) == (Checkpoint("9"), b"state")
    await held.checkpoint(Checkpoint("9"))
    assert (await team.rows())["s0"].pending_checkpoint is None


async def test_children_are_no_sign_of_life(autojump_clock, team, ann, held):
    for _ in range(9):
        await trio.sleep(2)
        await held.save_children(("a", "b"))
    assert len(ann.store.times("renew")) == 5
    assert (await team.rows())["s0"].children == held.lease.children == ("a", "b")


async def test_writes_wait_for_each_other(autojump_clock, team, ann, held):
    """A checkpoint that comes while a renewal is under way must not meet the counter that it moves."""
    ann.store.faults["renew"] = "slow"
    await trio.sleep(4)
    await held.checkpoint(Checkpoint("7"))
    assert len(ann.store.times("renew")) == 1
    assert (await team.rows())["s0"] == held.lease
    assert (held.lease.counter, held.lease.checkpoint) == (3, Checkpoint("7"))


@pytest.mark.parametrize(("fault", "reason"), [("down", "store"), ("hang", "expired"), ("unanswered", "store")])
async def test_it_is_given_up_when_no_renewal_succeeds_in_time(autojump_clock, team, ann, held, fault, reason):
    started = trio.current_time()
    ann.store.faults["*"] = fault
    await trio.sleep(9.4)
    assert not held.lost.is_set()
    await held.lost.wait()
    assert trio.current_time() - started == pytest.approx(9.5)
    assert ann.losses == [("s0", reason)]
    assert ann.keys == set()
    with pytest.raises(LeaseLostError, match="no longer in our hands"):
        await held.checkpoint(Checkpoint("1"))


async def test_it_is_given_up_before_another_worker_takes_it(autojump_clock, team, ann, held):
    """Whatever the moment at which the store goes away for ann, and at which bob looks."""
    bob = team.start("bob", scan_interval=0.7)
    await trio.sleep(21.3)
    ann.store.faults["*"] = "down"
    while "s0" not in bob.keys:
        await bob.changed.wait()
    assert held.lost.is_set()
    assert ann.losses == [("s0", "store")]


async def test_it_survives_a_store_that_is_down_for_less_than_the_failover_time(autojump_clock, ann, held):
    for _ in range(5):
        ann.store.faults["*"] = "down"
        await trio.sleep(6)
        ann.store.faults.clear()
        await trio.sleep(4)
    assert not held.lost.is_set()
    assert ann.losses == []


async def test_after_a_long_outage_it_comes_back_at_the_first_look(autojump_clock, ann, held):
    await trio.sleep(5)
    ann.store.faults["*"] = "down"
    await held.lost.wait()
    await trio.sleep(60)
    ann.store.faults.clear()
    await trio.sleep(1)
    assert ann.keys == {"s0"}
    assert ann.keeper.held["s0"] is not held


@pytest.mark.scenario("G21")
async def test_a_renewal_whose_answer_was_lost_is_a_success(autojump_clock, team, ann, held):
    """G21: the row shows us and one more than we know."""
    ann.store.faults["renew"] = "unanswered"
    await trio.sleep(3.4)
    ann.store.faults.clear()
    assert (await team.rows())["s0"].counter == held.lease.counter + 1
    await trio.sleep(30)
    assert ann.losses == []
    assert (await team.rows())["s0"] == held.lease


async def test_a_checkpoint_whose_answer_was_lost_can_be_written_again(autojump_clock, team, ann, held):
    ann.store.faults["checkpoint"] = "unanswered"
    with pytest.raises(LeaseStoreUnavailableError):
        await held.checkpoint(Checkpoint("7"))
    ann.store.faults.clear()
    await held.checkpoint(Checkpoint("8"))
    assert (await team.rows())["s0"] == held.lease
    assert held.lease.checkpoint == Checkpoint("8")


async def test_children_that_are_saved_clear_no_doubt(autojump_clock, team, ann, held):
    ann.store.faults["renew"] = "unanswered"
    with pytest.raises(LeaseStoreUnavailableError):
        await held.confirm()
    ann.store.faults.clear()
    await held.save_children(("c",))
    await held.checkpoint(SHARD_END)
    assert (await team.rows())["s0"].is_finished
    assert ann.losses == []


async def test_a_cancelled_write_does_no_harm(autojump_clock, team, ann, held):
    ann.store.faults["checkpoint"] = "hang"
    with trio.move_on_after(1) as scope:
        await held.checkpoint(Checkpoint("7"))
    assert scope.cancelled_caught
    await held.release()
    assert (await team.rows())["s0"].owner is None


async def test_a_row_one_ahead_without_doubt_is_another_worker_with_our_id(autojump_clock, team, ann, held):
    row = (await team.rows())["s0"]
    await team.store.take(row, "ann")
    await trio.sleep(4)
    assert ann.losses == [("s0", "taken")]


async def test_a_worker_that_lost_its_lease_never_overwrites(autojump_clock, team, ann, held):
    """The zombie: it wakes up with a checkpoint in its hand."""
    bobs = await team.store.take((await team.rows())["s0"], "bob")
    bobs = await team.store.checkpoint(bobs, Checkpoint("9"))
    with pytest.raises(LeaseLostError):
        await held.checkpoint(Checkpoint("3"))
    assert (await team.rows())["s0"] == bobs
    assert held.lost.is_set()
    assert ann.losses == [("s0", "taken")]


async def test_a_deleted_row_is_a_lost_lease(autojump_clock, team, ann, held):
    await team.store.delete("s0")
    await trio.sleep(4)
    assert ann.losses == [("s0", "taken")]
    assert await team.rows() == {}


async def test_release_makes_it_free(autojump_clock, team, ann, held):
    ann.keeper.stop_acquiring()
    await held.release()
    assert held.lost.is_set()
    assert ann.losses == [("s0", "released")]
    assert (await team.rows())["s0"].owner is None
    await held.release()  # once more is no error
    await trio.sleep(30)
    assert (await team.rows())["s0"].counter == 2


async def test_a_release_that_fails_leaves_it_ours(autojump_clock, ann, held):
    ann.store.faults["release"] = "down"
    with pytest.raises(LeaseStoreUnavailableError):
        await held.release()
    assert not held.lost.is_set()
    assert ann.keys == {"s0"}


async def test_the_end_of_the_shard_ends_it_without_a_loss(autojump_clock, team, ann, held):
    await held.save_children(("s1",))
    await held.checkpoint(SHARD_END)
    assert ann.keys == set()
    assert not held.lost.is_set()
    assert ann.losses == []
    finished = (await team.rows())["s0"]
    assert finished.is_finished
    await trio.sleep(100)
    assert (await team.rows())["s0"] == finished
    assert ann.keys == set()


async def test_operations_are_reported(autojump_clock, ann, held):
    await trio.sleep(4)
    ann.store.faults["checkpoint"] = "down"
    with pytest.raises(LeaseStoreUnavailableError):
        await held.checkpoint(Checkpoint("7"))
    operations = [event for event in ann.events if isinstance(event, LeaseStoreCalled) and event.shard_id]
    assert operations == [
        LeaseStoreCalled("take", "s0", 0.0),
        LeaseStoreCalled("renew", "s0", 0.0),
        LeaseStoreCalled("checkpoint", "s0", 0.0, "lease_store_unavailable"),
    ]
