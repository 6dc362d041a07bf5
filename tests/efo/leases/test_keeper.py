"""Several workers on one table. The fail-over time is 10 s and a look comes every half second, as by default."""

import random
import sqlite3
from collections import Counter
from contextlib import closing
from itertools import pairwise

import pytest
import trio

from efo.errors import ConfigurationError, LeaseStoreCorruptError, LeaseStoreUnavailableError
from efo.events import LeaseStoreCalled
from efo.leases.keeper import LeaseKeeper
from efo.leases.stores.memory import MemoryLeaseStore
from efo.leases.stores.sqlite.store import SqliteLeaseStore
from efo.leases.transitions import taken
from efo.model import LATEST, SHARD_END, Checkpoint, Lease
from efo.protocol.assignment import default_scan_interval
from efo.protocol.lineage import startable


def operations(worker, *names):
    return [e for e in worker.events if isinstance(e, LeaseStoreCalled) and e.operation in names and not e.error_type]


async def settle(seconds=30):
    await trio.sleep(seconds)


async def test_one_worker_takes_everything_at_once(autojump_clock, team):
    await team.create(5)
    ann = team.start("ann")
    await trio.testing.wait_all_tasks_blocked()
    assert ann.keys == {f"s{number}" for number in range(5)}
    assert set(ann.keeper.leases) == ann.keys
    assert all(held.lease == ann.keeper.leases[key] for key, held in ann.keeper.held.items())
    assert ann.counted.counts == {"held": 5, "unowned": 0, "expired": 0}
    assert ann.counted.workers == 1
    assert ann.changes == 6  # the table, and each lease


async def test_new_leases_are_found_at_the_next_look_or_at_once_when_woken(autojump_clock, team):
    ann = team.start("ann")
    await settle(0.5)
    await team.store.create(Lease("a", LATEST))
    await trio.testing.wait_all_tasks_blocked()
    assert ann.keys == set()
    await settle(0.6)
    assert ann.keys == {"a"}
    await team.store.create(Lease("b", LATEST))
    ann.keeper.wake()
    await trio.testing.wait_all_tasks_blocked()
    assert ann.keys == {"a", "b"}


async def test_nothing_changes_while_all_are_only_renewed(autojump_clock, team):
    await team.create(4)
    ann, bob = team.start("ann"), team.start("bob")
    await settle()
    changes = ann.changes, bob.changes
    await settle(100)
    assert (ann.changes, bob.changes) == changes


@pytest.mark.parametrize(("leases", "workers"), [(4, 2), (7, 3), (2, 5), (20, 4)])
async def test_workers_that_start_together_share_and_come_to_rest(autojump_clock, team, leases, workers):
    await team.create(leases)
    everyone = [team.start(f"w{number}") for number in range(workers)]
    await settle()
    counts = [len(worker.keys) for worker in everyone]
    assert sum(counts) == leases
    assert max(counts) - min(counts) <= 1
    assert Counter(row.owner for row in (await team.rows()).values()) == Counter(
        {f"w{number}": count for number, count in enumerate(counts) if count}
    )
    moves = len(operations(everyone[0], "take", "steal"))
    await settle(100)
    assert len(operations(everyone[0], "take", "steal")) == moves


async def test_a_worker_that_comes_later_is_seen_and_then_gets_its_share_at_once(autojump_clock, team):
    await team.create(10)
    ann = team.start("ann")
    await settle()
    bob = team.start("bob")
    await trio.testing.wait_all_tasks_blocked()
    assert Counter(row.owner for row in (await team.rows()).values()) == {"ann": 9, "bob": 1}
    await settle(2)
    assert (len(ann.keys), len(bob.keys)) == (5, 5)
    assert len(operations(bob, "request_handoff")) == 5
    assert operations(bob, "steal") == []
    assert sorted(ann.losses) == sorted((key, "handed_over") for key in bob.keys)


async def test_ten_workers_share_a_thousand_leases_within_five_looks(autojump_clock, team):
    """Nine join the one who has them all. With ten workers each of them looks once a second."""
    await team.create(1000)
    workers = [team.start("w0")]
    await settle(1)
    workers += [team.start(f"w{number}") for number in range(1, 10)]
    await settle(5 * default_scan_interval(10, 10))
    assert [len(worker.keys) for worker in workers] == [100] * 10
    assert sum(len(operations(worker, "request_handoff")) for worker in workers) == 900
    assert all(operations(worker, "steal") == [] for worker in workers)


async def test_ten_workers_that_start_together_share_a_thousand_leases_within_five_looks(autojump_clock, team):
    await team.create(1000)
    workers = [team.start(f"w{number}") for number in range(10)]
    await settle(5 * default_scan_interval(10, 10))
    assert [len(worker.keys) for worker in workers] == [100] * 10


