"""The graceful hand-off. The fail-over time is 10 s, a look comes every half second, a holder has 30 s to let go."""

import pytest
import trio

from efo.events import LeaseStoreCalled, ignore
from efo.leases.handoffs import Due, Handoffs
from efo.leases.stores.memory import MemoryLeaseStore
from efo.model import SHARD_END, TRIM_HORIZON, Checkpoint, Lease


def operations(worker, *names):
    events = [event for event in worker.events if isinstance(event, LeaseStoreCalled) and not event.error_type]
    return [event.operation for event in events if event.operation in names]


@pytest.fixture
async def ann(team):
    """She holds both leases there are, and lets go five seconds after she was asked."""
    await team.create(2)
    worker = team.start("ann", pace=5)
    await trio.testing.wait_all_tasks_blocked()
    assert worker.keys == {"s0", "s1"}
    return worker


async def moving(team):
    """Return the lease that is being handed over."""
    (lease,) = [row for row in (await team.rows()).values() if row.checkpoint_owner is not None]
    return lease


@pytest.mark.scenario("G31")
async def test_a_planned_move_goes_on_from_the_last_checkpoint_of_the_holder(autojump_clock, team, ann):
    bob = team.start("bob")
    await trio.sleep(2)
    lease = await moving(team)
    assert (lease.owner, lease.checkpoint_owner) == ("bob", "ann")
    held = ann.keeper.held[lease.key]
    assert held.wanted.is_set()
    assert bob.keys == set()
    await held.checkpoint(Checkpoint("7"))  # she still may, and does
    await trio.sleep(5)
    assert (ann.keys | bob.keys, bob.keys) == ({"s0", "s1"}, {lease.key})
    assert bob.keeper.held[lease.key].lease.checkpoint == Checkpoint("7")
    assert ann.losses == [(lease.key, "handed_over")]
    assert operations(bob, "take", "steal", "request_handoff") == ["request_handoff", "take"]


async def test_a_holder_that_looks_seldom_learns_of_the_request_by_its_own_next_write(autojump_clock, team):
    await team.create(1)
    ann = team.start("ann", pace=None, scan_interval=1000)
    await trio.sleep(5)
    await team.store.request_handoff((await team.rows())["s0"], "bob")
    assert not ann.keeper.held["s0"].wanted.is_set()
    await trio.sleep(10 / 3)
    assert ann.keeper.held["s0"].wanted.is_set()


async def test_the_holder_is_asked_once_and_keeps_the_rest(autojump_clock, team, ann):
    team.start("bob")
    await trio.sleep(100)
    assert [held.wanted.is_set() for held in ann.keeper.held.values()] == [False]


@pytest.mark.scenario("G32")
async def test_a_holder_that_does_not_let_go_is_overrun(autojump_clock, team, ann):
    """G32."""
    ann.pace = None
    bob = team.start("bob")
    started = trio.current_time()
    while not bob.keys:
        await bob.changed.wait()
    assert 40 <= trio.current_time() - started <= 41
    (key,) = bob.keys
    await trio.sleep(4)
    assert ann.losses == [(key, "taken")]


async def test_a_holder_that_dies_is_not_waited_for(autojump_clock, team, ann):
    bob = team.start("bob")
    await trio.sleep(2)
    ann.crash()
    await trio.sleep(11)
    assert bob.keys == {"s0", "s1"}


@pytest.mark.scenario("G33")
async def test_a_worker_that_comes_back_still_waits_for_what_it_asked_for(autojump_clock, team, ann):
    """G33."""
    bob = team.start("bob")
    await trio.sleep(2)
    lease = await moving(team)
    bob.crash()
    again = team.start("bob")
    await trio.sleep(2)
    assert again.keys == set()
    assert (await team.rows())[lease.key].checkpoint_owner == "ann"  # not taken by force
    await trio.sleep(4)
    assert again.keys == {lease.key}
    assert ann.losses == [(lease.key, "handed_over")]


@pytest.mark.scenario("G33")
async def test_a_holder_that_comes_back_has_its_lease_and_the_other_asks_anew(autojump_clock, team, ann):
    """G33, the other side."""
    bob = team.start("bob")
    await trio.sleep(2)
    ann.crash()
    again = team.start("ann")
    await trio.testing.wait_all_tasks_blocked()
    assert again.keys == {"s0", "s1"}
    await trio.sleep(10)
    assert (len(again.keys), len(bob.keys)) == (1, 1)


@pytest.mark.scenario("G34")
async def test_a_worker_that_dies_waiting_does_not_keep_the_lease(autojump_clock, team, ann):
    """G34: what is let go of for a worker that is gone expires, and somebody else has it."""
    bob = team.start("bob")
    await trio.sleep(2)
    lease = await moving(team)
    bob.crash()
    await trio.sleep(5)
    assert (await team.rows())[lease.key].holder == "bob"
    await trio.sleep(11)
    assert ann.keys == {"s0", "s1"}


async def test_a_worker_that_leaves_while_it_waits_takes_its_request_back(autojump_clock, team, ann):
    bob = team.start("bob")
    await trio.sleep(2)
    lease = await moving(team)
    ann.pace = None
    await bob.stop()
    row = (await team.rows())[lease.key]
    assert (row.owner, row.checkpoint_owner) == ("ann", None)
    assert operations(bob, "withdraw") == ["withdraw"]


