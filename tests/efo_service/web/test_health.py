from __future__ import annotations

import pytest

from efo.events import ConsumerReady, LeasesCounted, LeaseStoreCalled
from efo_service.web.health import Health


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def health(clock):
    return Health(stale_after=30, clock=clock)


def make_ready(health: Health) -> None:
    health(ConsumerReady("fan", "arn", registered=False))
    health(LeasesCounted({"held": 1}, 1))


def test_not_ready_before_the_consumer_and_the_leases_are(health):
    assert len(health.problems()) == 2
    health(ConsumerReady("fan", "arn", registered=False))
    assert health.problems() == ("the leases were not read yet",)
    health(LeasesCounted({}, 0))
    assert health.problems() == ()


def test_leases_that_are_not_read_any_more(health, clock):
    make_ready(health)
    clock.now = 30
    assert health.problems() == ()
    health(LeaseStoreCalled("renew", "s-0", 0.1, "lease_store_unavailable"))
    clock.now = 31
    assert health.problems() == ("the leases were last read 31 s ago: lease_store_unavailable",)
    health(LeasesCounted({}, 0))
    assert health.problems() == ()


def test_losing_a_lease_is_no_fault_of_the_store(health, clock):
    make_ready(health)
    health(LeaseStoreCalled("renew", "s-0", 0.1, "lease_lost"))
    clock.now = 31
    assert health.problems() == ("the leases were last read 31 s ago",)


def test_draining(health):
    make_ready(health)
    health.start_draining()
    assert health.problems() == ("draining",)
