"""Which leases of finished shards may be deleted (G41), and which shards have lost them."""

from dataclasses import replace

import pytest

from efo.model import Checkpoint, HashKeyRange, Lease, Shard
from efo.protocol.lineage import deletable_leases, passed_shards

BEGUN = Checkpoint("7")
RANGE = HashKeyRange("0", "9")


def shard(name, *parents):
    """Return a closed shard. Whether the children are open does not matter."""
    parent, adjacent = (*parents, None, None)[:2]
    return Shard(name, RANGE, "1", "5", parent, adjacent)


def table(*leases):
    return {lease.key: lease for lease in leases}


PARENT = Lease("p", Checkpoint.SHARD_END, children=("a", "b"))
A = Lease("a", BEGUN, parents=("p",))
B = Lease("b", Checkpoint.SHARD_END, parents=("p",))
LISTED = [shard("p"), shard("a", "p"), shard("b", "p")]


@pytest.mark.parametrize(
    "listed", [LISTED, LISTED[1:], []], ids=["all listed", "parent past retention", "all past retention"]
)
@pytest.mark.scenario("G41")
def test_a_parent_is_deletable_when_all_its_children_have_begun(listed):
    assert deletable_leases(table(PARENT, A, B), listed) == ["p"]


@pytest.mark.parametrize("checkpoint", [Checkpoint.TRIM_HORIZON, Checkpoint.AT_TIMESTAMP, Checkpoint.LATEST], ids=str)
@pytest.mark.scenario("G41")
def test_a_parent_with_a_child_that_has_not_begun_is_kept(checkpoint):
    assert deletable_leases(table(PARENT, replace(A, checkpoint=checkpoint), B), LISTED) == []


@pytest.mark.scenario("G41")
def test_a_parent_with_a_child_without_a_lease_is_kept():
    assert deletable_leases(table(PARENT, A), LISTED) == []
    assert deletable_leases(table(PARENT, A), LISTED[:1]) == []  # the listing may be older than the child
    assert deletable_leases(table(PARENT, A), LISTED[1:]) == []


def test_a_child_that_only_its_own_lease_or_the_listing_relates_counts_too():
    without_children = replace(PARENT, children=())
    assert deletable_leases(table(without_children, A), LISTED) == []
    assert deletable_leases(table(without_children), LISTED[1:]) == []
    assert deletable_leases(table(without_children, replace(A, checkpoint=Checkpoint.TRIM_HORIZON)), []) == []
    assert deletable_leases(table(without_children, A, B), LISTED) == ["p"]


@pytest.mark.scenario("G41")
def test_a_lease_without_known_children_is_kept_while_its_shard_is_listed():
    without_children = replace(PARENT, children=())
    assert deletable_leases(table(without_children), LISTED[:1]) == []
    assert deletable_leases(table(without_children), []) == ["p"]


@pytest.mark.scenario("G41")
def test_the_oldest_generation_is_deletable_first():
    grandparent = Lease("g", Checkpoint.SHARD_END, children=("p",))
    leases = table(grandparent, replace(PARENT, parents=("g",)), A, B)
    listed = [shard("g"), shard("p", "g"), *LISTED[1:]]
    assert deletable_leases(leases, listed) == ["g"]
    del leases["g"]
    assert deletable_leases(leases, listed) == ["p"]


def test_both_parents_of_a_merge_are_deletable_when_the_child_has_begun():
    parents = [Lease(name, Checkpoint.SHARD_END, children=("m",)) for name in "pq"]
    child = Lease("m", BEGUN, parents=("p", "q"))
    listed = [shard("p"), shard("q"), shard("m", "p", "q")]
    assert deletable_leases(table(*parents, child), listed) == ["p", "q"]
    assert deletable_leases(table(*parents, replace(child, checkpoint=Checkpoint.TRIM_HORIZON)), listed) == []


@pytest.mark.scenario("G41")
def test_a_finished_lease_whose_shard_is_listed_as_open_is_kept():
    assert deletable_leases(table(PARENT, A, B), [replace(LISTED[0], ending_sequence_number=None), *LISTED[1:]]) == []


@pytest.mark.scenario("G41")
def test_an_unfinished_lease_is_never_deletable():
    assert deletable_leases(table(A, Lease("old", BEGUN), Lease("new", Checkpoint.TRIM_HORIZON)), []) == []


GRANDPARENT = replace(shard("g"), starting_sequence_number="0")
FAMILY = [GRANDPARENT, shard("p", "g"), *LISTED[1:]]


def passed(leases, shards):
    return [shard.shard_id for shard in passed_shards(leases, shards)]


def test_closed_shards_without_a_lease_were_passed_if_all_their_children_have_begun_or_were_passed():
    assert passed(table(A, B), FAMILY) == ["p", "g"]
    assert passed(table(A, B), LISTED) == ["p"]
    assert passed(table(PARENT, A, B), FAMILY) == ["g"]


@pytest.mark.parametrize(
    ("leases", "shards"),
    [
        pytest.param(table(A), FAMILY, id="a-child-without-a-lease"),
        pytest.param(table(replace(A, checkpoint=Checkpoint.LATEST), B), FAMILY, id="a-child-that-has-not-begun"),
        pytest.param(table(), LISTED[:1], id="no-children"),
        pytest.param(table(A, B), [replace(LISTED[0], ending_sequence_number=None), *LISTED[1:]], id="open"),
        pytest.param(table(PARENT, A, B), LISTED, id="a-lease-of-its-own"),
    ],
)
def test_other_shards_may_be_read_again(leases, shards):
    assert passed(leases, shards) == []
