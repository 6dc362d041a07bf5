"""The moves that balance loads of any weights between workers of any capacities, as each worker simulates them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings, strategies as st

from efo.model import Checkpoint, Lease
from efo.protocol.assignment.assign import assign
from efo.protocol.assignment.balance import _moves, _Shares, _weights


def moves(
    leases: Mapping[str, Sequence[float]],
    capacities: Mapping[str, float] | None = None,
    *,
    receivers: set[str] | None = None,
    limit: int = 99,
    slack: float = 0.0,
) -> list[tuple[str, str, float]]:
    """Return the moves as donor, receiver and weight. `leases`: the weights of the leases of each worker."""
    held = {
        owner: [Lease(f"{owner}-{number}", Checkpoint.LATEST, owner=owner) for number in range(len(weights))]
        for owner, weights in leases.items()
    }
    weights = {lease.key: weight for owner in held for lease, weight in zip(held[owner], leases[owner], strict=True)}
    shares = _Shares(
        held,
        {owner: sum(weights) for owner, weights in leases.items()},
        capacities or dict.fromkeys(leases, 1.0),
        weights,
        min(weights.values(), default=0.0),
        limit,
        slack,
    )
    stealable = {
        owner: sorted((weights[lease.key], number, lease.key, lease) for number, lease in enumerate(owned))
        for owner, owned in held.items()
    }
    found = _moves(shares, stealable, set(leases) if receivers is None else receivers)
    return [(str(lease.owner), receiver, weights[lease.key]) for receiver, lease in found]


@pytest.mark.parametrize(
    ("leases", "options", "expected"),
    [
        pytest.param({"a": [1, 2, 3, 4], "b": []}, {}, [("a", "b", 4), ("a", "b", 1)], id="half of the difference"),
        pytest.param(
            {"a": [1, 2, 3, 4], "b": []},
            {"capacities": {"a": 1.0, "b": 4.0}},
            [("a", "b", 4), ("a", "b", 3), ("a", "b", 1)],
            id="the more to a worker of more capacity",
        ),
        pytest.param(
            {"a": [1, 2, 3, 4], "b": []},
            {"capacities": {"a": 4.0, "b": 1.0}},
            [("a", "b", 2)],
            id="and the less to one of less",
        ),
        pytest.param({"a": [1] * 6, "b": [1] * 3}, {"slack": 1.9}, [("a", "b", 1)], id="above the slack"),
        pytest.param({"a": [1] * 6, "b": [1] * 3}, {"slack": 2.0}, [], id="at the slack"),
        pytest.param({"a": [10], "b": [1] * 6, "c": []}, {}, [("b", "c", 1)] * 3, id="not one that is too heavy"),
        pytest.param({"a": [3, 3], "b": []}, {}, [("a", "b", 3)], id="one that is heavier than half the difference"),
        pytest.param(
            {"a": [1] * 10, "b": [0.1, 0.1], "c": [3]},
            {"limit": 3},
            [("a", "b", 1), ("a", "c", 1), ("a", "c", 1)],
            id="others after one that has reached the limit",
        ),
        pytest.param(
            {"a": [1] * 9, "b": [1] * 3, "c": [1]}, {"limit": 3}, [("a", "c", 1)] * 2, id="none above the limit"
        ),
        pytest.param(
            {"a": [1] * 5, "b": [], "c": []},
            {"receivers": {"c"}},
            [("a", "c", 1)] * 2,
            id="only to those that are asked for",
        ),
        pytest.param(
            {"a": [1] * 4, "b": [1] * 4, "c": [1]}, {}, [("a", "c", 1), ("b", "c", 1)], id="from each of the busiest"
        ),
        pytest.param(
            {"a": [1], "b": [1] * 3, "c": [1] * 9, "d": [1] * 2, "e": []},
            {},
            [("c", receiver, 1) for receiver in "eaeade"],
            id="in whatever order the workers are",
        ),
        pytest.param({"a": [], "b": []}, {}, [], id="nothing"),
    ],
)
def test_the_leases_that_move(leases, options, expected):
    assert moves(leases, **options) == expected


def test_a_lease_weighs_one_and_its_part_of_the_mean_throughput():
    leases = [
        Lease(str(number), Checkpoint.LATEST, throughput_kbps=kbps)
        for number, kbps in enumerate([100.0, 300.0, None, 0.0])
    ]
    assert _weights(leases, by_throughput=True) == {"0": 1.75, "1": 3.25, "2": 2.0, "3": 1.0}
    assert set(_weights(leases, by_throughput=False).values()) == {1.0}
    assert set(_weights(leases[2:], by_throughput=True).values()) == {1.0}  # nothing is measured


def test_the_lightest_lease_tells_whether_a_move_would_make_the_loads_more_even():
    """The busy lease of bob weighs more than what ann has less: it stays, and light ones move."""
    busy = Lease("busy", Checkpoint.LATEST, owner="bob", throughput_kbps=100.0)
    idle = [
        Lease(str(number), Checkpoint.LATEST, owner="bob" if number < 6 else "ann", throughput_kbps=0.0)
        for number in range(14)
    ]
    assert {lease.key for lease in assign([busy, *idle], "ann", by_throughput=True).steal} == set("012345")
    assert assign([busy, *idle], "bob", by_throughput=True).steal == ()


tables = st.dictionaries(
    st.sampled_from("abcde"), st.lists(st.sampled_from([0.5, 1.0, 1.5, 3.0, 8.0]), max_size=8), min_size=2
)


@given(tables, st.lists(st.sampled_from([0.5, 1.0, 4.0]), min_size=5, max_size=5), st.integers(1, 9))
@settings(max_examples=80, deadline=None, derandomize=True, database=None)
def test_each_move_makes_the_loads_more_even_until_none_does(table, sizes, limit):
    capacities = dict(zip("abcde", sizes, strict=True))
    loads = {owner: sum(weights) for owner, weights in table.items()}
    left = {owner: sorted(weights) for owner, weights in table.items()}

    def gain(donor, receiver, weight):
        """Return by how much a move reduces the sum of the squared loads, each divided by the worker's capacity."""
        difference = loads[donor] / capacities[donor] - loads[receiver] / capacities[receiver]
        return 2 * weight * difference - weight**2 * (1 / capacities[donor] + 1 / capacities[receiver])

    given_by, received_by = set(), []
    for donor, receiver, weight in moves(table, {owner: capacities[owner] for owner in table}, limit=limit):
        assert gain(donor, receiver, weight) > 0
        most = (loads[donor] / capacities[donor] - loads[receiver] / capacities[receiver]) / (
            1 / capacities[donor] + 1 / capacities[receiver]
        )
        assert weight == max((other for other in left[donor] if other <= most), default=min(left[donor]))
        left[donor].remove(weight)
        loads[donor] -= weight
        loads[receiver] += weight
        given_by.add(donor)
        received_by.append(receiver)
    assert given_by.isdisjoint(received_by)
    assert all(len(table[owner]) + received_by.count(owner) <= max(limit, len(table[owner])) for owner in table)
    for donor in table.keys() - set(received_by):
        for receiver in table.keys() - given_by - {donor}:
            if len(table[receiver]) + received_by.count(receiver) < limit:
                assert all(gain(donor, receiver, weight) <= 0 for weight in left[donor])
