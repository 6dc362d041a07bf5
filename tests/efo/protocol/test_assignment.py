"""Lease assignment: KCL's cases, and that workers that decide independently converge to a balance."""

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings, strategies as st

from efo.leases.transitions import requested, taken
from efo.model import Checkpoint, Lease
from efo.protocol.assignment.assign import assign, default_scan_interval
from efo.protocol.assignment.balance import DAMPING, balanced_assignment
from efo.protocol.assignment.view import AssignmentPlan as Plan, AssignmentView


def table(**owners):
    """Return leases by owner: `free=3, bob=1` is three leases without an owner and one of bob's."""
    return [
        Lease(f"{owner}-{number}", Checkpoint.LATEST, owner=None if owner == "free" else owner)
        for owner, count in owners.items()
        for number in range(count)
    ]


def keys(leases):
    return {lease.key for lease in leases}


def test_an_empty_table_yields_an_empty_plan():
    assert assign([], "ann") == Plan()


@pytest.mark.parametrize(
    ("owners", "count"),
    [
        pytest.param({"free": 3, "bob": 1}, 2, id="half of four"),
        pytest.param({"free": 5}, 5, id="only worker"),
        pytest.param({"free": 3, "ann": 1, "bob": 1}, 2, id="share rounded up"),
        pytest.param({"free": 1, "ann": 2, "bob": 1}, 0, id="owns its share already"),
        pytest.param({"free": 1, "bob": 1, "cid": 1}, 1, id="one lease per worker"),
    ],
)
@pytest.mark.scenario("G25")
def test_free_leases_are_taken_up_to_the_fair_share(owners, count):
    plan = assign(table(**owners), "ann")
    assert len(plan.take) == count
    assert all(lease.owner is None for lease in plan.take)
    assert plan.steal == ()


@pytest.mark.scenario("G25")
def test_neglected_leases_are_taken_beyond_the_fair_share():
    """G25 with KCL's priority for very old leases."""
    leases = table(free=3, bob=1)
    assert keys(assign(leases, "ann", neglected={"free-0", "free-1", "free-2"}).take) == {"free-0", "free-1", "free-2"}
    plan = assign(table(free=2, ann=5, bob=1), "ann", neglected={"free-1"})
    assert keys(plan.take) == {"free-1"}


@pytest.mark.parametrize(
    ("owners", "donor"),
    [
        pytest.param({"bob": 2, "baz": 2, "ann": 1}, None, id="no worker above its share"),
        pytest.param({"bob": 1, "baz": 5}, "baz", id="from the busiest of two"),
        pytest.param({"ann": 4, "bob": 5, "baz": 6}, "baz", id="only from the busiest"),
        pytest.param({"bob": 1}, None, id="a single lease is not stolen"),
        pytest.param({"bob": 2}, "bob", id="one of two"),
        pytest.param({"bob": 2, "baz": 2}, "any", id="owns none, all others at their share"),
        pytest.param({"ann": 5, "bob": 1}, None, id="never from itself"),
        pytest.param({"ann": 4, "bob": 5}, None, id="balanced"),
    ],
)
@pytest.mark.scenario("G26")
def test_without_a_free_lease_one_is_stolen_from_the_busiest_worker(owners, donor):
    plan = assign(table(**owners), "ann")
    assert plan.take == ()
    assert len(plan.steal) == (donor is not None)
    assert all(donor in (lease.owner, "any") and lease.owner != "ann" for lease in plan.steal)


def test_a_busier_worker_whose_leases_may_not_be_taken_is_passed_over():
    leases = table(bob=6, cid=4)
    (stolen,) = assign(leases, "ann", eligible=lambda lease: lease.owner != "bob").steal
    assert stolen.owner == "cid"


@pytest.mark.parametrize(
    ("limits", "count"),
    [
        ({"max_leases": 10, "max_leases_per_scan": 2}, 2),
        ({"max_leases": 3, "max_leases_per_scan": 10}, 2),
        ({"max_leases": 3}, 2),
        ({"max_leases_per_scan": 1}, 1),
        ({}, 5),
    ],
    ids=str,
)
def test_the_lower_limit_counts_whatever_the_strategy_takes(limits, count):
    leases = table(free=5, ann=1)
    assert len(assign(leases, "ann", strategy=lambda view: Plan(take=tuple(view.free)), **limits).take) == count


