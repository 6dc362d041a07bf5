"""The conformance suite of the lease stores, `efo.testing.check_lease_store`: every store passes its checks."""

from functools import partial

import pytest

from efo.testing.lease_store import CHECKS
from tests.efo.leases.stores.all_stores import STORES

SCENARIOS = {
    "a_second_create_adds_nothing": ("G19",),
    "a_lease_is_taken_renewed_released_and_taken_again": ("G23",),
    "a_pending_checkpoint_stays_until_the_next_checkpoint": ("G66",),
    "a_write_with_a_stale_counter_fails": ("G20", "G23"),
    "an_unowned_lease_can_only_be_taken": ("G23",),
    "a_write_to_a_deleted_lease_fails_and_does_not_recreate_it": ("G28",),
    "the_next_write_of_the_holder_succeeds_and_returns_the_request": ("G22",),
    "a_release_hands_the_lease_over_to_the_next_owner": ("G31",),
}
"""What a check shows of docs/guarantees.md."""


def parameter(check):
    names = SCENARIOS.get(check.function.__name__)
    return pytest.param(check, id=check.name, marks=[pytest.mark.scenario(*names)] if names else [])


@pytest.fixture(params=STORES)
def pair(request, tmp_path, servers):
    """A function that opens two stores on the same leases."""
    kind = STORES[request.param]
    return partial(kind.open, tmp_path, *([servers.url(kind.serve)] if kind.serve else []))


@pytest.mark.parametrize("check", [parameter(check) for check in CHECKS])
async def test_a_store_conforms(pair, check):
    async with pair() as (one, other):
        await check.run(one, other)
