from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from efo.errors import (
    ClockSkewError,
    CredentialsError,
    ExpiredCredentialsError,
    RejectedCredentialsError,
    ThrottledError,
)
from efo.protocol.backoff import Backoff, backoff


def test_the_upper_bound_doubles_up_to_the_limit():
    waits = Backoff(lambda: 1.0, initial=0.5, limit=30.0)
    assert [waits.next() for _ in range(9)] == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]


def test_full_jitter_reaches_down_to_zero():
    waits = Backoff(lambda: 0.0)
    assert [waits.next() for _ in range(4)] == [0.0] * 4


def test_a_part_of_the_wait_can_be_random():
    lowest = Backoff(lambda: 0.0, initial=2.0, limit=6.0, jitter=0.25)
    highest = Backoff(lambda: 1.0, initial=2.0, limit=6.0, jitter=0.25)
    assert [lowest.next() for _ in range(3)] == [1.5, 3.0, 4.5]
    assert [highest.next() for _ in range(3)] == [2.0, 4.0, 6.0]


@pytest.mark.parametrize("options", [{}, {"random": lambda: 0.3, "jitter": 0.0}])
def test_without_jitter_the_waits_are_the_upper_bounds(options):
    waits = Backoff(initial=1.0, limit=5.0, **options)
    assert [waits.next() for _ in range(4)] == [1.0, 2.0, 4.0, 5.0]


def test_a_reset_restarts_with_the_initial_wait():
    waits = Backoff(lambda: 1.0)
    waits.next()
    waits.next()
    waits.reset()
    assert waits.next() == 0.5


@pytest.mark.parametrize(
    "error",
    [
        CredentialsError(""),
        ExpiredCredentialsError("ExpiredTokenException", ""),
        RejectedCredentialsError("UnrecognizedClientException", ""),
        ClockSkewError("InvalidSignatureException", ""),
    ],
)
@pytest.mark.parametrize(("random", "wait"), [(lambda: 0.0, 0.5), (lambda: 0.5, 0.75), (lambda: 1.0, 1.0), (None, 1.0)])
def test_the_wait_for_credentials_is_half_a_second_to_one_and_does_not_grow(error, random, wait):
    waits = Backoff(random, initial=4.0)
    assert [waits.next(error) for _ in range(3)] == [wait] * 3


def test_the_wait_for_credentials_is_no_failure():
    waits = Backoff(initial=0.5)
    errors = [None, CredentialsError(""), ThrottledError("LimitExceededException", "")]
    assert [waits.next(error) for error in errors] == [0.5, 1.0, 1.0]


def test_many_failures_do_not_overflow():
    waits = Backoff(lambda: 1.0, limit=60.0)
    assert [waits.next() for _ in range(5000)][-1] == 60.0


@given(st.floats(0, 1), st.integers(0, 40), st.floats(0, 1))
def test_every_wait_is_between_its_bounds(random, failures, jitter):
    waits = Backoff(lambda: random, jitter=jitter)
    for _ in range(failures):
        waits.next()
    ceiling = min(30.0, 0.5 * 2.0**failures)
    assert ceiling * (1 - jitter) * 0.999 <= waits.next() <= ceiling * 1.001


@given(st.integers(1, 200), st.floats(0, 1))
def test_the_waits_of_an_object_are_those_of_the_function(failures, random):
    waits = Backoff(lambda: random, initial=0.1, limit=9.0, jitter=0.5)
    last = [waits.next() for _ in range(failures)][-1]
    assert last == backoff(failures, initial=0.1, limit=9.0, random=lambda: random, jitter=0.5)
