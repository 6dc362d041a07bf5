"""The graceful hand-off. Fail-over time 10 s, lease scan interval 0.5 s, hand-off timeout 30 s."""

import pytest
import trio

from efo.errors import LeaseStoreUnavailableError
from efo.events import LeaseStoreCalled, ignore_events
from efo.leases.handoffs import DueHandoffs, Handoffs
from efo.leases.stores.memory import MemoryLeaseStore
from efo.model import Checkpoint, Lease


def operations(worker, *names):
    events = [event for event in worker.events if isinstance(event, LeaseStoreCalled) and not event.error_type]
    return [event.operation for event in events if event.operation in names]


@pytest.fixture
async def ann(fleet):
    """A worker that holds both leases, and releases a lease five seconds after it is requested."""
    await fleet.create(2)
    worker = fleet.start("ann", release_delay=5)
    await trio.testing.wait_all_tasks_blocked()
    assert worker.keys == {"s0", "s1"}
    return worker


async def lease_in_handoff(fleet):
    """Return the lease whose hand-off is pending."""
    (lease,) = [row for row in (await fleet.rows()).values() if row.checkpoint_owner is not None]
    return lease


@pytest.mark.scenario("G31")
async def test_the_new_owner_starts_at_the_last_checkpoint_of_the_holder(autojump_clock, fleet, ann):
    bob = fleet.start("bob")
    await trio.sleep(2)
    lease = await lease_in_handoff(fleet)
    assert (lease.owner, lease.checkpoint_owner) == ("bob", "ann")
    held = ann.coordinator.held[lease.key]
    assert held.handoff_requested.is_set()
    assert bob.keys == set()
    await held.checkpoint(Checkpoint("7"))  # the holder may still checkpoint
    await trio.sleep(5)
    assert (ann.keys | bob.keys, bob.keys) == ({"s0", "s1"}, {lease.key})
    assert bob.coordinator.held[lease.key].lease.checkpoint == Checkpoint("7")
    assert ann.losses == [(lease.key, "handed_over")]
    assert operations(bob, "take", "steal", "request_handoff") == ["request_handoff", "take"]


async def test_a_holder_sees_the_request_at_its_next_renewal_without_a_lease_scan(autojump_clock, fleet):
    await fleet.create(1)
    ann = fleet.start("ann", release_delay=None, scan_interval=1000)
    await trio.sleep(5)
    await fleet.store.request_handoff((await fleet.rows())["s0"], "bob")
    assert not ann.coordinator.held["s0"].handoff_requested.is_set()
    await trio.sleep(10 / 3)
    assert ann.coordinator.held["s0"].handoff_requested.is_set()


async def test_the_holder_keeps_its_other_leases_after_one_hand_off(autojump_clock, fleet, ann):
    fleet.start("bob")
    await trio.sleep(100)
    assert [held.handoff_requested.is_set() for held in ann.coordinator.held.values()] == [False]


@pytest.mark.scenario("G32")
async def test_a_lease_that_is_not_released_in_time_is_taken_by_force(autojump_clock, fleet, ann):
    ann.release_delay = None
    bob = fleet.start("bob")
    started = trio.current_time()
    while not bob.keys:
        await bob.changed.wait()
    assert 40 <= trio.current_time() - started <= 41
    (key,) = bob.keys
    await trio.sleep(4)
    assert ann.losses == [(key, "taken")]


async def test_the_leases_of_a_crashed_holder_are_taken_when_they_expire(autojump_clock, fleet, ann):
    bob = fleet.start("bob")
    await trio.sleep(2)
    ann.crash()
    await trio.sleep(11)
    assert bob.keys == {"s0", "s1"}


@pytest.mark.scenario("G33")
async def test_a_restarted_worker_still_waits_for_the_lease_that_it_requested(autojump_clock, fleet, ann):
    bob = fleet.start("bob")
    await trio.sleep(2)
    lease = await lease_in_handoff(fleet)
    bob.crash()
    restarted = fleet.start("bob")
    await trio.sleep(2)
    assert restarted.keys == set()
    assert (await fleet.rows())[lease.key].checkpoint_owner == "ann"  # not taken by force
    await trio.sleep(4)
    assert restarted.keys == {lease.key}
    assert ann.losses == [(lease.key, "handed_over")]


@pytest.mark.scenario("G33")
async def test_a_restarted_holder_keeps_its_leases_and_the_other_worker_requests_again(autojump_clock, fleet, ann):
    bob = fleet.start("bob")
    await trio.sleep(2)
    ann.crash()
    restarted = fleet.start("ann")
    await trio.testing.wait_all_tasks_blocked()
    assert restarted.keys == {"s0", "s1"}
    await trio.sleep(10)
    assert (len(restarted.keys), len(bob.keys)) == (1, 1)


