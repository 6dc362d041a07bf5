"""Fair shares: KCL's cases, and that workers who decide alone come to rest in balance."""

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from efo.leases.transitions import requested, taken
from efo.model import LATEST, SHARD_END, Lease
from efo.protocol.assignment import DAMPING, Plan, assign, default_scan_interval


def table(**owners):
    """Leases by owner: `free=3, bob=1` is three without an owner and one of bob's."""
    return [
        Lease(f"{owner}-{number}", LATEST, owner=None if owner == "free" else owner)
        for owner, count in owners.items()
        for number in range(count)
    ]


def keys(leases):
    return {lease.key for lease in leases}


def test_nothing_to_do():
    assert assign([], "ann") == Plan()


@pytest.mark.parametrize(
    ("owners", "count"),
    [
        pytest.param({"free": 3, "bob": 1}, 2, id="G25"),
        pytest.param({"free": 5}, 5, id="alone"),
        pytest.param({"free": 3, "ann": 1, "bob": 1}, 2, id="share rounded up"),
        pytest.param({"free": 1, "ann": 2, "bob": 1}, 0, id="has the share"),
        pytest.param({"free": 1, "bob": 1, "cid": 1}, 1, id="one each"),
    ],
)
@pytest.mark.scenario("G25")
def test_free_leases_are_taken_up_to_the_fair_share(owners, count):
    plan = assign(table(**owners), "ann")
    assert len(plan.take) == count
    assert all(lease.owner is None for lease in plan.take)
    assert plan.steal == ()


@pytest.mark.scenario("G25")
def test_neglected_leases_are_taken_beyond_the_share():
    """G25 with KCL's priority of very old leases."""
    leases = table(free=3, bob=1)
    assert keys(assign(leases, "ann", neglected={"free-0", "free-1", "free-2"}).take) == {"free-0", "free-1", "free-2"}
    plan = assign(table(free=2, ann=5, bob=1), "ann", neglected={"free-1"})
    assert keys(plan.take) == {"free-1"}


@pytest.mark.parametrize(
    ("owners", "victim"),
    [
        pytest.param({"bob": 2, "baz": 2, "ann": 1}, None, id="G26 nobody over the share"),
        pytest.param({"bob": 1, "baz": 5}, "baz", id="G26 from the busiest"),
        pytest.param({"ann": 4, "bob": 5, "baz": 6}, "baz", id="from the busiest alone"),
        pytest.param({"bob": 1}, None, id="a single lease does not change hands"),
        pytest.param({"bob": 2}, "bob", id="one of two"),
        pytest.param({"bob": 2, "baz": 2}, "any", id="none at all, and all others at their share"),
        pytest.param({"ann": 5, "bob": 1}, None, id="never from oneself"),
        pytest.param({"ann": 4, "bob": 5}, None, id="balanced"),
    ],
)
@pytest.mark.scenario("G26")
def test_with_nothing_free_leases_are_stolen_from_the_busiest(owners, victim):
    plan = assign(table(**owners), "ann")
    assert plan.take == ()
    assert len(plan.steal) == (victim is not None)
    assert all(victim in (lease.owner, "any") and lease.owner != "ann" for lease in plan.steal)


@pytest.mark.scenario("G26")
def test_free_and_expired_leases_go_before_stealing():
    """G26: any lease available means no steal in the same round."""
    assert assign(table(free=1, baz=5), "ann") == Plan(take=tuple(table(free=1)))
    plan = assign(table(bob=1, baz=5), "ann", expired={"bob-0"})
    assert (keys(plan.take), plan.steal) == ({"bob-0"}, ())


def test_an_expired_owner_is_no_worker():
    leases = table(bob=4)
    assert keys(assign(leases, "ann", expired=keys(leases)).take) == keys(leases)


@pytest.mark.scenario("G24")
def test_ones_own_expired_lease_may_be_taken():
    """G24."""
    assert keys(assign(table(ann=1), "ann", expired={"ann-0"}).take) == {"ann-0"}


def test_leases_of_an_earlier_life_come_back_at_once_and_count():
    leases = table(ann=2, free=2, bob=2)
    plan = assign(leases, "ann", former={"ann-0", "ann-1"})
    assert keys(plan.take[:2]) == {"ann-0", "ann-1"}
    assert len(plan.take) == 3  # the share of two workers: the other free lease is bob's
    plan = assign(table(ann=5, bob=1), "ann", former={f"ann-{number}" for number in range(5)})
    assert len(plan.take) == 5  # beyond the share: others steal back what is too much
    assert len(assign(table(ann=1), "ann", former={"ann-0"}, expired={"ann-0"}).take) == 1


