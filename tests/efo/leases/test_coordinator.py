"""Several workers on one lease table, with the defaults: fail-over time 10 s, lease scan interval 0.5 s."""

import random
import sqlite3
from collections import Counter
from contextlib import closing
from itertools import pairwise
from types import SimpleNamespace

import pytest
import trio

from efo.errors import ConfigurationError, LeaseStoreCorruptError, LeaseStoreUnavailableError
from efo.events import LeaseStoreCalled
from efo.leases.coordinator import MIN_MOVES, LeaseCoordinator
from efo.leases.stores.memory import MemoryLeaseStore
from efo.leases.stores.sqlite.store import SqliteLeaseStore
from efo.leases.transitions import taken
from efo.model import Checkpoint, Lease
from efo.protocol.assignment.assign import default_scan_interval
from efo.protocol.lineage import is_startable


def operations(worker, *names):
    return [e for e in worker.events if isinstance(e, LeaseStoreCalled) and e.operation in names and not e.error_type]


async def settle(seconds=30):
    await trio.sleep(seconds)


async def test_a_single_worker_takes_all_leases_at_once(autojump_clock, fleet):
    await fleet.create(5)
    ann = fleet.start("ann")
    await trio.testing.wait_all_tasks_blocked()
    assert ann.keys == {f"s{number}" for number in range(5)}
    assert set(ann.coordinator.leases) == ann.keys
    assert all(held.lease == ann.coordinator.leases[key] for key, held in ann.coordinator.held.items())
    assert ann.last_count.counts == {"held": 5, "unowned": 0, "expired": 0}
    assert ann.last_count.workers == 1
    assert ann.changes == 6  # one for the table, and one per lease


async def test_new_leases_are_taken_at_the_next_scan_or_at_once_after_wake(autojump_clock, fleet):
    ann = fleet.start("ann")
    await settle(0.5)
    await fleet.store.create(Lease("a", Checkpoint.LATEST))
    await trio.testing.wait_all_tasks_blocked()
    assert ann.keys == set()
    await settle(0.6)
    assert ann.keys == {"a"}
    await fleet.store.create(Lease("b", Checkpoint.LATEST))
    ann.coordinator.wake()
    await trio.testing.wait_all_tasks_blocked()
    assert ann.keys == {"a", "b"}


async def test_renewals_are_not_reported_as_changes(autojump_clock, fleet):
    await fleet.create(4)
    ann, bob = fleet.start("ann"), fleet.start("bob")
    await settle()
    changes = ann.changes, bob.changes
    await settle(100)
    assert (ann.changes, bob.changes) == changes


@pytest.mark.parametrize(("leases", "workers"), [(4, 2), (7, 3), (2, 5), (20, 4)])
async def test_workers_that_start_together_share_the_leases_and_then_keep_them(autojump_clock, fleet, leases, workers):
    await fleet.create(leases)
    members = [fleet.start(f"w{number}") for number in range(workers)]
    await settle()
    counts = [len(worker.keys) for worker in members]
    assert sum(counts) == leases
    assert max(counts) - min(counts) <= 1
    assert Counter(row.owner for row in (await fleet.rows()).values()) == Counter(
        {f"w{number}": count for number, count in enumerate(counts) if count}
    )
    moves = len(operations(members[0], "take", "steal"))
    await settle(100)
    assert len(operations(members[0], "take", "steal")) == moves


async def test_a_worker_that_joins_takes_one_lease_and_then_its_share(autojump_clock, fleet):
    await fleet.create(10)
    ann = fleet.start("ann")
    await settle()
    bob = fleet.start("bob")
    await trio.testing.wait_all_tasks_blocked()
    assert Counter(row.owner for row in (await fleet.rows()).values()) == {"ann": 9, "bob": 1}
    await settle(2)
    assert (len(ann.keys), len(bob.keys)) == (5, 5)
    assert len(operations(bob, "request_handoff")) == 5
    assert operations(bob, "steal") == []
    assert sorted(ann.losses) == sorted((key, "handed_over") for key in bob.keys)


async def test_nine_workers_that_join_get_their_shares_within_five_scans(autojump_clock, fleet):
    """One worker holds a thousand leases. With ten workers, each of them scans once per second."""
    await fleet.create(1000)
    workers = [fleet.start("w0")]
    await settle(1)
    workers += [fleet.start(f"w{number}") for number in range(1, 10)]
    await settle(5 * default_scan_interval(10, 10))
    assert [len(worker.keys) for worker in workers] == [100] * 10
    assert sum(len(operations(worker, "request_handoff")) for worker in workers) == 900
    assert all(operations(worker, "steal") == [] for worker in workers)


