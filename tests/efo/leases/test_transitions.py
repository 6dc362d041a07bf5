"""The conditions of writes to a lease row, and the row after each write, without a store."""

from __future__ import annotations

from dataclasses import replace

import pytest

from efo.errors import LeaseLostError
from efo.leases import transitions
from efo.model import Checkpoint, Lease

ANNS = Lease("s", Checkpoint("5"), owner="ann", counter=7, owner_switches=2, throughput_kbps=3.0)
MOVING = replace(ANNS, owner="bob", checkpoint_owner="ann")
FREE = replace(ANNS, owner=None)


@pytest.mark.parametrize(
    ("condition", "lease", "rows"),
    [
        (transitions.existing, ANNS, [ANNS, replace(ANNS, counter=9, owner="bob")]),
        (transitions.same_counter, ANNS, [ANNS, replace(ANNS, owner="bob")]),
        (transitions.same_counter, FREE, [FREE, ANNS]),
        (transitions.same_holder, ANNS, [ANNS, MOVING]),
        (transitions.same_holder, MOVING, [ANNS, MOVING]),
        (transitions.same_owners, ANNS, [ANNS, replace(ANNS, counter=9)]),
        (transitions.same_owners, MOVING, [MOVING, replace(MOVING, counter=1)]),
    ],
)
def test_a_condition_returns_the_row_that_meets_it(condition, lease, rows):
    assert [condition(row, lease) for row in rows] == rows


@pytest.mark.parametrize(
    ("condition", "lease", "rows"),
    [
        (transitions.existing, ANNS, [None]),
        (transitions.same_counter, ANNS, [None, replace(ANNS, counter=8), replace(ANNS, counter=6)]),
        (transitions.same_holder, ANNS, [None, replace(ANNS, counter=8), replace(ANNS, owner="bob"), FREE]),
        (transitions.same_holder, FREE, [FREE, ANNS]),
        (transitions.same_owners, ANNS, [None, replace(ANNS, owner="bob"), MOVING, FREE]),
        (
            transitions.same_owners,
            MOVING,
            [ANNS, replace(MOVING, checkpoint_owner="cid"), replace(MOVING, owner="cid")],
        ),
        (transitions.same_owners, FREE, [FREE, ANNS]),
    ],
)
def test_a_condition_that_a_row_does_not_meet_is_a_lost_lease(condition, lease, rows):
    for row in rows:
        with pytest.raises(LeaseLostError, match="lease s"):
            condition(row, lease)


def test_a_lost_lease_is_told_with_what_was_read_of_it():
    assert "(holder ann, counter 7)" in str(transitions.lease_lost(MOVING))
    assert "(holder none, counter 7)" in str(transitions.lease_lost(FREE))
    with pytest.raises(LeaseLostError, match="lease s has no owner: take it first"):
        transitions.owned(FREE)


@pytest.mark.parametrize(
    ("known", "read", "written"),
    [
        ((None, None), (1.0, 2.0), (1.0, 2.0)),
        ((3.0, None), (1.0, 2.0), (3.0, 2.0)),
        ((None, 4.0), (1.0, 2.0), (1.0, 4.0)),
        ((3.0, 4.0), (None, None), (3.0, 4.0)),
        ((0.0, 0.0), (1.0, 2.0), (0.0, 0.0)),
        ((1.0, 2.0), (1.0, 2.0), (1.0, 2.0)),
    ],
)
def test_a_write_of_the_holder_writes_the_times_that_it_knows(known, read, written):
    def with_times(times):
        return replace(ANNS, unread_since=times[0], stream_created_at=times[1])

    row = with_times(read)
    found = transitions.same_holder(row, with_times(known))
    assert found == with_times(written)
    assert (found is row) == (read == written)


def test_the_row_after_each_write():
    assert transitions.taken(ANNS, "bob") == replace(ANNS, owner="bob", counter=8, owner_switches=3)
    assert transitions.taken(ANNS, "ann") == replace(ANNS, counter=8)
    assert transitions.taken(FREE, "bob") == replace(ANNS, owner="bob", counter=8)
    assert transitions.taken(MOVING, "cid") == replace(ANNS, owner="cid", counter=8, owner_switches=3)
    assert transitions.requested(ANNS, "bob") == MOVING
    assert transitions.requested(MOVING, "cid") == replace(MOVING, owner="cid")
    assert transitions.requested(MOVING, "ann") == ANNS
    assert transitions.renewed(ANNS) == replace(ANNS, counter=8)
    assert transitions.renewed(ANNS, 0.0) == replace(ANNS, counter=8, throughput_kbps=0.0)
    assert transitions.released(ANNS) == replace(FREE, counter=8)
    assert transitions.released(MOVING) == replace(ANNS, owner="bob", counter=8, owner_switches=3)


def test_a_checkpoint_ends_what_was_pending():
    pending = replace(ANNS, pending_checkpoint=Checkpoint("9"), pending_checkpoint_state=b"x")
    saved = replace(ANNS, checkpoint=Checkpoint("6"), counter=8, owner_switches=0)
    assert transitions.checkpointed(pending, Checkpoint("6")) == saved
    assert transitions.checkpointed(pending, Checkpoint("6"), 0.0) == replace(saved, throughput_kbps=0.0)


@pytest.mark.parametrize("starts_at", [None, 12.0])
def test_a_reset_leaves_nothing_of_its_holders(starts_at):
    moving = replace(
        MOVING, pending_checkpoint=Checkpoint("9"), pending_checkpoint_state=b"x", latest_at=1.0, unread_since=2.0
    )
    assert transitions.reset(moving, Checkpoint.LATEST, starts_at) == replace(
        FREE, checkpoint=Checkpoint.LATEST, counter=8, owner_switches=0, latest_at=starts_at
    )