async def test_by_throughput_it_moves_leases_only_as_often_as_they_are_measured(autojump_clock, team):
    """ann's leases bring ten times as much as bob's, by a measurement that never changes however many move."""
    await team.create(12)
    ann, bob = team.start("ann", by_throughput=True), team.start("bob", by_throughput=True)
    await settle(1)

    def bring(worker, bytes_per_second):
        for held in worker.keeper.held.values():
            held.received = lambda: int(bytes_per_second * trio.current_time())

    for _ in range(120):
        bring(ann, 1_000_000)
        bring(bob, 100_000)
        await settle(1)
    asked = [at for at in bob.store.times("request_handoff") if at > 1]
    assert asked
    assert all(after - before in (0, pytest.approx(30, abs=0.6)) for before, after in pairwise(asked))


async def test_without_graceful_hand_off_it_steals(autojump_clock, team):
    await team.create(10)
    ann = team.start("ann")
    await settle()
    bob = team.start("bob", graceful_handoff=False)
    await trio.testing.wait_all_tasks_blocked()
    assert len(bob.keys) == 1
    await settle()
    assert (len(ann.keys), len(bob.keys)) == (5, 5)
    assert len(operations(bob, "steal")) == 5
    assert sorted(ann.losses) == sorted((key, "taken") for key in bob.keys)


@pytest.mark.parametrize("moment", range(10))
async def test_a_crash_is_taken_over_within_failover_time_and_a_second(autojump_clock, team, moment):
    await team.create(4)
    ann, bob = team.start("ann"), team.start("bob")
    await settle(31.7 + moment / 3)
    assert len(bob.keys) == 2
    crashed = trio.current_time()
    bob.crash()
    while len(ann.keys) < 4:
        await ann.changed.wait()
    # The counter is seen to stand still as of the look after its last change.
    assert 10 - 10 / 3 <= trio.current_time() - crashed <= 10 + 1


@pytest.mark.parametrize("moment", range(10))
async def test_a_worker_that_stops_is_taken_over_within_a_second(autojump_clock, team, moment):
    await team.create(12)
    ann, bob, cid = team.start("ann"), team.start("bob"), team.start("cid")
    await settle(31.7 + moment / 3)
    await bob.stop()
    await settle(0.9)
    assert (len(ann.keys), len(cid.keys)) == (6, 6)


async def test_a_worker_that_stops_hands_over_within_a_look(autojump_clock, team):
    await team.create(4)
    ann, bob = team.start("ann"), team.start("bob")
    await settle(31.7)
    await bob.stop()
    rows = (await team.rows()).values()
    assert Counter(row.owner for row in rows) == {"ann": 2, None: 2}
    assert {reason for _, reason in bob.losses} == {"released"}
    await settle(1)
    assert len(ann.keys) == 4


async def test_a_worker_that_stops_hands_over_at_once_when_the_other_is_woken(autojump_clock, team):
    await team.create(2)
    ann, bob = team.start("ann"), team.start("bob")
    await settle(31.7)
    await bob.stop()
    ann.keeper.wake()
    await trio.testing.wait_all_tasks_blocked()
    assert len(ann.keys) == 2


async def test_a_worker_that_comes_back_has_its_leases_at_once(autojump_clock, team):
    await team.create(4)
    ann, bob = team.start("ann"), team.start("bob")
    await settle()
    before = bob.keys, ann.losses
    bob.crash()
    again = team.start("bob")
    await trio.testing.wait_all_tasks_blocked()
    assert (again.keys, ann.losses) == before


async def test_two_workers_with_one_id_do_not_play_ping_pong(autojump_clock, team):
    """The second takes what the first has, and that is that; the first is there when the second goes."""
    await team.create(3)
    one = team.start("ann")
    await settle()
    two = team.start("ann")
    await settle(100)
    assert (len(one.keys), len(two.keys)) == (0, 3)
    assert len(operations(one, "take", "steal")) == len(operations(two, "take", "steal")) == 3
    two.crash()
    await settle(12)
    assert len(one.keys) == 3


@pytest.mark.scenario("G24", "G29")
async def test_leases_of_a_dead_worker_are_not_taken_before_the_failover_time(autojump_clock, team):
    """G24: a new owned lease counts as just renewed."""
    await team.create(2, owner="dead")
    ann = team.start("ann")
    await settle(9.9)
    assert ann.keys == set()  # one was asked for, for balance
    assert ann.counted.counts == {"held": 2, "unowned": 0, "expired": 0}
    await settle(0.2)
    assert len(ann.keys) == 2
    assert ann.counted.counts == {"held": 2, "unowned": 0, "expired": 0}
    assert ann.counted.workers == 1