async def test_ten_workers_that_start_together_get_their_shares_within_five_scans(autojump_clock, fleet):
    await fleet.create(1000)
    workers = [fleet.start(f"w{number}") for number in range(10)]
    await settle(5 * default_scan_interval(10, 10))
    assert [len(worker.keys) for worker in workers] == [100] * 10


async def test_balancing_by_throughput_waits_for_new_measurements_after_each_move(autojump_clock, fleet):
    """All throughput is that of the leases of ann, however many move: each balance is wrong as soon as it is made."""
    await fleet.create(40)
    ann, bob = fleet.start("ann", by_throughput=True), fleet.start("bob", by_throughput=True)
    await settle(1)

    def receive(worker, bytes_per_second):
        for held in worker.coordinator.held.values():
            held.reader = SimpleNamespace(
                acked=None, acks=0, bytes_received=int(bytes_per_second * trio.current_time())
            )

    for _ in range(150):
        receive(ann, 1_000_000)
        receive(bob, 0)
        await settle(1)
    requested = [at for at in bob.store.times("request_handoff") if at > 1]
    assert len(set(requested)) >= 3
    assert all(after - before in (0, pytest.approx(30, abs=0.6)) for before, after in pairwise(requested))


async def test_without_graceful_hand_off_leases_are_stolen(autojump_clock, fleet):
    await fleet.create(10)
    ann = fleet.start("ann")
    await settle()
    bob = fleet.start("bob", graceful_handoff=False)
    await trio.testing.wait_all_tasks_blocked()
    assert len(bob.keys) == 1
    await settle()
    assert (len(ann.keys), len(bob.keys)) == (5, 5)
    assert len(operations(bob, "steal")) == 5
    assert sorted(ann.losses) == sorted((key, "taken") for key in bob.keys)


@pytest.mark.parametrize("moment", range(10))
async def test_a_crashed_worker_loses_its_leases_within_the_failover_time_and_a_second(autojump_clock, fleet, moment):
    await fleet.create(4)
    ann, bob = fleet.start("ann"), fleet.start("bob")
    await settle(31.7 + moment / 3)
    assert len(bob.keys) == 2
    crashed = trio.current_time()
    bob.crash()
    while len(ann.keys) < 4:
        await ann.changed.wait()
    # The time without renewals counts from the scan after the last one.
    assert 10 - 10 / 3 <= trio.current_time() - crashed <= 10 + 1


@pytest.mark.parametrize("moment", range(10))
async def test_leases_of_a_worker_that_stops_are_taken_within_a_second(autojump_clock, fleet, moment):
    await fleet.create(12)
    ann, bob, cid = fleet.start("ann"), fleet.start("bob"), fleet.start("cid")
    await settle(31.7 + moment / 3)
    await bob.stop()
    await settle(0.9)
    assert (len(ann.keys), len(cid.keys)) == (6, 6)


async def test_a_worker_that_stops_releases_its_leases(autojump_clock, fleet):
    await fleet.create(4)
    ann, bob = fleet.start("ann"), fleet.start("bob")
    await settle(31.7)
    await bob.stop()
    rows = (await fleet.rows()).values()
    assert Counter(row.owner for row in rows) == {"ann": 2, None: 2}
    assert {reason for _, reason in bob.losses} == {"released"}
    await settle(1)
    assert len(ann.keys) == 4


async def test_released_leases_are_taken_at_once_after_wake(autojump_clock, fleet):
    await fleet.create(2)
    ann, bob = fleet.start("ann"), fleet.start("bob")
    await settle(31.7)
    await bob.stop()
    ann.coordinator.wake()
    await trio.testing.wait_all_tasks_blocked()
    assert len(ann.keys) == 2


async def test_a_restarted_worker_takes_its_former_leases_at_once(autojump_clock, fleet):
    await fleet.create(4)
    ann, bob = fleet.start("ann"), fleet.start("bob")
    await settle()
    before = bob.keys, ann.losses
    bob.crash()
    restarted = fleet.start("bob")
    await trio.testing.wait_all_tasks_blocked()
    assert (restarted.keys, ann.losses) == before


async def test_two_workers_with_the_same_id_do_not_take_leases_from_each_other_repeatedly(autojump_clock, fleet):
    """The second takes all leases of the first. The first takes them back after the second has crashed."""
    await fleet.create(3)
    one = fleet.start("ann")
    await settle()
    two = fleet.start("ann")
    await settle(100)
    assert (len(one.keys), len(two.keys)) == (0, 3)
    assert len(operations(one, "take", "steal")) == len(operations(two, "take", "steal")) == 3
    two.crash()
    await settle(12)
    assert len(one.keys) == 3