@pytest.mark.scenario("G34")
async def test_a_lease_released_for_a_crashed_worker_expires_and_is_taken(autojump_clock, fleet, ann):
    bob = fleet.start("bob")
    await trio.sleep(2)
    lease = await lease_in_handoff(fleet)
    bob.crash()
    await trio.sleep(5)
    assert (await fleet.rows())[lease.key].holder == "bob"
    await trio.sleep(11)
    assert ann.keys == {"s0", "s1"}


async def test_a_worker_that_stops_withdraws_its_pending_request(autojump_clock, fleet, ann):
    bob = fleet.start("bob")
    await trio.sleep(2)
    lease = await lease_in_handoff(fleet)
    ann.release_delay = None
    await bob.stop()
    row = (await fleet.rows())[lease.key]
    assert (row.owner, row.checkpoint_owner) == ("ann", None)
    assert operations(bob, "withdraw") == ["withdraw"]


@pytest.mark.parametrize("fault", ["slow", "response_lost"])
async def test_a_request_without_a_response_is_withdrawn_when_the_worker_stops(autojump_clock, fleet, fault):
    await fleet.create(2)
    fleet.start("ann", release_delay=None)
    await trio.sleep(5)
    bob = fleet.start("bob")
    bob.store.faults["request_handoff"] = fault
    await trio.sleep(1.5)
    assert [row.owner for row in (await fleet.rows()).values()].count("bob") == 1
    bob.store.faults.clear()
    await bob.stop()
    assert {(row.owner, row.checkpoint_owner) for row in (await fleet.rows()).values()} == {("ann", None)}


async def test_a_release_during_the_withdrawal_leaves_the_lease_unowned() -> None:
    class Store(MemoryLeaseStore):
        async def get(self, key: str) -> Lease | None:
            row = await super().get(key)
            if row is not None and row.checkpoint_owner is not None:
                await self.release(row)
            return row

    store = Store()
    await store.create(Lease("s0", Checkpoint.TRIM_HORIZON))
    (row,) = await store.list()
    row = await store.take(row, "ann")
    handoffs = Handoffs(store, "bob", 30.0, ignore_events)
    await handoffs.request(row)
    await handoffs.withdraw(())
    (row,) = await store.list()
    assert (row.owner, row.checkpoint_owner) == (None, None)


async def test_the_request_of_another_worker_is_not_withdrawn() -> None:
    """Eve has replaced the request of bob, who has not read the table since."""
    store = MemoryLeaseStore()
    await store.create(Lease("s0", Checkpoint.TRIM_HORIZON, owner="ann", counter=5))
    handoffs = Handoffs(store, "bob", 30.0, ignore_events)
    (row,) = await store.list()
    await handoffs.request(row)
    (row,) = await store.list()
    replaced = await store.request_handoff(row, "eve")
    await handoffs.withdraw(())
    assert list(await store.list()) == [replaced]


async def test_a_request_is_withdrawn_once() -> None:
    """The lease is the holder's again: a second withdrawal must not release it if it comes back later."""
    store = MemoryLeaseStore()
    await store.create(Lease("s0", Checkpoint.TRIM_HORIZON, owner="ann", counter=5))
    handoffs = Handoffs(store, "bob", 30.0, ignore_events)
    (row,) = await store.list()
    await handoffs.request(row)
    assert handoffs.is_waiting
    await handoffs.withdraw(())
    assert not handoffs.is_waiting
    (row,) = await store.list()
    taken = await store.take(row, "bob")
    await handoffs.withdraw(())
    assert list(await store.list()) == [taken]


async def test_a_request_that_may_have_taken_place_is_waited_for_though_its_error_is_raised() -> None:
    class Store(MemoryLeaseStore):
        async def request_handoff(self, _lease: Lease, _owner: str) -> Lease:
            raise LeaseStoreUnavailableError("no response")

    handoffs = Handoffs(Store(), "bob", 30.0, ignore_events)
    with pytest.raises(LeaseStoreUnavailableError):
        await handoffs.request(Lease("s0", Checkpoint.TRIM_HORIZON, owner="ann"))
    assert handoffs.is_waiting


async def test_a_request_that_the_table_does_not_show_is_remembered_until_its_timeout(autojump_clock) -> None:
    store = MemoryLeaseStore()
    await store.create(Lease("s0", Checkpoint.TRIM_HORIZON, owner="ann", counter=5))
    stale = await store.list()
    handoffs = Handoffs(store, "bob", 30.0, ignore_events)
    await handoffs.request(stale[0])
    for seconds, is_waiting in ((29, True), (1, False)):
        await trio.sleep(seconds)
        assert handoffs.observe(stale, ()) == DueHandoffs()
        assert handoffs.is_waiting == is_waiting