def test_a_view_has_no_throughput_unless_it_says_so_and_its_limit_counts():
    """A strategy may call another one with a view of its own."""
    busy, *idle = [
        replace(lease, throughput_kbps=kbps) for lease, kbps in zip(table(free=4), (900.0, 0.0, 0.0, 0.0), strict=True)
    ]
    view = AssignmentView(worker="ann", leases=[busy, *idle], held={"ann": [], "bob": [busy]}, free=idle)
    assert len(balanced_assignment(view).take) == 2
    assert len(balanced_assignment(replace(view, by_throughput=True)).take) == 3
    assert len(balanced_assignment(replace(view, max_leases=1)).take) == 1
    neglected = frozenset(lease.key for lease in idle)
    assert len(balanced_assignment(replace(view, max_leases=1, neglected=neglected)).take) == 1


@pytest.mark.scenario("G26")
def test_nothing_is_stolen_while_a_lease_is_free_or_expired():
    assert assign(table(free=1, baz=5), "ann") == Plan(take=tuple(table(free=1)))
    plan = assign(table(bob=1, baz=5), "ann", expired={"bob-0"})
    assert (keys(plan.take), plan.steal) == ({"bob-0"}, ())


def test_an_owner_of_expired_leases_does_not_count_as_a_worker():
    leases = table(bob=4)
    assert keys(assign(leases, "ann", expired=keys(leases)).take) == keys(leases)


@pytest.mark.scenario("G24")
def test_a_worker_takes_its_own_expired_lease():
    assert keys(assign(table(ann=1), "ann", expired={"ann-0"}).take) == {"ann-0"}


def test_former_leases_are_taken_back_at_once_and_count_as_owned():
    leases = table(ann=2, free=2, bob=2)
    plan = assign(leases, "ann", previously_held={"ann-0", "ann-1"})
    assert keys(plan.take[:2]) == {"ann-0", "ann-1"}
    assert len(plan.take) == 3  # the share of two workers: the other free lease is for bob
    plan = assign(table(ann=5, bob=1), "ann", previously_held={f"ann-{number}" for number in range(5)})
    assert len(plan.take) == 5  # beyond the fair share: others steal the excess
    assert len(assign(table(ann=1), "ann", previously_held={"ann-0"}, expired={"ann-0"}).take) == 1


def test_ineligible_leases_are_neither_taken_nor_counted_as_free():
    leases = table(free=4, bob=1)
    plan = assign(leases, "ann", eligible=lambda lease: lease.key in {"free-0", "bob-0"})
    assert keys(plan.take) == {"free-0"}
    assert assign(leases, "ann", eligible=lambda _: False) == Plan()


def test_finished_leases_are_neither_taken_nor_stolen():
    leases = [replace(lease, checkpoint=Checkpoint.SHARD_END) for lease in table(free=3, baz=5)]
    assert assign(leases, "ann") == Plan()
    assert len(assign(leases + table(bob=2), "ann").steal) == 1


def test_a_worker_far_below_its_share_steals_several_leases_at_once():
    assert len(assign(table(ann=1, bob=9), "ann").steal) == 4
    assert len(assign(table(ann=2, bob=20, baz=20), "ann").steal) == 12
    assert Counter(lease.owner for lease in assign(table(ann=2, bob=20, baz=20), "ann").steal) == {"bob": 6, "baz": 6}


def test_a_worker_that_owns_no_lease_steals_only_one():
    assert len(assign(table(bob=100), "ann").steal) == 1
    firsts = {lease.key for n in range(20) for lease in assign(table(bob=100), f"w{n}").steal}
    assert len(firsts) > 10  # they choose different leases, so most of them succeed


def test_workers_that_read_the_same_table_steal_different_leases_and_balance_in_one_round():
    rows = {lease.key: lease for lease in table(w0=991, **{f"w{n}": 1 for n in range(1, 10)})}
    snapshot = list(rows.values())
    for number in range(10):
        for lease in assign(snapshot, f"w{number}").steal:
            assert rows[lease.key] is lease
            rows[lease.key] = taken(lease, f"w{number}")
    assert set(Counter(lease.owner for lease in rows.values()).values()) == {100}


def test_a_lease_in_a_hand_off_counts_as_its_next_owners_and_is_not_stolen():
    leases = table(ann=1, bob=3)
    assert len(assign(leases, "cid").steal) == 1
    moving = [requested(lease, "cid") if lease.key in {"bob-0", "bob-1"} else lease for lease in leases]
    assert assign(moving, "dan").steal == ()
    assert assign(moving, "ann").steal == ()
    assert {lease.key for lease in assign([*moving, *table(bob=9)[3:]], "ann").steal} <= {
        f"bob-{n}" for n in range(2, 9)
    }


def test_a_lease_whose_holder_expired_during_the_hand_off_is_taken():
    moving = [requested(lease, "bob") for lease in table(ann=2)]
    assert keys(assign(moving, "cid", expired=keys(moving)).take) == keys(moving)