@pytest.mark.scenario("G24", "G29")
async def test_leases_of_a_dead_worker_are_not_taken_before_the_failover_time(autojump_clock, fleet):
    """A lease that is seen for the first time counts as just renewed."""
    await fleet.create(2, owner="dead")
    ann = fleet.start("ann")
    await settle(9.9)
    assert ann.keys == set()  # although one was requested, to balance
    assert ann.last_count.counts == {"held": 2, "unowned": 0, "expired": 0}
    await settle(0.2)
    assert len(ann.keys) == 2
    assert ann.last_count.counts == {"held": 2, "unowned": 0, "expired": 0}
    assert ann.last_count.workers == 1


async def test_a_scan_runs_when_a_lease_expires(autojump_clock, fleet):
    await fleet.create(1, owner="dead")
    ann = fleet.start("ann", scan_interval=7)
    await settle(9.9)
    assert ann.store.times("list") == [0, 7]
    await settle(0.2)
    assert ann.store.times("list") == [0, 7, 10]
    assert ann.keys == {"s0"}


async def test_finished_leases_are_not_taken(autojump_clock, fleet):
    await fleet.store.create(Lease("done", Checkpoint.SHARD_END))
    await fleet.store.create(Lease("dead", Checkpoint.SHARD_END, owner="dead"))
    ann = fleet.start("ann")
    await settle(100)
    assert ann.keys == set()
    assert ann.last_count.counts == {"held": 0, "unowned": 0, "expired": 0}


async def test_children_are_taken_only_after_their_parent_is_finished(autojump_clock, fleet):
    await fleet.store.create(Lease("p", Checkpoint.LATEST))
    await fleet.store.create(Lease("c", Checkpoint.LATEST, parents=("p",)))
    ann = fleet.start("ann", eligible=lambda lease: is_startable(lease, ann.coordinator.leases))
    await settle()
    assert ann.keys == {"p"}
    await ann.coordinator.held["p"].checkpoint(Checkpoint.SHARD_END)
    ann.coordinator.wake()
    await trio.testing.wait_all_tasks_blocked()
    assert ann.keys == {"c"}


async def test_neglected_leases_are_taken_beyond_the_fair_share(autojump_clock, fleet):
    """bob runs, but takes no more leases."""
    await fleet.create(2, owner=None)
    ann = fleet.start("ann", eligible=lambda lease: lease.key != "s9")
    bob = fleet.start("bob", eligible=lambda lease: lease.key != "s9")
    await settle()
    bob.coordinator.stop_acquiring()
    for number in range(2, 6):
        await fleet.store.create(Lease(f"s{number}", Checkpoint.LATEST))
    await settle(5)
    assert (len(ann.keys), len(bob.keys)) == (3, 1)
    await settle(35)
    assert (len(ann.keys), len(bob.keys)) == (5, 1)


async def test_stop_acquiring_keeps_the_held_leases(autojump_clock, fleet):
    await fleet.create(2)
    ann = fleet.start("ann")
    await settle()
    ann.coordinator.stop_acquiring()
    await ann.coordinator.held["s0"].release()
    await settle(100)
    assert ann.keys == {"s1"}
    assert (await fleet.rows())["s0"].owner is None


async def test_nothing_is_taken_if_acquiring_stops_between_a_scan_and_its_takes(autojump_clock, fleet):
    await fleet.create(3)

    def stop(_lease):  # called between the scan and the takes
        ann.coordinator.stop_acquiring()
        return True

    ann = fleet.start("ann", eligible=stop)
    await settle()
    assert ann.keys == set()
    assert {row.owner for row in (await fleet.rows()).values()} == {None}


async def test_losing_the_race_for_one_lease_does_not_prevent_the_others(autojump_clock, fleet):
    await fleet.create(3)

    def take_first(lease):  # called between the scan and the take
        if lease.key == "s1" and lease.owner is None:
            fleet.store._rows["s1"] = taken(lease, "bob")
        return True

    ann = fleet.start("ann", eligible=take_first)
    await trio.testing.wait_all_tasks_blocked()
    assert ann.keys == {"s0", "s2"}
    assert ann.losses == []