def test_leases_that_may_not_start_are_neither_taken_nor_counted():
    leases = table(free=4, bob=1)
    plan = assign(leases, "ann", eligible=lambda lease: lease.key in {"free-0", "bob-0"})
    assert keys(plan.take) == {"free-0"}
    assert assign(leases, "ann", eligible=lambda _: False) == Plan()


def test_finished_leases_are_no_work():
    leases = [replace(lease, checkpoint=SHARD_END) for lease in table(free=3, baz=5)]
    assert assign(leases, "ann") == Plan()
    assert len(assign(leases + table(bob=2), "ann").steal) == 1


def test_who_is_far_from_balance_takes_several_at_once():
    assert len(assign(table(ann=1, bob=9), "ann").steal) == 4
    assert len(assign(table(ann=2, bob=20, baz=20), "ann").steal) == 12
    assert Counter(lease.owner for lease in assign(table(ann=2, bob=20, baz=20), "ann").steal) == {"bob": 6, "baz": 6}


def test_who_owns_nothing_takes_one_to_be_seen():
    assert len(assign(table(bob=100), "ann").steal) == 1
    firsts = {lease.key for n in range(20) for lease in assign(table(bob=100), f"w{n}").steal}
    assert len(firsts) > 10  # each another, so that not all but one come in vain


def test_workers_who_look_at_the_same_table_wish_for_different_leases_and_balance_at_once():
    rows = {lease.key: lease for lease in table(w0=991, **{f"w{n}": 1 for n in range(1, 10)})}
    snapshot = list(rows.values())
    for number in range(10):
        for lease in assign(snapshot, f"w{number}").steal:
            assert rows[lease.key] is lease
            rows[lease.key] = taken(lease, f"w{number}")
    assert set(Counter(lease.owner for lease in rows.values()).values()) == {100}


def test_a_lease_that_is_moving_counts_as_its_next_owners_and_is_left_alone():
    leases = table(ann=1, bob=3)
    assert len(assign(leases, "cid").steal) == 1
    moving = [requested(lease, "cid") if lease.key in {"bob-0", "bob-1"} else lease for lease in leases]
    assert assign(moving, "dan").steal == ()
    assert assign(moving, "ann").steal == ()
    assert {lease.key for lease in assign([*moving, *table(bob=9)[3:]], "ann").steal} <= {
        f"bob-{n}" for n in range(2, 9)
    }


def test_a_lease_whose_holder_died_on_the_way_is_free():
    moving = [requested(lease, "bob") for lease in table(ann=2)]
    assert keys(assign(moving, "cid", expired=keys(moving)).take) == keys(moving)


def test_with_nothing_meant_for_a_worker_it_still_takes_one_from_who_has_clearly_more():
    """bob is thought to take what baz has too much, but does not, for he reads one shard only."""
    leases = table(ann=4, bob=1, baz=8)
    (lease,) = assign(leases, "ann").steal
    assert lease.owner == "baz"


# --- how many at most ---


def test_nobody_owns_more_than_the_maximum():
    assert len(assign(table(free=9), "ann", max_leases=4).take) == 4
    assert len(assign(table(free=9, ann=3), "ann", max_leases=4).take) == 1
    leases = table(free=9, ann=4)
    assert assign(leases, "ann", max_leases=4, neglected=keys(leases)).take == ()
    assert assign(table(ann=4, bob=9), "ann", max_leases=4).steal == ()
    assert len(assign(table(ann=2, bob=9), "ann", max_leases=4).steal) == 2


def test_former_leases_come_back_even_beyond_the_maximum():
    leases = table(ann=5)
    assert len(assign(leases, "ann", former=keys(leases), max_leases=4).take) == 5


# --- by throughput ---


def weighing(owner, *throughputs):
    return [
        Lease(f"{owner}-{number}", LATEST, owner=None if owner == "free" else owner, throughput_kbps=throughput)
        for number, throughput in enumerate(throughputs)
    ]


def test_one_busy_shard_weighs_as_much_as_many_idle_ones():
    leases = [*weighing("bob", 1000, *[10] * 9), *weighing("ann", *[10] * 5)]
    assert len(assign(leases, "ann").steal) == 2
    plan = assign(leases, "ann", by_throughput=True)
    assert len(plan.steal) >= 3
    assert "bob-0" not in keys(plan.steal)  # it alone would only change sides


def test_a_lease_of_half_the_difference_goes_first():
    leases = [*weighing("bob", 200, 60, 10, 10, 10), *weighing("ann", 10)]
    assert next(lease.key for lease in assign(leases, "ann", by_throughput=True).steal) == "bob-1"


