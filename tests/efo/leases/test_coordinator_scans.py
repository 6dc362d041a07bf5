"""What a lease scan tells, when the next one comes, and in how many steps its moves are made."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest
import trio

from efo.events import LeasesCounted
from efo.leases.coordinator import LeaseCoordinator
from efo.leases.stores.memory import MemoryLeaseStore
from efo.leases.transitions import taken
from efo.model import Checkpoint, Lease
from efo.protocol.assignment.assign import assign
from efo.protocol.assignment.balance import balanced_assignment
from tests.efo.leases.conftest import FaultyStore


async def test_a_lease_is_of_another_worker_while_that_renews_it(autojump_clock, fleet):
    await fleet.create(2)
    ann, bob = fleet.start("ann", max_leases=1), fleet.start("bob")
    await trio.sleep(12)
    await fleet.store.create(Lease("free", Checkpoint.SHARD_END))
    bobs = {key for key, lease in ann.coordinator.leases.items() if ann.coordinator.is_of_another(lease)}
    assert bobs == bob.keys
    assert len(bobs) == 1
    bob.crash()
    (lease,) = (ann.coordinator.leases[key] for key in bobs)
    await trio.sleep(6)
    assert ann.coordinator.is_of_another(lease)
    await trio.sleep(6)
    assert not any(map(ann.coordinator.is_of_another, [lease, *ann.coordinator.leases.values()]))


@pytest.mark.parametrize(("scan_interval", "known"), [(None, 9.5), (2.0, 9.5), (20.0, 40.0)])
async def test_counts_are_known_for_as_long_as_leases_are_trusted_or_for_two_scans(
    autojump_clock, fleet, scan_interval, known
):
    await fleet.create(1)
    ann = fleet.make_worker("ann", scan_interval=scan_interval)
    assert ann.coordinator.counts(0.0) is None
    with trio.move_on_after(0.1):
        await ann.coordinator.run()
    assert ann.coordinator.counts(known - 0.01) == LeasesCounted({"held": 1, "unowned": 0, "expired": 0}, 1)
    assert ann.coordinator.counts(known) is None


async def test_scans_are_numbered_when_they_begin_and_when_they_have_ended(autojump_clock, fleet):
    scans = []
    ann = fleet.start("ann", on_scan=lambda: scans.append((trio.current_time(), ann.coordinator.scanned)))
    await trio.sleep(1.2)
    assert scans == [(0.0, 1), (0.5, 2), (1.0, 3)]
    ann.store.faults["list"] = "slow"
    await trio.sleep(1.3)
    assert (ann.coordinator.scans_begun, ann.coordinator.scanned) == (4, 3)
    await trio.sleep(1.2)
    assert (ann.coordinator.scans_begun, ann.coordinator.scanned) == (4, 4)


async def test_a_scan_that_hangs_ends_after_the_failover_time(autojump_clock, fleet):
    ann = fleet.start("ann")
    ann.store.faults["list"] = "hang"
    await trio.sleep(21.2)
    assert ann.store.times("list") == [0.0, 10.5, 21.0]


async def test_the_next_scan_comes_soon_if_another_worker_was_first(autojump_clock, fleet):
    await fleet.create(30)

    def take_first(lease):  # called between the scan and the takes
        if lease.key == "s1" and lease.owner is None:
            fleet.store._rows["s1"] = taken(lease, "bob")
        return True

    ann = fleet.start("ann", eligible=take_first)
    await trio.sleep(0.7)
    assert ann.store.times("list") == pytest.approx([0.0, 0.1, 0.6])
    takes = Counter(ann.store.times("take"))
    # The moves of its batch were made; those after it were planned anew.
    assert takes[0.0] % 10 == 0
    assert len(ann.keys) == 29


@pytest.mark.parametrize("by_throughput", [False, True])
async def test_leases_that_are_settled_are_assigned_again_after_the_failover_time(autojump_clock, fleet, by_throughput):
    await fleet.create(2)
    planned = []

    def noting(view):
        planned.append(trio.current_time())
        return balanced_assignment(view)

    ann = fleet.start("ann", assignment=noting, by_throughput=by_throughput)
    await trio.sleep(40.2)
    # The first scan takes them, and the second one sees that.
    assert planned == ([0.5 * number for number in range(81)] if by_throughput else [0.0, 0.5, 10.5, 20.5, 30.5])
    planned.clear()
    await fleet.store.create(Lease("new", Checkpoint.LATEST))
    await trio.sleep(1.2)
    assert ann.keys == {"s0", "s1", "new"}
    assert len(planned) == 2


async def test_leases_are_taken_in_batches_that_double(autojump_clock):
    sizes = []

    class Store(MemoryLeaseStore):
        async def write_many(self, writes, settle):
            sizes.append(len(writes))
            await trio.sleep(1)
            await super().write_many(writes, settle)

    store = Store()
    for number in range(600):
        await store.create(Lease(f"s{number}", Checkpoint.LATEST))
    coordinator = LeaseCoordinator(store, "ann", failover_seconds=100.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(coordinator.run)
        await trio.sleep(10)
        assert sizes == [10, 20, 40, 80, 160, 160, 130]
        assert len(coordinator.held) == 600
        nursery.cancel_scope.cancel()


async def test_a_row_that_is_deleted_or_finished_is_a_change_and_progress_is_none(autojump_clock, fleet):
    await fleet.create(3)
    await fleet.store.create(Lease("x", Checkpoint("1"), owner="cid"))
    ann = fleet.start("ann", eligible=lambda _lease: False)
    await trio.sleep(1)

    async def changes(write):
        before = ann.changes
        await write
        await trio.sleep(1)
        return ann.changes - before

    async def row():
        return (await fleet.rows())["x"]

    assert await changes(fleet.store.renew(await row())) == 0
    assert await changes(fleet.store.checkpoint(await row(), Checkpoint("2"))) == 0
    assert await changes(fleet.store.request_handoff(await row(), "dan")) == 1
    assert await changes(fleet.store.checkpoint(await row(), Checkpoint.SHARD_END)) == 1
    assert await changes(fleet.store.delete("x")) == 1
    assert await changes(fleet.store.create(Lease("y", Checkpoint("1")))) == 1


async def test_leases_of_workers_that_have_gone_are_counted_as_expired(autojump_clock, fleet):
    await fleet.create(2, owner="dead")
    await fleet.store.create(Lease("done", Checkpoint.SHARD_END, owner="dead"))
    ann = fleet.start("ann", eligible=lambda _lease: False)
    await trio.sleep(9)
    assert ann.last_count == LeasesCounted({"held": 2, "unowned": 0, "expired": 0}, 1)
    await trio.sleep(2)
    assert ann.last_count == LeasesCounted({"held": 0, "unowned": 0, "expired": 2}, 0)


async def test_the_scan_interval_grows_with_the_workers_that_hold_leases(autojump_clock, fleet):
    """With twenty others, and this one that holds none."""
    await fleet.create(21)
    for number, row in enumerate((await fleet.rows()).values()):
        if number < 20:
            await fleet.store.take(row, f"w{number}")
    ann = fleet.start("ann", eligible=lambda _lease: False)
    await trio.sleep(5)
    first, second, *_ = ann.store.times("list")
    assert second - first == pytest.approx(10 * 21 / 100)


async def test_a_worker_with_the_same_id_is_told_after_it_has_renewed_a_lease_twice(autojump_clock, fleet):
    told = []
    await fleet.create(1)
    one = fleet.start("ann", on_namesake=lambda key: told.append((key, trio.current_time())))
    await trio.sleep(1)
    two = fleet.start("ann")
    await trio.sleep(20)
    assert (one.keys, two.keys) == (set(), {"s0"})
    assert told[0] == ("s0", pytest.approx(1 + 20 / 3, abs=1.1))
    assert {key for key, _ in told} == {"s0"}


async def test_a_take_without_a_response_is_no_worker_of_the_same_id(autojump_clock, fleet):
    told = []
    await fleet.create(1)
    ann = fleet.start("ann", on_namesake=told.append, eligible=lambda _lease: not ann.keys)
    ann.store.faults["take"] = "response_lost"
    await trio.sleep(0.2)
    ann.store.faults.clear()
    row = (await fleet.rows())["s0"]
    for _ in range(4):  # as if this worker renewed it
        row = await fleet.store.renew(row)
        await trio.sleep(1)
    assert (told, ann.keys) == ([], set())
    await trio.sleep(15)
    assert ann.keys == {"s0"}


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_a_take_without_a_response_is_released_at_the_end_if_its_row_is_still_there(
    autojump_clock, fleet, is_deleted
):
    await fleet.create(1)
    ann = fleet.start("ann", eligible=lambda lease: lease.owner is None)
    ann.store.faults["take"] = "response_lost"
    await trio.sleep(0.2)
    if is_deleted:
        await fleet.store.delete("s0")
    await trio.sleep(1)
    await ann.stop()
    assert len(ann.store.times("release")) == (not is_deleted)


async def test_a_worker_that_stops_acquiring_withdraws_its_requests_at_once(autojump_clock, fleet):
    await fleet.create(4)
    fleet.start("ann", release_delay=None)
    await trio.sleep(1)
    bob = fleet.start("bob", scan_interval=5.0)
    await trio.sleep(1)
    assert [row.checkpoint_owner for row in (await fleet.rows()).values()].count("ann") == 1
    bob.coordinator.stop_acquiring()
    await trio.testing.wait_all_tasks_blocked()
    assert {(row.owner, row.checkpoint_owner) for row in (await fleet.rows()).values()} == {("ann", None)}


async def test_a_worker_waits_no_longer_for_a_lease_that_another_one_took_before_it(autojump_clock, fleet):
    planned = []

    class Racy(MemoryLeaseStore):
        async def take(self, lease, owner):
            if owner == "bob":
                await super().take(lease, "cid")
            return await super().take(lease, owner)

    def noting(view):
        planned.append(trio.current_time())
        return balanced_assignment(view)

    fleet.store = Racy()
    await fleet.create(2)
    ann = fleet.start("ann")
    await trio.sleep(1)
    bob = fleet.start("bob", assignment=noting)
    await trio.sleep(5)
    assert (len(ann.keys), bob.keys, len(bob.store.times("take"))) == (1, set(), 1)
    assert planned[-1] < 3  # all leases are settled


async def test_a_lease_that_is_released_is_listed_so_before_the_next_scan(autojump_clock, fleet):
    await fleet.create(1)
    ann = fleet.start("ann", scan_interval=5.0)
    await trio.sleep(1)
    await ann.coordinator.held["s0"].release()
    assert ann.coordinator.leases["s0"] == (await fleet.rows())["s0"]
    assert ann.coordinator.leases["s0"].owner is None


def test_a_short_failover_time_is_one():
    assert not LeaseCoordinator(MemoryLeaseStore(), "ann", failover_seconds=0.5).held


class Joint:
    """Plans with other tables: notes when, and what a worker that takes no more leases shows it."""

    def __init__(self):
        self.is_outdated = False
        self.planned, self.observed = [], []

    def assign(self, rows, worker, **options):
        self.planned.append(trio.current_time())
        return assign(rows, worker, **options)

    def observe(self, rows, expired):
        self.observed.append(({row.key for row in rows}, set(expired)))


async def test_leases_that_are_settled_are_assigned_again_if_those_of_other_tables_have_changed(autojump_clock, fleet):
    await fleet.create(2)
    joint = Joint()
    ann = fleet.start("ann", joint=joint)
    await trio.sleep(3.2)
    assert (joint.planned, ann.keys) == ([0.0, 0.5], {"s0", "s1"})
    joint.is_outdated = True
    await trio.sleep(1)
    assert joint.planned == [0.0, 0.5, 3.5, 4.0]
    assert joint.observed == []


async def test_a_worker_that_takes_no_more_leases_shows_its_table_to_those_who_plan_with_it(autojump_clock, fleet):
    await fleet.create(2, owner="dead")
    joint = Joint()
    ann = fleet.start("ann", joint=joint, eligible=lambda _lease: False)
    await trio.sleep(11.2)
    joint.planned.clear()
    ann.coordinator.stop_acquiring()
    await trio.testing.wait_all_tasks_blocked()
    assert joint.planned == []
    assert joint.observed == [({"s0", "s1"}, {"s0", "s1"})]


async def test_progress_is_saved_every_five_seconds_unless_that_is_said_otherwise(autojump_clock, fleet):
    await fleet.create(1)
    ann = fleet.start("ann", failover_seconds=100.0)
    await trio.sleep(1)
    held = ann.coordinator.held["s0"]
    held.reader = SimpleNamespace(acked=Checkpoint("1"), acks=1, bytes_received=0, saved=lambda _acks: None)
    await trio.sleep(3.9)
    assert held.lease.checkpoint == Checkpoint.LATEST
    await trio.sleep(0.2)
    assert held.lease.checkpoint == Checkpoint("1")


async def test_an_overdue_lease_is_taken_by_force_after_the_hand_off_and_the_failover_time(autojump_clock, fleet):
    await fleet.create(2)
    ann = fleet.start("ann", release_delay=None)
    await trio.sleep(1)
    bob = fleet.start("bob", handoff_seconds=20.0)
    await trio.sleep(29.8)
    assert bob.store.times("take") == []
    await trio.sleep(0.4)
    assert (len(bob.keys), ann.losses) == (1, [])
    await trio.sleep(3.4)
    assert [reason for _, reason in ann.losses] == ["taken"]


async def test_a_coordinator_works_without_any_function_to_call():
    store = FaultyStore(MemoryLeaseStore())
    await store.create(Lease("a", Checkpoint.LATEST))
    coordinator = LeaseCoordinator(store, "ann")
    async with trio.open_nursery() as nursery:
        await nursery.start(coordinator.run)
        await trio.testing.wait_all_tasks_blocked()
        assert set(coordinator.held) == {"a"}
        nursery.cancel_scope.cancel()
    assert (await store.get("a")).owner is None