async def test_a_failed_take_does_not_cancel_the_others(autojump_clock, fleet):
    """The others may have reached the store already."""

    class Throttled(MemoryLeaseStore):
        has_failed = False

        async def take(self, lease, owner):
            if lease.key == "s0" and not self.has_failed:
                self.has_failed = True
                await trio.sleep(0.5)
                raise LeaseStoreUnavailableError("throttled (injected fault)")
            return await super().take(lease, owner)

    fleet.store = Throttled()
    await fleet.create(10)
    ann = fleet.make_worker("ann")
    ann.store.faults["take"] = "slow"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ann.run)
        await trio.sleep(6)
        assert len(ann.keys) == 10
        assert fleet.store.has_failed
        nursery.cancel_scope.cancel()


async def test_a_store_that_fails_is_asked_for_few_leases_at_each_scan(autojump_clock, fleet):
    await fleet.create(100)
    ann = fleet.start("ann", scan_interval=5)
    ann.store.faults["take"] = "down"
    await settle(4)
    assert len(ann.store.times("take")) == MIN_MOVES
    await settle(5)
    assert len(ann.store.times("take")) == 2 * MIN_MOVES
    ann.store.faults.clear()
    await settle(5)
    assert len(ann.keys) == 100


async def test_a_lease_whose_take_response_was_lost_is_taken_after_it_expires(autojump_clock, fleet):
    await fleet.create(1)
    ann = fleet.start("ann")
    ann.store.faults["take"] = "response_lost"
    await trio.testing.wait_all_tasks_blocked()
    ann.store.faults.clear()
    assert (await fleet.rows())["s0"].owner == "ann"
    assert ann.keys == set()
    await settle(12)
    assert ann.keys == {"s0"}


@pytest.mark.parametrize("fault", ["slow", "response_lost"])
async def test_a_take_without_a_response_is_released_when_the_worker_stops(autojump_clock, fleet, fault):
    await fleet.create(1)
    ann = fleet.start("ann")
    ann.store.faults["take"] = fault
    await settle(1.5)
    ann.store.faults.clear()
    assert (await fleet.rows())["s0"].owner == "ann"
    assert ann.keys == set()
    await ann.stop()
    assert (await fleet.rows())["s0"].owner is None


async def test_a_take_that_another_worker_overtook_is_not_released(autojump_clock, fleet):
    await fleet.create(1)
    ann = fleet.start("ann")
    ann.store.faults["take"] = "response_lost"
    await settle(1)
    row = (await fleet.rows())["s0"]
    await fleet.store.take(row, "bob")
    await ann.stop()
    assert (await fleet.rows())["s0"].owner == "bob"


@pytest.mark.parametrize("fault", ["down", "hang"])
async def test_a_scan_that_fails_at_the_start_is_retried(autojump_clock, fleet, fault):
    await fleet.create(1)
    ann = fleet.start("ann")
    ann.store.faults["list"] = fault
    await settle(15)
    assert ann.keys == set()
    ann.store.faults.clear()
    await settle(12)
    assert ann.keys == {"s0"}


@pytest.mark.parametrize("fault", ["down", "hang"])
async def test_stopping_takes_at_most_five_seconds_without_the_store(autojump_clock, fleet, fault):
    await fleet.create(3)
    ann = fleet.start("ann")
    await settle(5)
    ann.store.faults["*"] = fault
    stopping = trio.current_time()
    await ann.stop()
    assert trio.current_time() - stopping == pytest.approx(5.0)
    assert sorted(ann.losses) == [("s0", "store"), ("s1", "store"), ("s2", "store")]


@pytest.mark.parametrize("options", [{}, {"scan_interval": 20}], ids=["default scan interval", "long scan interval"])
async def test_a_failed_release_is_retried_while_stopping(autojump_clock, fleet, options):
    await fleet.create(3)
    ann = fleet.start("ann", **options)
    await settle(5)
    ann.store.faults["release"] = "down"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ann.stop)
        await trio.sleep(2.5)
        ann.store.faults.clear()
    assert {row.owner for row in (await fleet.rows()).values()} == {None}
    assert {reason for _, reason in ann.losses} == {"released"}


async def test_a_worker_without_the_store_loses_its_leases_to_the_others(autojump_clock, fleet):
    await fleet.create(6)
    ann, bob, cid = (fleet.start(name) for name in ("ann", "bob", "cid"))
    await settle()
    for _ in range(3):
        bob.store.faults["*"] = "down"
        await settle(40)
        assert bob.keys == set()
        assert (len(ann.keys), len(cid.keys)) == (3, 3)
        bob.store.faults.clear()
        await settle(40)
        assert sorted(len(worker.keys) for worker in (ann, bob, cid)) == [2, 2, 2]