def test_a_worker_without_a_simulated_move_steals_one_lease_from_a_much_busier_worker():
    """The simulation moves the excess of baz to bob, but bob reads only one shard and does not take it."""
    leases = table(ann=4, bob=1, baz=8)
    (lease,) = assign(leases, "ann").steal
    assert lease.owner == "baz"


# --- the maximum number of leases ---


def test_a_worker_takes_and_steals_at_most_max_leases():
    assert len(assign(table(free=9), "ann", max_leases=4).take) == 4
    assert len(assign(table(free=9, ann=3), "ann", max_leases=4).take) == 1
    leases = table(free=9, ann=4)
    assert assign(leases, "ann", max_leases=4, neglected=keys(leases)).take == ()
    assert assign(table(ann=4, bob=9), "ann", max_leases=4).steal == ()
    assert len(assign(table(ann=2, bob=9), "ann", max_leases=4).steal) == 2


def test_former_leases_are_taken_back_even_beyond_max_leases():
    leases = table(ann=5)
    assert len(assign(leases, "ann", previously_held=keys(leases), max_leases=4).take) == 5


# --- by throughput ---


def leases_with_throughput(owner, *throughputs):
    return [
        Lease(
            f"{owner}-{number}", Checkpoint.LATEST, owner=None if owner == "free" else owner, throughput_kbps=throughput
        )
        for number, throughput in enumerate(throughputs)
    ]


def test_a_busy_shard_weighs_more_than_idle_shards():
    leases = [*leases_with_throughput("bob", 1000, *[10] * 9), *leases_with_throughput("ann", *[10] * 5)]
    assert len(assign(leases, "ann").steal) == 2
    plan = assign(leases, "ann", by_throughput=True)
    assert len(plan.steal) >= 3
    assert "bob-0" not in keys(plan.steal)  # moving it would only swap the imbalance


def test_a_lease_of_half_the_load_difference_is_stolen_first():
    leases = [*leases_with_throughput("bob", 200, 60, 10, 10, 10), *leases_with_throughput("ann", 10)]
    assert next(lease.key for lease in assign(leases, "ann", by_throughput=True).steal) == "bob-1"


def test_free_leases_are_distributed_by_throughput():
    leases = [*leases_with_throughput("free", *[50] * 6), *leases_with_throughput("bob", 500, 10)]
    assert len(assign(leases, "ann", by_throughput=True).take) == 6
    assert len(assign(leases, "ann").take) == 4


def test_a_lease_without_a_measurement_weighs_the_average():
    assert len(assign(leases_with_throughput("bob", None, None, None, None), "ann", by_throughput=True).steal) == 1
    leases = [*leases_with_throughput("bob", None, 10, 30), *leases_with_throughput("ann", None, 20)]
    assert assign(leases, "ann", by_throughput=True).steal == ()


def test_throughput_differences_below_the_damping_cause_no_steal():
    near = 100 * (1 + DAMPING / 2)
    assert (
        assign(
            [*leases_with_throughput("bob", *[near] * 20), *leases_with_throughput("ann", *[100] * 20)],
            "ann",
            by_throughput=True,
        )
        == Plan()
    )
    leases = [*leases_with_throughput("bob", *[3] * 20), *leases_with_throughput("ann", *[1] * 20)]
    assert assign(leases, "ann", by_throughput=True).steal


# --- parents and children ---


def family():
    """Return finished parents of ann and bob, a free child of each, and a free lease without parents."""
    parents = [Lease(f"{owner}-done", Checkpoint.SHARD_END, owner=owner) for owner in ("ann", "bob")]
    children = [Lease(f"child-of-{owner}", Checkpoint.LATEST, parents=(f"{owner}-done",)) for owner in ("ann", "bob")]
    return [*parents, *children, Lease("orphan", Checkpoint.LATEST)]


def test_a_worker_takes_the_children_of_its_own_shards_first():
    leases = [*family(), *table(ann=2, bob=2)]
    assert keys(assign(leases, "ann").take) == {"child-of-ann", "orphan"}
    assert keys(assign(leases, "bob").take) == {"child-of-bob", "orphan"}


def test_children_of_a_worker_without_unfinished_leases_are_taken_like_others():
    assert keys(assign(family(), "ann").take) == {"child-of-ann", "child-of-bob", "orphan"}
    assert assign([*family(), *table(ann=9, cid=1)], "ann").take == ()


# --- the lease scan interval ---


def test_the_lease_scan_interval_grows_with_the_number_of_workers():
    assert [default_scan_interval(10, workers) for workers in (1, 5, 10, 20, 50, 100)] == [0.5, 0.5, 1.0, 2.0, 5.0, 5.0]