@pytest.mark.parametrize("stops", [False, True], ids=["running", "stopping"])
async def test_a_lease_released_for_a_worker_and_requested_by_another_is_passed_on(stops) -> None:
    """Otherwise the lease has no reader until it expires: bob has not started, and eve waits for bob."""
    store = MemoryLeaseStore()
    await store.create(Lease("s0", Checkpoint.TRIM_HORIZON, owner="ann", counter=5))
    bob, eve = (Handoffs(store, name, 40, ignore_events) for name in ("bob", "eve"))
    await bob.request(await store.get("s0"))
    released = await store.release(await store.get("s0"))
    assert (released.owner, released.checkpoint_owner) == ("bob", None)
    await eve.request(released)
    if stops:
        await bob.withdraw(())
    else:
        due = bob.observe(await store.list(), ())
        assert (due.handed_over, due.overdue, [row.key for row in due.requested]) == ((), (), ["s0"])
        await bob.pass_on(due.requested[0])
        assert bob.observe(await store.list(), ()) == DueHandoffs()
    assert not bob.is_waiting
    rows = await store.list()
    assert [(row.owner, row.checkpoint_owner) for row in rows] == [("eve", None)]
    assert eve.observe(rows, ()).handed_over == tuple(rows)


async def test_a_worker_that_stops_releases_a_lease_that_was_released_for_it(autojump_clock, fleet, ann):
    bob = fleet.start("bob", scan_interval=100)
    await trio.sleep(2)
    lease = await lease_in_handoff(fleet)
    ann.coordinator.stop_acquiring()
    await trio.sleep(5)
    assert (await fleet.rows())[lease.key].holder == "bob"
    bob.coordinator.stop_acquiring()
    await trio.testing.wait_all_tasks_blocked()
    assert (await fleet.rows())[lease.key].owner is None


@pytest.mark.scenario("G35")
async def test_a_finished_shard_is_not_handed_over(autojump_clock, fleet, ann):
    bob = fleet.start("bob")
    await trio.sleep(2)
    lease = await lease_in_handoff(fleet)
    await ann.coordinator.held[lease.key].checkpoint(Checkpoint.SHARD_END)
    await trio.sleep(100)
    assert bob.keys == set()
    assert (await fleet.rows())[lease.key].is_finished
    assert ann.losses == []


async def test_a_third_worker_does_not_request_a_lease_with_a_pending_hand_off(autojump_clock, fleet):
    await fleet.create(3)
    ann = fleet.start("ann", release_delay=5)
    await trio.testing.wait_all_tasks_blocked()
    bob, cid = fleet.start("bob"), fleet.start("cid")
    await trio.sleep(20)
    assert [len(worker.keys) for worker in (ann, bob, cid)] == [1, 1, 1]
    assert [len(operations(worker, "request_handoff")) for worker in (bob, cid)] == [1, 1]


async def test_a_request_whose_response_was_lost_is_not_repeated(autojump_clock, fleet, ann):
    bob = fleet.make_worker("bob")
    bob.store.faults["request_handoff"] = "response_lost"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bob.run)
        await trio.sleep(20)
        assert len(bob.keys) == 1
        assert len(bob.store.times("request_handoff")) == 1
        assert operations(bob, "steal") == []
        nursery.cancel_scope.cancel()


async def test_a_renewal_with_a_lost_response_succeeds_although_the_lease_was_requested(autojump_clock, fleet, ann):
    ann.release_delay = 20
    await trio.sleep(3)
    ann.store.faults["renew"] = "response_lost"
    bob = fleet.start("bob")
    await trio.sleep(2)
    ann.store.faults.clear()
    await trio.sleep(10)
    assert ann.losses == []
    assert (await lease_in_handoff(fleet)).holder == "ann"
    await trio.sleep(12)
    assert [reason for _, reason in ann.losses] == ["handed_over"]
    assert len(bob.keys) == 1


async def test_a_stale_lease_scan_does_not_forget_a_request(autojump_clock, fleet, ann):
    """DynamoDB's scans are eventually consistent by default. A lease that was released for bob must not expire."""
    ann.release_delay = 0
    bob = fleet.make_worker("bob")
    stale = await fleet.store.list()
    scans = 0

    async def list_stale_once():
        nonlocal scans
        scans += 1
        return stale if scans == 2 else await fleet.store.list()

    bob.coordinator._store.list = list_stale_once
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bob.run)
        await trio.sleep(2.1)
        assert scans >= 3
        assert len(bob.keys) == 1
        nursery.cancel_scope.cancel()