async def test_a_look_comes_at_the_moment_at_which_a_lease_expires(autojump_clock, team):
    await team.create(1, owner="dead")
    ann = team.start("ann", scan_interval=7)
    await settle(9.9)
    assert ann.store.times("list") == [0, 7]
    await settle(0.2)
    assert ann.store.times("list") == [0, 7, 10]
    assert ann.keys == {"s0"}


async def test_finished_leases_are_left_alone(autojump_clock, team):
    await team.store.create(Lease("done", SHARD_END))
    await team.store.create(Lease("dead", SHARD_END, owner="dead"))
    ann = team.start("ann")
    await settle(100)
    assert ann.keys == set()
    assert ann.counted.counts == {"held": 0, "unowned": 0, "expired": 0}


async def test_children_are_taken_when_their_parent_is_finished_and_not_before(autojump_clock, team):
    await team.store.create(Lease("p", LATEST))
    await team.store.create(Lease("c", LATEST, parents=("p",)))
    ann = team.start("ann", eligible=lambda lease: startable(lease, ann.keeper.leases))
    await settle()
    assert ann.keys == {"p"}
    await ann.keeper.held["p"].checkpoint(SHARD_END)
    ann.keeper.wake()
    await trio.testing.wait_all_tasks_blocked()
    assert ann.keys == {"c"}


async def test_leases_that_nobody_else_wants_are_taken_beyond_the_share(autojump_clock, team):
    """bob lives, but may not take anything more."""
    await team.create(2, owner=None)
    ann = team.start("ann", eligible=lambda lease: lease.key != "s9")
    bob = team.start("bob", eligible=lambda lease: lease.key != "s9")
    await settle()
    bob.keeper.stop_acquiring()
    for number in range(2, 6):
        await team.store.create(Lease(f"s{number}", LATEST))
    await settle(5)
    assert (len(ann.keys), len(bob.keys)) == (3, 1)
    await settle(35)
    assert (len(ann.keys), len(bob.keys)) == (5, 1)


async def test_a_worker_told_to_stop_taking_keeps_what_it_has(autojump_clock, team):
    await team.create(2)
    ann = team.start("ann")
    await settle()
    ann.keeper.stop_acquiring()
    await ann.keeper.held["s0"].release()
    await settle(100)
    assert ann.keys == {"s1"}
    assert (await team.rows())["s0"].owner is None


async def test_a_lease_that_another_worker_was_quicker_to_take_is_no_obstacle(autojump_clock, team):
    await team.create(3)

    def quicker(lease):  # asked for by the decision, between the look and the take
        if lease.key == "s1" and lease.owner is None:
            team.store._rows["s1"] = taken(lease, "bob")
        return True

    ann = team.start("ann", eligible=quicker)
    await trio.testing.wait_all_tasks_blocked()
    assert ann.keys == {"s0", "s2"}
    assert ann.losses == []


async def test_a_take_that_is_refused_cuts_off_no_other(autojump_clock, team):
    """The others have reached the store, and their answers are on the way."""

    class Throttled(MemoryLeaseStore):
        refused = False

        async def take(self, lease, owner):
            if lease.key == "s0" and not self.refused:
                self.refused = True
                await trio.sleep(0.5)
                raise LeaseStoreUnavailableError("slow down, as the test wants it")
            return await super().take(lease, owner)

    team.store = Throttled()
    await team.create(10)
    ann = team.hire("ann")
    ann.store.faults["take"] = "slow"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ann.run)
        await trio.sleep(6)
        assert len(ann.keys) == 10
        assert team.store.refused
        nursery.cancel_scope.cancel()


async def test_a_take_whose_answer_was_lost_is_made_good(autojump_clock, team):
    await team.create(1)
    ann = team.start("ann")
    ann.store.faults["take"] = "unanswered"
    await trio.testing.wait_all_tasks_blocked()
    ann.store.faults.clear()
    assert (await team.rows())["s0"].owner == "ann"
    assert ann.keys == set()
    await settle(12)
    assert ann.keys == {"s0"}


@pytest.mark.parametrize("fault", ["down", "hang"])
async def test_a_store_that_is_away_at_the_start_is_asked_again(autojump_clock, team, fault):
    await team.create(1)
    ann = team.start("ann")
    ann.store.faults["list"] = fault
    await settle(15)
    assert ann.keys == set()
    ann.store.faults.clear()
    await settle(12)
    assert ann.keys == {"s0"}


