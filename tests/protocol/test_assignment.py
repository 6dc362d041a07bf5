"""Fair shares: KCL's cases, and that workers who decide alone come to rest in balance."""

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from efo.leases.transitions import taken
from efo.model import LATEST, SHARD_END, Lease
from efo.protocol.assignment import Plan, assign
from efo.protocol.expiry import NEGLECT, Expiry


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
def test_free_leases_are_taken_up_to_the_fair_share(owners, count):
    plan = assign(table(**owners), "ann")
    assert len(plan.take) == count
    assert all(lease.owner is None for lease in plan.take)
    assert plan.steal == ()


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
        pytest.param({"bob": 1}, None, id="a single lease does not change hands"),
        pytest.param({"bob": 2}, "bob", id="one of two"),
        pytest.param({"bob": 2, "baz": 2}, "any", id="none at all, and all others at their share"),
        pytest.param({"ann": 5, "bob": 1}, None, id="never from oneself"),
        pytest.param({"ann": 4, "bob": 5}, None, id="balanced"),
    ],
)
def test_with_nothing_free_one_is_stolen_from_the_busiest(owners, victim):
    plan = assign(table(**owners), "ann")
    assert plan.take == ()
    assert len(plan.steal) == (victim is not None)
    assert all(victim in (lease.owner, "any") and lease.owner != "ann" for lease in plan.steal)


def test_free_and_expired_leases_go_before_stealing():
    """G26: any lease available means no steal in the same round."""
    assert assign(table(free=1, baz=5), "ann") == Plan(take=tuple(table(free=1)))
    plan = assign(table(bob=1, baz=5), "ann", expired={"bob-0"})
    assert (keys(plan.take), plan.steal) == ({"bob-0"}, ())


def test_an_expired_owner_is_no_worker():
    leases = table(bob=4)
    assert keys(assign(leases, "ann", expired=keys(leases)).take) == keys(leases)


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


@given(
    leases=st.integers(min_value=0, max_value=40),
    workers=st.integers(min_value=1, max_value=8),
    seed=st.integers(min_value=0, max_value=2**32),
    stale=st.booleans(),
)
@settings(max_examples=200, deadline=None, derandomize=True, database=None)
def test_workers_come_to_rest_in_balance(leases, workers, seed, stale):
    """From any state; also when all decide from the same old table and collide, as they do at a start."""
    rng = random.Random(seed)
    names = [f"w{number}" for number in range(workers)]
    rows = {f"s{n}": Lease(f"s{n}", LATEST, owner=rng.choice([None, *names])) for n in range(leases)}
    for _ in range(20 * (leases + workers)):
        snapshot = list(rows.values())
        moves = 0
        for name in rng.sample(names, workers):
            plan = assign(snapshot if stale else list(rows.values()), name)
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
    assert max(counts) - min(counts) <= 1


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
    assert len(plan.steal) <= 1
    for lease in (*plan.take, *plan.steal):
        assert not lease.is_finished
        assert int(lease.key) not in blocked
    assert all(lease.owner is None or lease.key in gone for lease in plan.take)
    assert all(lease.owner not in (None, "ann") and lease.key not in gone for lease in plan.steal)


# --- expiry ---


def seen(expiry, at, *leases, took=0.0):
    expiry.observe(leases, asked=at, answered=at + took)
    return expiry.expired()


def test_an_owned_lease_expires_when_its_counter_stands_still_for_the_failover_time():
    """G24: a new owned lease is not taken until the time has passed, an updated one not at all."""
    expiry = Expiry(10.0)
    lease = Lease("s", LATEST, owner="bob", counter=5)
    assert seen(expiry, 100.0, lease) == set()
    assert seen(expiry, 109.9, lease) == set()
    assert seen(expiry, 110.0, lease) == {"s"}
    assert seen(expiry, 111.0, replace(lease, counter=6)) == set()
    assert seen(expiry, 120.9, replace(lease, counter=6)) == set()
    assert seen(expiry, 121.0, replace(lease, counter=6)) == {"s"}


def test_a_new_owner_starts_anew_even_with_the_same_counter():
    """A row that was deleted and made again."""
    expiry = Expiry(10.0)
    seen(expiry, 0.0, Lease("s", LATEST, owner="bob", counter=1))
    assert seen(expiry, 10.0, Lease("s", LATEST, owner="cid", counter=1)) == set()


def test_the_time_a_listing_takes_is_never_counted_against_the_owner():
    expiry = Expiry(10.0)
    lease = Lease("s", LATEST, owner="bob")
    seen(expiry, 0.0, lease, took=4.0)  # the renewal may have come at 4.0
    assert seen(expiry, 13.9, lease, took=4.0) == set()  # and this may have been read at 13.9
    assert seen(expiry, 14.0, lease) == {"s"}


def test_a_lease_that_was_deleted_is_forgotten():
    expiry = Expiry(10.0)
    lease = Lease("s", LATEST, owner="bob")
    seen(expiry, 0.0, lease)
    assert seen(expiry, 20.0) == set()
    assert seen(expiry, 21.0, lease) == set()


def test_an_unowned_lease_is_free_and_not_expired_but_can_be_neglected():
    expiry = Expiry(10.0)
    lease = Lease("s", LATEST)
    assert seen(expiry, 0.0, lease) == set()
    assert seen(expiry, 10.0 * NEGLECT, lease) == set()
    assert expiry.neglected() == {"s"}
    assert seen(expiry, 40.0, replace(lease, counter=1)) == set()
    assert expiry.neglected() == set()