async def test_a_holder_that_lets_go_while_the_request_is_taken_back_leaves_the_lease_free() -> None:
    class Store(MemoryLeaseStore):
        async def get(self, key: str) -> Lease | None:
            row = await super().get(key)
            if row is not None and row.checkpoint_owner is not None:
                await self.release(row)
            return row

    store = Store()
    await store.create(Lease("s0", TRIM_HORIZON))
    (row,) = await store.list()
    row = await store.take(row, "ann")
    handoffs = Handoffs(store, "bob", 30.0, ignore)
    await handoffs.ask(row)
    await handoffs.withdraw(())
    (row,) = await store.list()
    assert (row.owner, row.checkpoint_owner) == (None, None)


@pytest.mark.parametrize("leaves", [False, True])
async def test_what_was_let_go_of_for_us_and_is_asked_for_before_we_see_it_is_passed_on(leaves) -> None:
    """Without it, nobody reads until the lease expires: we never began it, and the other waits for us."""
    store = MemoryLeaseStore()
    await store.create(Lease("s0", TRIM_HORIZON, owner="ann", counter=5))
    bob, eve = (Handoffs(store, name, 40, ignore) for name in ("bob", "eve"))
    await bob.ask(await store.get("s0"))
    let_go = await store.release(await store.get("s0"))
    assert (let_go.owner, let_go.checkpoint_owner) == ("bob", None)
    await eve.ask(let_go)
    if leaves:
        await bob.withdraw(())
    else:
        due = bob.observe(await store.list(), ())
        assert (due.handed, due.overdue, [row.key for row in due.wanted]) == ((), (), ["s0"])
        await bob.pass_on(due.wanted[0])
        assert bob.observe(await store.list(), ()) == Due()
    rows = await store.list()
    assert [(row.owner, row.checkpoint_owner) for row in rows] == [("eve", None)]
    assert eve.observe(rows, ()).handed == tuple(rows)


async def test_a_worker_that_leaves_frees_what_was_let_go_of_for_it(autojump_clock, team, ann):
    bob = team.start("bob", scan_interval=100)
    await trio.sleep(2)
    lease = await moving(team)
    ann.keeper.stop_acquiring()
    await trio.sleep(5)
    assert (await team.rows())[lease.key].holder == "bob"
    bob.keeper.stop_acquiring()
    await trio.testing.wait_all_tasks_blocked()
    assert (await team.rows())[lease.key].owner is None


@pytest.mark.scenario("G35")
async def test_the_end_of_a_shard_is_not_handed_over(autojump_clock, team, ann):
    """G35."""
    bob = team.start("bob")
    await trio.sleep(2)
    lease = await moving(team)
    await ann.keeper.held[lease.key].checkpoint(SHARD_END)
    await trio.sleep(100)
    assert bob.keys == set()
    assert (await team.rows())[lease.key].is_finished
    assert ann.losses == []


async def test_a_third_worker_does_not_ask_for_what_is_already_moving(autojump_clock, team):
    await team.create(3)
    ann = team.start("ann", pace=5)
    await trio.testing.wait_all_tasks_blocked()
    bob, cid = team.start("bob"), team.start("cid")
    await trio.sleep(20)
    assert [len(worker.keys) for worker in (ann, bob, cid)] == [1, 1, 1]
    assert [len(operations(worker, "request_handoff")) for worker in (bob, cid)] == [1, 1]


async def test_a_request_whose_answer_was_lost_is_waited_for(autojump_clock, team, ann):
    bob = team.hire("bob")
    bob.store.faults["request_handoff"] = "unanswered"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bob.run)
        await trio.sleep(20)
        assert len(bob.keys) == 1
        assert len(bob.store.times("request_handoff")) == 1
        assert operations(bob, "steal") == []
        nursery.cancel_scope.cancel()


async def test_a_renewal_whose_answer_was_lost_while_the_lease_was_asked_for_is_a_success(autojump_clock, team, ann):
    ann.pace = 20
    await trio.sleep(3)
    ann.store.faults["renew"] = "unanswered"
    bob = team.start("bob")
    await trio.sleep(2)
    ann.store.faults.clear()
    await trio.sleep(10)
    assert ann.losses == []
    assert (await moving(team)).holder == "ann"
    await trio.sleep(12)
    assert [reason for _, reason in ann.losses] == ["handed_over"]
    assert len(bob.keys) == 1


async def test_a_table_that_is_a_moment_old_makes_no_request_forgotten(autojump_clock, team, ann):
    """As DynamoDB lists by default: what was let go of for us must not wait until it expires."""
    ann.pace = 0
    bob = team.hire("bob")
    old = await team.store.list()
    looks = 0

    async def list_with_delay():
        nonlocal looks
        looks += 1
        return old if looks == 2 else await team.store.list()

    bob.keeper._store.list = list_with_delay
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bob.run)
        await trio.sleep(2.1)
        assert looks >= 3
        assert len(bob.keys) == 1
        nursery.cancel_scope.cancel()
