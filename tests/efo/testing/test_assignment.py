"""`check_assignment` finds each kind of strategy that would do harm."""

from __future__ import annotations

from itertools import count

import pytest

import efo
from efo.testing import check_assignment


def takes_nothing(_view):
    return efo.leases.AssignmentPlan()


def steals_always(view):
    return efo.leases.AssignmentPlan(take=tuple(view.free), steal=tuple(view.stealable[:1]))


def takes_from_others(view):
    return efo.leases.AssignmentPlan(take=(*view.free, *view.stealable))


_calls = count()


def differs_each_time(view):
    return efo.leases.AssignmentPlan(take=tuple(view.free) if next(_calls) % 2 else ())


def first_come_first_served(view):
    """Valid, and unfair: it takes all that is free."""
    return efo.leases.AssignmentPlan(take=tuple(view.free))


def equal_numbers(view):
    """Valid: one lease from the worker with the most, if that has two more."""
    most = max(view.held, key=lambda worker: (len(view.held[worker]), worker))
    is_fair = len(view.held[most]) - len(view.held[view.worker]) < 2
    return efo.leases.AssignmentPlan(
        take=tuple(view.free[:1]), steal=() if is_fair else tuple(view.stealable_of(view.held[most])[:1])
    )


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        (takes_nothing, "no worker takes shardId-000000000000"),
        (steals_always, "to and fro|never stop"),
        (takes_from_others, "to take, but it is not in view.free"),
        (differs_each_time, "the same view gives different plans"),
        (lambda _view: None, "expected an AssignmentPlan"),
    ],
)
def test_a_harmful_strategy_fails(strategy, message):
    with pytest.raises(AssertionError, match=message):
        check_assignment(strategy, examples=40)


def test_moves_that_go_round_are_found_although_no_table_comes_twice_in_a_row():
    def by_turns(view):
        """Prefer the worker after the present owner: no two tables in a row are the same, but they come back."""
        order = sorted(view.held)
        after = {owner: order[(n + 1) % len(order)] for n, owner in enumerate(order)}
        mine = [lease for lease in view.stealable if after[lease.owner] == view.worker]
        return efo.leases.AssignmentPlan(take=tuple(view.free), steal=tuple(mine[:1]))

    with pytest.raises(AssertionError, match=r"to and fro|never stop"):
        check_assignment(by_turns, examples=40)


def test_moves_to_and_fro_are_found_although_they_end():
    def while_young(view):
        young = [lease for lease in view.stealable if lease.counter < 4]
        return efo.leases.AssignmentPlan(take=tuple(view.free), steal=tuple(young[:1]))

    with pytest.raises(AssertionError, match="leases move to and fro"):
        check_assignment(while_young, examples=40)


@pytest.mark.parametrize("strategy", [first_come_first_served, equal_numbers])
def test_a_valid_strategy_passes(strategy):
    check_assignment(strategy, examples=40)


def test_a_strategy_that_leaves_leases_on_purpose_passes_if_that_is_said():
    check_assignment(takes_nothing, takes_all=False, examples=20)


@pytest.mark.parametrize("arguments", [{"strategy": "x"}, {"strategy": takes_nothing, "examples": 0}])
def test_wrong_arguments_are_refused(arguments):
    with pytest.raises(efo.errors.ConfigurationError):
        check_assignment(**arguments)