@pytest.mark.parametrize("fault", ["down", "hang"])
async def test_stopping_is_bounded_when_the_store_is_away(autojump_clock, team, fault):
    await team.create(3)
    ann = team.start("ann")
    await settle(5)
    ann.store.faults["*"] = fault
    stopping = trio.current_time()
    await ann.stop()
    assert trio.current_time() - stopping == pytest.approx(5.0)
    assert sorted(ann.losses) == [("s0", "store"), ("s1", "store"), ("s2", "store")]


@pytest.mark.parametrize("options", [{}, {"scan_interval": 20}], ids=["looks often", "looks seldom"])
async def test_a_store_that_comes_back_while_stopping_still_gets_the_release(autojump_clock, team, options):
    await team.create(3)
    ann = team.start("ann", **options)
    await settle(5)
    ann.store.faults["release"] = "down"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ann.stop)
        await trio.sleep(2.5)
        ann.store.faults.clear()
    assert {row.owner for row in (await team.rows()).values()} == {None}
    assert {reason for _, reason in ann.losses} == {"released"}


async def test_a_worker_cut_off_from_the_store_stops_and_the_rest_goes_on(autojump_clock, team):
    await team.create(6)
    ann, bob, cid = (team.start(name) for name in ("ann", "bob", "cid"))
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
async def test_no_lease_is_in_two_hands_unless_it_was_stolen(autojump_clock, team, seed):
    """Random faults, each worker for itself. Whoever does not let go in time finds out at his next renewal."""
    rng = random.Random(seed)
    await team.create(6)
    workers = [team.hire(name, pace=pace) for name, pace in (("ann", 0), ("bob", 3), ("cid", None))]

    async def watch(worker):
        while True:
            await worker.changed.wait()
            for key in worker.reading:
                stolen_at = max(other.stolen_at.get(key, -10) for other in workers)
                if trio.current_time() - stolen_at >= 10:
                    assert [other for other in workers if key in other.reading] == [worker]

    async def trouble(worker):
        for _ in range(10):
            await trio.sleep(rng.uniform(0, 20))
            operation = rng.choice(["*", "list", "take", "renew"])
            worker.store.faults = {operation: rng.choice(["down", "hang", "slow", "unanswered"])}
            await trio.sleep(rng.uniform(0, 25))
            worker.store.faults = {}

    async with trio.open_nursery() as nursery:
        for worker in workers:
            nursery.start_soon(watch, worker)
            nursery.start_soon(worker.run)
        async with trio.open_nursery() as troubles:
            for worker in workers:
                troubles.start_soon(trouble, worker)
        await settle(60)
        nursery.cancel_scope.cancel()
    assert sum(len(operations(worker, "take")) for worker in workers) > 6


@pytest.mark.parametrize(("worker_id", "failover_time"), [("", 10.0), ("ann", 0.0), ("ann", -1.0)])
def test_settings_that_cannot_work_are_refused(worker_id, failover_time):
    with pytest.raises(ConfigurationError, match="worker_id"):
        LeaseKeeper(MemoryLeaseStore(), worker_id, failover_time=failover_time)


# --- on a real store, in real time ---


async def test_workers_on_sqlite_hand_over(tmp_path, team):
    path = tmp_path / "leases.db"
    async with SqliteLeaseStore(path, "app", "stream") as one, SqliteLeaseStore(path, "app", "stream") as other:
        await one.create(Lease("s", LATEST))
        ann = team.start("ann", one)
        while not ann.keys:
            await ann.changed.wait()
        await ann.keeper.held["s"].checkpoint(Checkpoint("5"))
        bob = team.start("bob", other)
        await ann.stop()
        bob.keeper.wake()
        while not bob.keys:
            await bob.changed.wait()
        assert bob.keeper.held["s"].lease.checkpoint == Checkpoint("5")
        await bob.stop()


async def test_a_damaged_row_ends_the_run_and_leaves_the_other_leases_released(tmp_path, team):
    path = tmp_path / "leases.db"
    async with SqliteLeaseStore(path, "app", "stream") as store:
        await store.create(Lease("s", LATEST))
        await store.create(Lease("t", LATEST))
        ann = team.hire("ann", store)

        async def damage():
            while len(ann.keys) < 2:
                await ann.changed.wait()
            with closing(sqlite3.connect(path)) as connection, connection:
                connection.execute("UPDATE lease SET child_shard_ids = 'x' WHERE lease_key = 's'")
            ann.keeper.wake()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(damage)
            with pytest.raises(LeaseStoreCorruptError, match="lease 's'"):
                await ann.run()
    with closing(sqlite3.connect(path)) as connection:
        owners = connection.execute("SELECT lease_key, lease_owner FROM lease").fetchall()
    assert sorted(owners) == [("s", "ann"), ("t", None)]  # what is damaged is not written over
