"""When a lease counts as dead."""

from dataclasses import replace

import pytest

from efo.model import LATEST, Lease
from efo.protocol.expiry import NEGLECT, Expiry


def seen(expiry, at, *leases, took=0.0):
    expiry.observe(leases, asked=at, answered=at + took)
    return expiry.expired()


@pytest.mark.scenario("G24", "G29")
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


def test_a_request_for_a_hand_off_is_no_sign_of_life():
    expiry = Expiry(10.0)
    lease = Lease("s", LATEST, owner="ann", counter=1)
    seen(expiry, 0.0, lease)
    asked_for = replace(lease, owner="bob", checkpoint_owner="ann")
    assert seen(expiry, 9.0, asked_for) == set()
    assert seen(expiry, 10.0, asked_for) == {"s"}


def test_the_next_expiry_is_when_the_first_lease_would_be_taken():
    expiry = Expiry(10.0)
    rows = [Lease("s", LATEST, owner="bob"), Lease("t", LATEST, owner="bob")]
    assert expiry.next_expiry(["s"]) is None
    seen(expiry, 0.1, *rows)
    assert expiry.next_expiry(["s", "t", "gone"]) == 10.1
    seen(expiry, 3.0, rows[0], replace(rows[1], counter=1))
    assert (expiry.next_expiry(["s", "t"]), expiry.next_expiry(["t"])) == (10.1, 13.0)
    assert seen(expiry, expiry.next_expiry(["s"]), rows[0], replace(rows[1], counter=1)) == {"s"}
    assert expiry.next_expiry(["s", "t"]) == 13.0  # what has expired is not waited for
