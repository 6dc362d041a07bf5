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


def test_the_service_is_ready_after_the_consumer_is_ready_and_the_leases_are_read(health):
    assert len(health.problems()) == 2
    health(ConsumerReady("fan", "arn", registered=False))
    assert health.problems() == ("the leases have not been read yet",)
    health(LeasesCounted({}, 0))
    assert health.problems() == ()


def test_the_service_is_not_ready_while_the_leases_are_stale(health, clock):
    make_ready(health)
    clock.now = 30
    assert health.problems() == ()
    health(LeaseStoreCalled("renew", "s-0", 0.1, "lease_store_unavailable"))
    clock.now = 31
    assert health.problems() == ("the leases were last read 31 s ago: lease_store_unavailable",)
    health(LeasesCounted({}, 0))
    assert health.problems() == ()


def test_a_lost_lease_is_not_reported_as_an_error_of_the_store(health, clock):
    make_ready(health)
    health(LeaseStoreCalled("renew", "s-0", 0.1, "lease_lost"))
    clock.now = 31
    assert health.problems() == ("the leases were last read 31 s ago",)


def test_a_draining_service_is_not_ready(health):
    make_ready(health)
    health.start_draining()
    assert health.problems() == ("draining",)
