"""The decision about a failed handler call (rule R11): every action of the policy, and its limits."""

from functools import partial
from math import inf

import pytest
from hypothesis import assume, given, strategies as st

from efo.errors import ConfigurationError
from efo.protocol.failure import Decision, FailurePolicy, decide, strictest


async def store(_letter):
    """Store a dead letter."""


def policy_of(then, **options):
    """Return a policy with this final action, and with what it needs."""
    return FailurePolicy(then=then, dead_letter=store if then == "dead_letter" else None, **options)


def decide_after(policy, failures=1, elapsed=0.0, records=1, *, is_half=False, random=lambda: 1.0):
    return decide(policy, failures=failures, elapsed=elapsed, records=records, is_half=is_half, random=random)


@pytest.mark.parametrize("then", ["stop", "isolate", "skip", "dead_letter"])
def test_by_default_the_final_action_follows_the_first_failure(then):
    assert decide_after(policy_of(then)) == Decision(then)


def test_the_default_policy_stops_the_consumer_at_once():
    assert decide_after(FailurePolicy()) == Decision("stop", 0.0)


def test_the_defaults_are_those_that_the_documentation_promises():
    assert FailurePolicy() == FailurePolicy(
        attempts=1, retry_for=inf, backoff=0.2, backoff_limit=30, then="stop", cooldown=60, dead_letter=None
    )


@pytest.mark.parametrize(
    ("failures", "delay"),
    [(1, 0.2), (2, 0.4), (3, 0.8), (4, 1.0), (5, 1.0)],
)
def test_the_backoff_doubles_with_each_retry_up_to_its_limit(failures, delay):
    policy = FailurePolicy(attempts=6, backoff=0.2, backoff_limit=1.0)
    assert decide_after(policy, failures) == Decision("retry", delay)
    assert decide_after(policy, failures, random=lambda: 0.0) == Decision("retry", 0.0)


def test_attempts_include_the_first_call():
    policy = FailurePolicy(attempts=3, then="skip")
    assert [decide_after(policy, n).action for n in (1, 2, 3)] == ["retry", "retry", "skip"]


def test_retry_for_limits_the_time_and_the_last_retry_is_at_its_end():
    policy = FailurePolicy(attempts=None, retry_for=10, backoff=8, then="isolate")
    assert decide_after(policy, 1) == Decision("retry", 8)
    assert decide_after(policy, 2, elapsed=8) == Decision("retry", 2)
    assert decide_after(policy, 3, elapsed=10) == Decision("isolate")


@pytest.mark.parametrize("then", ["skip", "dead_letter"])
def test_a_batch_is_split_before_records_are_skipped_or_dead_lettered(then):
    policy = policy_of(then, attempts=2)
    assert [decide_after(policy, n, records=5).action for n in (1, 2)] == ["retry", "split"]


def test_a_half_is_tried_once_and_a_single_record_gets_all_attempts():
    policy = FailurePolicy(attempts=3, then="skip")
    assert decide_after(policy, 1, records=2, is_half=True).action == "split"
    assert [decide_after(policy, n, is_half=True).action for n in (1, 2, 3)] == ["retry", "retry", "skip"]


@pytest.mark.parametrize(
    "arguments",
    [
        {"attempts": 0},
        {"attempts": None},
        {"then": "ignore"},
        {"retry_for": -1, "attempts": None},
        {"backoff": float("nan")},
        {"backoff_limit": -0.1},
        {"cooldown": -1},
        {"cooldown": "soon"},
        {"attempts": 2.5},
        {"attempts": True},
        {"then": ["skip"]},
        {"retry_for": 60},
        {"dead_letter": store},
        {"then": "dead_letter"},
    ],
)
def test_an_invalid_policy_is_rejected(arguments):
    with pytest.raises(ConfigurationError, match=str(next(iter(arguments)))):
        FailurePolicy(**arguments)


@given(
    attempts=st.one_of(st.none(), st.integers(1, 8)),
    retry_for=st.floats(0, 100),
    then=st.sampled_from(["stop", "isolate", "skip", "dead_letter"]),
    randoms=st.lists(st.floats(0.01, 1), min_size=1),
)
def test_retries_end_with_the_final_action(attempts, retry_for, then, randoms):
    assume(attempts != 1)  # no retries
    policy = policy_of(then, attempts=attempts, retry_for=retry_for, backoff=1.0)
    failures, elapsed = 0, 0.0
    while True:
        failures += 1
        drawn = randoms[failures % len(randoms)]
        decision = decide_after(policy, failures, elapsed, random=partial(float, drawn))
        if decision.action != "retry":
            break
        assert 0 <= decision.delay <= policy.backoff_limit
        elapsed += decision.delay
        assert elapsed <= retry_for * 1.0000001
    assert decision.action == then
    assert attempts is None or failures <= attempts


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        ([("skip", 1), ("dead_letter", 1), ("isolate", 1), ("stop", 1)], ("stop", 1)),
        ([("isolate", 1), ("dead_letter", 1), ("skip", 1)], ("isolate", 1)),
        ([("skip", 1), ("dead_letter", 9)], ("dead_letter", 9)),
        ([("skip", 5), ("skip", 2), ("skip", 3)], ("skip", 2)),
        ([("stop", None), ("stop", 8)], ("stop", 8)),
        ([("stop", 8), ("stop", None)], ("stop", 8)),
    ],
)
def test_the_strictest_policy_gives_up_least_and_then_tries_least(policies, expected):
    found = strictest(policy_of(then, attempts=n, retry_for=60 if n != 1 else float("inf")) for then, n in policies)
    assert (found.then, found.attempts) == expected
