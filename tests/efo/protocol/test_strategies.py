"""Strategies other than the default: weights, zones, shards of fixed workers; and what no strategy may return."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

import efo
from efo.leases.transitions import taken
from efo.model import MAX_HASH_KEY, Checkpoint, HashKeyRange, Lease
from efo.protocol.assignment.assign import assign
from efo.testing import check_assignment


def table(count, owner=None):
    """Return leases whose shards divide the hash keys evenly."""
    width = (MAX_HASH_KEY + 1) // count
    return [
        Lease(
            f"shardId-{n:012}",
            Checkpoint.LATEST,
            owner=owner,
            hash_key_range=HashKeyRange(str(n * width), str((n + 1) * width - 1)),
        )
        for n in range(count)
    ]


def settle(leases, workers, strategy):
    """Return the owners of the leases, in order, after the workers decided until nothing moved."""
    rows = {lease.key: lease for lease in leases}
    for _ in range(100):
        moved = False
        for worker in workers:
            expired = {row.key for row in rows.values() if row.owner not in workers}
            plan = assign(list(rows.values()), worker, expired=expired, strategy=strategy)
            for lease in (*plan.take, *plan.steal):
                rows[lease.key] = taken(rows[lease.key], worker)
                moved = True
        if not moved:
            return [rows[lease.key].owner for lease in leases]
    raise AssertionError("the moves do not stop")


# --- weights ---


def test_workers_share_in_proportion_to_their_weights():
    strategy = efo.leases.weighted_assignment({"big": 3.0, "small": 0.5})
    workers = ["big-1", "small-1", "other"]
    assert Counter(settle(table(9), workers, strategy)) == {"big-1": 6, "other": 2, "small-1": 1}
    assert Counter(settle(table(9, "other"), workers, strategy)) == {"big-1": 6, "other": 2, "small-1": 1}


def test_free_leases_are_taken_up_to_the_share_of_the_weight():
    strategy = efo.leases.weighted_assignment({"big": 3.0})
    leases = [replace(table(8)[0], owner="small"), replace(table(8)[1], owner="big"), *table(8)[2:]]
    assert len(assign(leases, "big", strategy=strategy).take) == 5
    assert len(assign(leases, "small", strategy=strategy).take) == 1


def test_the_longest_beginning_of_a_workers_id_counts():
    strategy = efo.leases.weighted_assignment({"w": 1.0, "w-big": 4.0})
    assert Counter(settle(table(10), ["w-1", "w-big-1"], strategy)) == {"w-big-1": 8, "w-1": 2}


@given(
    count=st.integers(min_value=1, max_value=30),
    weights=st.lists(st.sampled_from([0.5, 1.0, 2.0, 5.0]), min_size=1, max_size=5),
    owner=st.sampled_from([None, "w0", "gone"]),
)
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
def test_no_lease_would_make_the_shares_more_even(count, weights, owner):
    """Sainte-Laguë: no worker with half a lease less is relatively busier than another one with half a lease more."""
    weight_of = {f"w{n}": weight for n, weight in enumerate(weights)}
    counts = Counter(settle(table(count, owner), list(weight_of), efo.leases.weighted_assignment(weight_of)))
    with_less = [(counts[worker] - 0.5) / weight for worker, weight in weight_of.items() if counts[worker]]
    with_more = [(counts[worker] + 0.5) / weight for worker, weight in weight_of.items()]
    assert max(with_less) <= min(with_more) + 1e-9


# --- zones ---


def test_each_zone_reads_its_part_of_the_hash_keys():
    strategy = efo.leases.zone_assignment(["a", "b"])
    workers = ["a-1", "a-2", "b-1"]
    owners = settle(table(8), workers, strategy)
    assert Counter(owners[:4]) == {"a-1": 2, "a-2": 2}
    assert owners[4:] == ["b-1"] * 4
    assert settle(table(8, "b-1"), workers, strategy)[4:] == ["b-1"] * 4


def test_the_next_zone_with_workers_reads_the_shards_of_a_zone_without_any():
    strategy = efo.leases.zone_assignment(["a", "b", "c", "d"])
    leases = table(8)
    assert settle(leases, ["a-1", "c-1"], strategy) == ["a-1"] * 2 + ["c-1"] * 4 + ["a-1"] * 2
    assert settle(leases, ["b-1", "c-1"], strategy) == ["b-1"] * 4 + ["c-1"] * 2 + ["b-1"] * 2


def test_a_first_worker_of_a_zone_takes_one_lease_from_others_before_it_takes_all():
    strategy = efo.leases.zone_assignment(["a", "b"])
    leases = table(8, "a-1")
    first = assign(leases, "b-1", strategy=strategy)
    assert (first.take, len(first.steal)) == ((), 1)
    (lease,) = first.steal
    seen = [replace(row, owner="b-1") if row is lease else row for row in leases]
    assert {row.key for row in assign(seen, "b-1", strategy=strategy).steal} == {
        row.key for row in leases[4:] if row is not lease
    }
    assert assign(seen, "a-1", strategy=strategy) == efo.leases.AssignmentPlan()


def test_a_neglected_lease_is_taken_by_another_zone():
    leases = [*table(2)[:1], replace(table(2)[1], owner="b-1")]
    strategy = efo.leases.zone_assignment(["a", "b"])
    busy = replace(leases[1], key="busy", hash_key_range=table(2)[0].hash_key_range, owner="a-1")
    assert assign([*leases, busy], "b-1", strategy=strategy).take == ()
    assert assign([*leases, busy], "b-1", strategy=strategy, neglected={leases[0].key}).take == (leases[0],)


def test_zones_of_workers_and_shards_may_be_functions():
    strategy = efo.leases.zone_assignment(
        ["a", "b"],
        zone_of_worker={"1": "a", "2": "b"}.get,
        zone_of_shard=lambda lease: "a" if lease.key.endswith("3") else "b",
    )
    assert settle(table(4), ["1", "2"], strategy) == ["2", "2", "2", "1"]


def test_a_lease_without_hash_keys_has_a_zone_too():
    leases = [replace(lease, hash_key_range=None) for lease in table(20)]
    owners = settle(leases, ["a-1", "b-1"], efo.leases.zone_assignment(["a", "b"]))
    assert Counter(owners).keys() == {"a-1", "b-1"}
    assert owners == settle(list(reversed(leases)), ["b-1", "a-1"], efo.leases.zone_assignment(["a", "b"]))[::-1]


# --- shards of fixed workers ---


def test_a_shard_is_read_by_the_worker_that_is_named_for_it_and_others_are_shared():
    leases = table(6)
    strategy = efo.leases.manual_assignment({leases[0].key: "ann", leases[1].key: "nobody"})
    owners = settle(leases, ["ann", "bob"], strategy)
    assert owners[:2] == ["ann", None]
    assert Counter(owners[2:]) == {"ann": 2, "bob": 2}
    taken_over = settle([replace(lease, owner="bob") for lease in leases], ["ann", "bob"], strategy)
    assert (taken_over[0], Counter(taken_over[2:])) == ("ann", {"ann": 2, "bob": 2})


# --- limits, and the order ---


def test_limits_and_the_order_hold_for_each_strategy():
    def all_of_them(view: efo.leases.AssignmentView, /) -> efo.leases.AssignmentPlan:
        return efo.leases.AssignmentPlan(tuple(view.free), tuple(view.stealable))

    leases = table(9)
    old = {leases[7].key, leases[8].key}
    plan = assign(leases, "ann", strategy=all_of_them, neglected=old, max_leases_per_scan=3)
    assert plan.take == (leases[7], leases[8], leases[0])
    held = [replace(lease, owner="ann") for lease in leases[:4]]
    assert len(assign([*held, *leases[4:]], "ann", strategy=all_of_them, max_leases=6).take) == 2
    assert assign([*held, *leases[4:]], "ann", strategy=all_of_them, max_leases=3).take == ()
    theirs = [replace(lease, owner="bob") for lease in leases]
    assert len(assign(theirs, "ann", strategy=all_of_them, max_leases_per_scan=2).steal) == 2
    assert assign([*theirs[1:], leases[0]], "ann", strategy=all_of_them).steal == ()
    again = assign(
        held, "ann", strategy=all_of_them, previously_held={lease.key for lease in held}, max_leases_per_scan=1
    )
    assert again.take == tuple(held)


# --- what must not be ---


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: efo.leases.weighted_assignment([("a", 1)]), "weights="),
        (lambda: efo.leases.weighted_assignment({"a": 0}), "weights['a']=0"),
        (lambda: efo.leases.weighted_assignment({"": 1}), "weights is empty"),
        (lambda: efo.leases.zone_assignment("ab"), "zones='ab'"),
        (lambda: efo.leases.zone_assignment([]), "zones=[]"),
        (lambda: efo.leases.zone_assignment(["a", 5]), "zones=5"),
        (lambda: efo.leases.zone_assignment(["a", "a"]), "a zone is there twice"),
        (lambda: efo.leases.zone_assignment(["a"], zone_of_worker="a"), "zone_of_worker='a'"),
        (lambda: efo.leases.zone_assignment(["a"], zone_of_shard=lambda: "a"), "zone_of_shard"),
        (lambda: efo.leases.zone_assignment(["a"], within=None), "within=None"),
        (lambda: efo.leases.manual_assignment("ann"), "worker_of='ann'"),
        (lambda: efo.leases.manual_assignment({}, otherwise=None), "otherwise=None"),
        (lambda: efo.ConsumerSettings(assignment="zones"), "assignment='zones': expected an assignment strategy"),
        (lambda: efo.ConsumerSettings(assignment=lambda: None), "cannot be called with (view)"),
        (lambda: efo.ConsumerSettings(max_leases_per_scan=0), "max_leases_per_scan=0"),
        (
            lambda: assign(table(1), "z", strategy=efo.leases.zone_assignment(["a", "b"])),
            "'z' is in none of the zones a, b",
        ),
        (
            lambda: assign(table(1), "a", strategy=efo.leases.zone_assignment(["a"], zone_of_shard=lambda _lease: "x")),
            "zone_of_shard returned 'x': expected one of a",
        ),
    ],
)
def test_a_wrong_argument_is_refused(make, message):
    with pytest.raises(efo.errors.ConfigurationError) as caught:
        make()
    assert message in str(caught.value)


LEASES = [*table(2), replace(table(3)[2], owner="bob"), replace(table(4)[3], owner="bob", checkpoint_owner="cid")]


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ([], "assignment returned []: expected an AssignmentPlan"),
        (efo.leases.AssignmentPlan(take=[LEASES[0]]), "expected a tuple of leases"),
        (efo.leases.AssignmentPlan(take=("shardId",)), "expected a tuple of leases"),
        (efo.leases.AssignmentPlan(take=(LEASES[2],)), "000002 to take, but it is not in view.free"),
        (efo.leases.AssignmentPlan(take=(LEASES[0], LEASES[0])), "000000 to take, but it is there twice"),
        (efo.leases.AssignmentPlan(steal=(LEASES[0],)), "000000 to steal, but it is not in view.stealable"),
        (efo.leases.AssignmentPlan(steal=(LEASES[3],)), "000003 to steal, but it is not in view.stealable"),
    ],
)
def test_a_strategy_that_returns_what_it_must_not_is_refused(plan, message):
    with pytest.raises(efo.errors.ConfigurationError) as caught:
        assign(LEASES, "ann", strategy=lambda _view: plan)
    assert message in str(caught.value)


# --- the properties, for each strategy that comes with efo ---

ZONED = ["a-1", "a-2", "b-1", "b-2", "c-1"]


@pytest.mark.parametrize(
    ("strategy", "options"),
    [
        pytest.param(efo.leases.balanced_assignment, {}, id="balanced"),
        pytest.param(efo.leases.weighted_assignment({"worker-0": 3.0, "worker-1": 0.5}), {}, id="weighted"),
        pytest.param(efo.leases.zone_assignment(["a", "b", "c"]), {"workers": ZONED}, id="zones"),
        pytest.param(
            efo.leases.zone_assignment(["a", "b", "c"], within=efo.leases.weighted_assignment({"a-1": 4.0})),
            {"workers": ZONED},
            id="weighted within zones",
        ),
        pytest.param(
            efo.leases.manual_assignment(lambda lease: "worker-1" if lease.key.endswith(("1", "4")) else None),
            {"takes_all": False},
            id="manual",
        ),
    ],
)
def test_the_strategies_of_efo_have_the_properties_that_the_harness_checks(strategy, options):
    check_assignment(strategy, examples=60, **options)