@pytest.mark.parametrize("seed", range(15))
async def test_a_lease_has_at_most_one_reader_unless_it_was_stolen(autojump_clock, fleet, seed):
    """With random faults per worker. A holder sees at its next renewal that the lease was stolen."""
    rng = random.Random(seed)
    await fleet.create(6)
    workers = [fleet.make_worker(name, release_delay=delay) for name, delay in (("ann", 0), ("bob", 3), ("cid", None))]

    async def watch(worker):
        while True:
            await worker.changed.wait()
            for key in worker.reading:
                stolen_at = max(other.stolen_at.get(key, -10) for other in workers)
                if trio.current_time() - stolen_at >= 10:
                    assert [other for other in workers if key in other.reading] == [worker]

    async def inject_faults(worker):
        for _ in range(10):
            await trio.sleep(rng.uniform(0, 20))
            operation = rng.choice(["*", "list", "take", "renew"])
            worker.store.faults = {operation: rng.choice(["down", "hang", "slow", "response_lost"])}
            await trio.sleep(rng.uniform(0, 25))
            worker.store.faults = {}

    async with trio.open_nursery() as nursery:
        for worker in workers:
            nursery.start_soon(watch, worker)
            nursery.start_soon(worker.run)
        async with trio.open_nursery() as injectors:
            for worker in workers:
                injectors.start_soon(inject_faults, worker)
        await settle(60)
        nursery.cancel_scope.cancel()
    assert sum(len(operations(worker, "take")) for worker in workers) > 6


@pytest.mark.parametrize(("worker_id", "failover_seconds"), [("", 10.0), ("ann", 0.0), ("ann", -1.0)])
def test_an_empty_worker_id_or_a_failover_time_not_above_zero_is_rejected(worker_id, failover_seconds):
    with pytest.raises(ConfigurationError, match="worker_id"):
        LeaseCoordinator(MemoryLeaseStore(), worker_id, failover_seconds=failover_seconds)


# --- with a real store, in real time ---


async def test_a_lease_moves_between_workers_on_sqlite_with_its_checkpoint(tmp_path, fleet):
    path = tmp_path / "leases.db"
    async with SqliteLeaseStore(path, "app", "stream") as one, SqliteLeaseStore(path, "app", "stream") as other:
        await one.create(Lease("s", Checkpoint.LATEST))
        ann = fleet.start("ann", one)
        while not ann.keys:
            await ann.changed.wait()
        await ann.coordinator.held["s"].checkpoint(Checkpoint("5"))
        bob = fleet.start("bob", other)
        await ann.stop()
        bob.coordinator.wake()
        while not bob.keys:
            await bob.changed.wait()
        assert bob.coordinator.held["s"].lease.checkpoint == Checkpoint("5")
        await bob.stop()


@pytest.mark.parametrize("in_doubt", [False, True])
async def test_a_row_that_is_damaged_when_it_is_renewed_ends_the_run(autojump_clock, fleet, in_doubt):
    class Damaged(MemoryLeaseStore):
        errors = [LeaseStoreUnavailableError("slow")] * in_doubt + [LeaseStoreCorruptError("no counter")] * 9

        async def renew(self, lease, throughput_kbps=None):
            raise self.errors.pop(0)

    fleet.store = Damaged()
    await fleet.create(1)
    with pytest.raises(LeaseStoreCorruptError, match="no counter"):
        await fleet.make_worker("ann").run()


async def test_a_damaged_row_ends_the_run_and_the_other_leases_are_released(tmp_path, fleet):
    path = tmp_path / "leases.db"
    async with SqliteLeaseStore(path, "app", "stream") as store:
        await store.create(Lease("s", Checkpoint.LATEST))
        await store.create(Lease("t", Checkpoint.LATEST))
        ann = fleet.make_worker("ann", store)

        async def damage():
            while len(ann.keys) < 2:
                await ann.changed.wait()
            with closing(sqlite3.connect(path)) as connection, connection:
                connection.execute("UPDATE lease SET child_shard_ids = 'x' WHERE lease_key = 's'")
            ann.coordinator.wake()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(damage)
            with pytest.raises(LeaseStoreCorruptError, match="lease 's'"):
                await ann.run()
    with closing(sqlite3.connect(path)) as connection:
        owners = connection.execute("SELECT lease_key, lease_owner FROM lease").fetchall()
    assert sorted(owners) == [("s", "ann"), ("t", None)]  # the damaged row is not overwritten


async def test_leases_that_nobody_may_take_are_counted_as_unowned(autojump_clock, fleet):
    await fleet.create(3)
    ann = fleet.start("ann", max_leases=1)
    await settle(20)
    assert ann.last_count.counts == {"held": 1, "unowned": 2, "expired": 0}
