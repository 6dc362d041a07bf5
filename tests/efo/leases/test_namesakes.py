"""Another worker with the same id is found by its renewals; a write of ours whose response was lost is not one."""

from dataclasses import replace

from efo.leases.namesakes import RENEWALS, Namesakes
from efo.model import Checkpoint, Lease

ROW = Lease("shardId-000000000000", Checkpoint.TRIM_HORIZON, owner="worker", counter=7)


def renewed(by):
    return replace(ROW, counter=ROW.counter + by)


def test_two_renewals_of_a_lease_that_is_not_held_are_another_workers():
    namesakes = Namesakes()
    assert [namesakes.renews(renewed(by)) for by in range(RENEWALS + 2)] == [False, False, True, True]


def test_one_renewal_may_be_a_write_of_ours():
    namesakes = Namesakes()
    assert [namesakes.renews(row) for row in (ROW, renewed(1), renewed(1), renewed(1))] == [False] * 4


def test_a_lease_that_is_taken_is_forgotten():
    namesakes = Namesakes()
    namesakes.renews(ROW)
    namesakes.renews(renewed(1))
    namesakes.forget(ROW.key)
    assert not namesakes.renews(renewed(2))