def test_free_leases_are_shared_out_by_what_they_bring():
    leases = [*weighing("free", *[50] * 6), *weighing("bob", 500, 10)]
    assert len(assign(leases, "ann", by_throughput=True).take) == 6
    assert len(assign(leases, "ann").take) == 4


def test_what_nobody_measured_counts_as_the_average():
    assert len(assign(weighing("bob", None, None, None, None), "ann", by_throughput=True).steal) == 1
    leases = [*weighing("bob", None, 10, 30), *weighing("ann", None, 20)]
    assert assign(leases, "ann", by_throughput=True).steal == ()


def test_small_differences_are_left_alone():
    near = 100 * (1 + DAMPING / 2)
    assert assign([*weighing("bob", *[near] * 20), *weighing("ann", *[100] * 20)], "ann", by_throughput=True) == Plan()
    leases = [*weighing("bob", *[3] * 20), *weighing("ann", *[1] * 20)]
    assert assign(leases, "ann", by_throughput=True).steal


# --- kinship ---


def family():
    """Two parents, read by ann and bob, and a child of each that is free; and a lease without parents."""
    parents = [Lease(f"{owner}-done", SHARD_END, owner=owner) for owner in ("ann", "bob")]
    children = [Lease(f"child-of-{owner}", LATEST, parents=(f"{owner}-done",)) for owner in ("ann", "bob")]
    return [*parents, *children, Lease("orphan", LATEST)]


def test_a_child_goes_to_the_reader_of_its_parent_if_that_is_fair():
    leases = [*family(), *table(ann=2, bob=2)]
    assert keys(assign(leases, "ann").take) == {"child-of-ann", "orphan"}
    assert keys(assign(leases, "bob").take) == {"child-of-bob", "orphan"}


def test_a_child_of_a_worker_that_is_gone_is_like_any_other():
    assert keys(assign(family(), "ann").take) == {"child-of-ann", "child-of-bob", "orphan"}
    assert assign([*family(), *table(ann=9, cid=1)], "ann").take == ()


# --- how often to look ---


def test_the_more_workers_the_less_often_each_looks():
    assert [default_scan_interval(10, workers) for workers in (1, 5, 10, 20, 50, 100)] == [0.5, 0.5, 1.0, 2.0, 5.0, 5.0]


# --- convergence ---


def come_to_rest(leases, workers, seed, *, stale, weighted):
    """From any state; also when all decide from the same old table and collide, as they do at a start."""
    rng = random.Random(seed)
    names = [f"w{number}" for number in range(workers)]
    owners = [None, *rng.sample(names, min(workers, 4))]
    rows = {
        f"s{n}": Lease(f"s{n}", LATEST, owner=rng.choice(owners), throughput_kbps=rng.choice([None, 1.0, 10.0, 100.0]))
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
        pytest.fail("they never came to rest")
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
def test_workers_come_to_rest_in_balance(leases, workers, seed, stale, weighted):
    come_to_rest(leases, workers, seed, stale=stale, weighted=weighted)


@given(
    leases=st.integers(min_value=1, max_value=500),
    workers=st.integers(min_value=1, max_value=100),
    seed=st.integers(min_value=0, max_value=2**32),
    stale=st.booleans(),
    weighted=st.booleans(),
)
@settings(max_examples=12, deadline=None, derandomize=True, database=None, phases=[Phase.generate])
def test_many_workers_come_to_rest_in_balance(leases, workers, seed, stale, weighted):
    come_to_rest(leases, workers, seed, stale=stale, weighted=weighted)


@given(
    owners=st.lists(st.sampled_from([None, "ann", "bob", "cid"]), max_size=20),
    finished=st.sets(st.integers(min_value=0, max_value=19)),
    expired=st.sets(st.integers(min_value=0, max_value=19)),
    blocked=st.sets(st.integers(min_value=0, max_value=19)),
)
@settings(deadline=None, derandomize=True, database=None)
def test_what_is_never_taken(owners, finished, expired, blocked):
    leases = [Lease(str(n), SHARD_END if n in finished else LATEST, owner=owner) for n, owner in enumerate(owners)]
    gone = {str(n) for n in expired}
    plan = assign(leases, "ann", expired=gone, eligible=lambda lease: int(lease.key) not in blocked)
    assert not (plan.take and plan.steal)
    for lease in (*plan.take, *plan.steal):
        assert not lease.is_finished
        assert int(lease.key) not in blocked
    assert all(lease.owner is None or lease.key in gone for lease in plan.take)
    assert all(lease.owner not in (None, "ann") and lease.key not in gone for lease in plan.steal)
