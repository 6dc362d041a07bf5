"""When a lease expires."""

from dataclasses import replace

import pytest

from efo.model import Checkpoint, Lease
from efo.protocol.lease_expiry import NEGLECTED_AFTER, LeaseExpiry


def observe_at(expiry, at, *leases, took=0.0):
    expiry.observe(leases, sent_at=at, received_at=at + took)
    return expiry.expired()


@pytest.mark.scenario("G24", "G29")
def test_an_owned_lease_expires_when_its_counter_does_not_change_for_the_failover_time():
    """G24: an owned lease that is new to this worker expires only after the time has passed; a renewed one does not."""
    expiry = LeaseExpiry(10.0)
    lease = Lease("s", Checkpoint.LATEST, owner="bob", counter=5)
    assert observe_at(expiry, 100.0, lease) == set()
    assert observe_at(expiry, 109.9, lease) == set()
    assert observe_at(expiry, 110.0, lease) == {"s"}
    assert observe_at(expiry, 111.0, replace(lease, counter=6)) == set()
    assert observe_at(expiry, 120.9, replace(lease, counter=6)) == set()
    assert observe_at(expiry, 121.0, replace(lease, counter=6)) == {"s"}


def test_a_new_owner_restarts_the_time_even_with_the_same_counter():
    """The row was deleted and created again."""
    expiry = LeaseExpiry(10.0)
    observe_at(expiry, 0.0, Lease("s", Checkpoint.LATEST, owner="bob", counter=1))
    assert observe_at(expiry, 10.0, Lease("s", Checkpoint.LATEST, owner="cid", counter=1)) == set()


def test_the_duration_of_a_lease_scan_never_counts_against_the_owner():
    expiry = LeaseExpiry(10.0)
    lease = Lease("s", Checkpoint.LATEST, owner="bob")
    observe_at(expiry, 0.0, lease, took=4.0)  # the renewal may have happened at 4.0
    assert observe_at(expiry, 13.9, lease, took=4.0) == set()  # and the row may have been read at 13.9
    assert observe_at(expiry, 14.0, lease) == {"s"}


def test_a_deleted_lease_restarts_its_time_when_it_is_created_again():
    expiry = LeaseExpiry(10.0)
    lease = Lease("s", Checkpoint.LATEST, owner="bob")
    observe_at(expiry, 0.0, lease)
    assert observe_at(expiry, 20.0) == set()
    assert observe_at(expiry, 21.0, lease) == set()


def test_an_unowned_lease_never_expires_but_becomes_neglected():
    expiry = LeaseExpiry(10.0)
    lease = Lease("s", Checkpoint.LATEST)
    assert observe_at(expiry, 0.0, lease) == set()
    assert observe_at(expiry, 10.0 * NEGLECTED_AFTER, lease) == set()
    assert expiry.neglected() == {"s"}
    assert observe_at(expiry, 40.0, replace(lease, counter=1)) == set()
    assert expiry.neglected() == set()


def test_a_requested_hand_off_does_not_renew_the_lease():
    expiry = LeaseExpiry(10.0)
    lease = Lease("s", Checkpoint.LATEST, owner="ann", counter=1)
    observe_at(expiry, 0.0, lease)
    requested = replace(lease, owner="bob", checkpoint_owner="ann")
    assert observe_at(expiry, 9.0, requested) == set()
    assert observe_at(expiry, 10.0, requested) == {"s"}


def test_a_holder_is_alive_from_a_renewal_that_was_seen_until_its_lease_expires():
    expiry = LeaseExpiry(10.0)
    lease = Lease("s", Checkpoint.LATEST, owner="bob", counter=5)
    assert not expiry.is_alive("s")
    observe_at(expiry, 0.0, lease)
    assert not expiry.is_alive("s")  # it may have ended long ago
    for now in (1.0, 10.9):
        observe_at(expiry, now, replace(lease, counter=6))
        assert expiry.is_alive("s")
    observe_at(expiry, 11.0, replace(lease, counter=6))
    assert not expiry.is_alive("s")


def test_the_next_expiry_is_that_of_the_first_lease_that_has_not_expired():
    expiry = LeaseExpiry(10.0)
    rows = [Lease("s", Checkpoint.LATEST, owner="bob"), Lease("t", Checkpoint.LATEST, owner="bob")]
    assert expiry.next_expiry(["s"]) is None
    observe_at(expiry, 0.1, *rows)
    assert expiry.next_expiry(["s", "t", "gone"]) == 10.1
    observe_at(expiry, 3.0, rows[0], replace(rows[1], counter=1))
    assert (expiry.next_expiry(["s", "t"]), expiry.next_expiry(["t"])) == (10.1, 13.0)
    assert observe_at(expiry, expiry.next_expiry(["s"]), rows[0], replace(rows[1], counter=1)) == {"s"}
    assert expiry.next_expiry(["s", "t"]) == 13.0  # expired leases do not count