# --- convergence ---


def assert_convergence(leases, workers, seed, *, stale, weighted):
    """Assert that workers balance a random table. `stale`: all decide from the same old table, as after a start."""
    rng = random.Random(seed)
    names = [f"w{number}" for number in range(workers)]
    owners = [None, *rng.sample(names, min(workers, 4))]
    rows = {
        f"s{n}": Lease(
            f"s{n}", Checkpoint.LATEST, owner=rng.choice(owners), throughput_kbps=rng.choice([None, 1.0, 10.0, 100.0])
        )
        for n in range(leases)
    }
    for _ in range(leases + workers):
        snapshot = list(rows.values())
        moves = 0
        for name in rng.sample(names, workers):
            plan = assign(snapshot if stale else list(rows.values()), name, by_throughput=weighted)
            for lease in (*plan.take, *plan.steal):
                moves += 1
                if rows[lease.key].counter == lease.counter:
                    rows[lease.key] = taken(lease, name)
        if not moves:
            break
    else:
        pytest.fail("the workers never stopped moving leases")
    loads = Counter(lease.owner for lease in rows.values())
    assert None not in loads
    counts = [loads[name] for name in names]
    assert weighted or max(counts) - min(counts) <= 1


@given(
    leases=st.integers(min_value=1, max_value=40),
    workers=st.integers(min_value=1, max_value=8),
    seed=st.integers(min_value=0, max_value=2**32),
    stale=st.booleans(),
    weighted=st.booleans(),
)
@settings(max_examples=150, deadline=None, derandomize=True, database=None)
def test_workers_converge_to_a_balance(leases, workers, seed, stale, weighted):
    assert_convergence(leases, workers, seed, stale=stale, weighted=weighted)


@given(
    leases=st.integers(min_value=1, max_value=500),
    workers=st.integers(min_value=1, max_value=100),
    seed=st.integers(min_value=0, max_value=2**32),
    stale=st.booleans(),
    weighted=st.booleans(),
)
@settings(max_examples=12, deadline=None, derandomize=True, database=None, phases=[Phase.generate])
def test_many_workers_converge_to_a_balance(leases, workers, seed, stale, weighted):
    assert_convergence(leases, workers, seed, stale=stale, weighted=weighted)


@given(
    owners=st.lists(st.sampled_from([None, "ann", "bob", "cid"]), max_size=20),
    finished=st.sets(st.integers(min_value=0, max_value=19)),
    expired=st.sets(st.integers(min_value=0, max_value=19)),
    blocked=st.sets(st.integers(min_value=0, max_value=19)),
)
@settings(deadline=None, derandomize=True, database=None)
def test_finished_ineligible_and_own_leases_are_never_taken_or_stolen(owners, finished, expired, blocked):
    leases = [
        Lease(str(n), Checkpoint.SHARD_END if n in finished else Checkpoint.LATEST, owner=owner)
        for n, owner in enumerate(owners)
    ]
    expired_keys = {str(n) for n in expired}
    plan = assign(leases, "ann", expired=expired_keys, eligible=lambda lease: int(lease.key) not in blocked)
    assert not (plan.take and plan.steal)
    for lease in (*plan.take, *plan.steal):
        assert not lease.is_finished
        assert int(lease.key) not in blocked
    assert all(lease.owner is None or lease.key in expired_keys for lease in plan.take)
    assert all(lease.owner not in (None, "ann") and lease.key not in expired_keys for lease in plan.steal)


def test_free_leases_are_ranked_neglected_own_nobodys_others():
    """The fair share is three of six leases. A neglected lease is taken before the worker's own children."""
    finished = [
        Lease(f"parent-of-{owner}", Checkpoint.SHARD_END, owner=owner, parents=()) for owner in ("ann", "bob", "gone")
    ]

    def children(of, count):
        return [Lease(f"{of}-{n}", Checkpoint.TRIM_HORIZON, parents=(f"parent-of-{of}",)) for n in range(count)]

    bob = [Lease("bobs", Checkpoint.TRIM_HORIZON, owner="bob")]

    def taken_of(*groups, neglected=()):
        return keys(assign([*finished, *bob, *(x for group in groups for x in group)], "ann", neglected=neglected).take)

    assert keys(children("gone", 2)) <= taken_of(children("bob", 3), children("gone", 2))
    assert keys(children("ann", 3)) <= taken_of(children("ann", 3), children("gone", 2))
    assert keys(children("ann", 3)) <= taken_of(children("ann", 3), children("bob", 2))
    neglected = keys(children("bob", 3))
    assert taken_of(children("ann", 2), children("bob", 3), neglected=neglected) == neglected
