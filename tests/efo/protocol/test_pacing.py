"""When subscribes are granted (rule R6): the intervals, the budget, the order, and that no request starves."""

import itertools

import pytest
from hypothesis import given, strategies as st

from efo.protocol.pacing import RENEWAL_OVERDUE_AFTER, SHARD_INTERVAL, TAKE_OVER_AFTER, Pacer


def make_pacer(budget=1000.0, *, firsts=(), renewals=(), at=0.0):
    result = Pacer(budget)
    for shard_id in renewals:
        result.request(shard_id, at, renewal=True)
    for shard_id in firsts:
        result.request(shard_id, at, renewal=False)
    return result


class TestShardIntervals:
    def test_a_shard_subscribes_once_per_second(self):
        pacer = make_pacer(firsts=["a"])
        assert pacer.poll(10.0) == (["a"], None)
        pacer.request("a", 10.0, renewal=False)
        assert pacer.poll(10.0) == ([], 10.0 + SHARD_INTERVAL)
        assert pacer.poll(10.99) == ([], 11.0)
        assert pacer.poll(11.0) == (["a"], None)

    def test_a_shard_does_not_subscribe_within_five_seconds_of_a_success(self):
        pacer = make_pacer(firsts=["a"])
        pacer.poll(0.0)
        pacer.succeeded("a", 0.5)
        pacer.request("a", 0.5, renewal=True)
        assert pacer.poll(1.0) == ([], 0.5 + TAKE_OVER_AFTER)
        assert pacer.poll(5.5) == (["a"], None)

    def test_shards_do_not_wait_for_each_other(self):
        pacer = make_pacer(firsts=["a"])
        pacer.poll(0.0)
        pacer.request("a", 0.0, renewal=False)
        pacer.request("b", 0.0, renewal=False)
        assert pacer.poll(0.0) == (["b"], 1.0)


class TestBudget:
    def test_at_most_the_budget_is_granted_in_one_second(self):
        pacer = make_pacer(2.0, firsts="abcde")
        assert pacer.poll(0.0) == (["a", "b"], 1.0)
        assert pacer.poll(0.5) == ([], 1.0)
        assert pacer.poll(1.0) == (["c", "d"], 2.0)
        assert pacer.poll(2.0) == (["e"], None)

    def test_a_budget_below_one_per_second_is_one_subscribe_per_longer_period(self):
        pacer = make_pacer(0.1, firsts="ab")
        assert pacer.poll(0.0) == (["a"], 10.0)
        assert pacer.poll(10.0) == (["b"], None)

    def test_requests_are_granted_in_their_order(self):
        assert make_pacer(3.0, firsts="cab").poll(0.0)[0] == ["c", "a", "b"]

    @pytest.mark.parametrize("budget", [0.0, -1.0, float("nan"), float("inf")])
    def test_a_budget_that_is_not_positive_and_finite_is_rejected(self, budget):
        with pytest.raises(ValueError, match="positive"):
            Pacer(budget)


class TestOrder:
    def test_shards_without_a_subscription_are_granted_before_renewals(self):
        assert make_pacer(2.0, renewals="ab", firsts="cd").poll(0.0)[0] == ["c", "d"]

    def test_an_overdue_renewal_is_granted_before_a_shard_without_a_subscription(self):
        pacer = make_pacer(1.0, renewals=["old"])
        pacer.request("new", RENEWAL_OVERDUE_AFTER, renewal=False)
        assert pacer.poll(RENEWAL_OVERDUE_AFTER)[0] == ["old"]

    def test_a_renewal_that_is_not_overdue_waits_for_shards_without_a_subscription(self):
        pacer = make_pacer(1.0, renewals=["old"])
        pacer.request("new", 0.0, renewal=False)
        assert pacer.poll(RENEWAL_OVERDUE_AFTER - 0.01)[0] == ["new"]

    def test_four_overdue_renewals_are_granted_for_each_shard_without_a_subscription(self):
        pacer = make_pacer(2.0, renewals="123456")
        now = RENEWAL_OVERDUE_AFTER
        for shard_id in "abc":
            pacer.request(shard_id, 0.0, renewal=False)
        pacer.request("young", now, renewal=True)
        grants = []
        while True:
            granted, again_at = pacer.poll(now)
            grants += granted
            if again_at is None:
                break
            now = again_at
        assert grants == [*"1234", "a", *"56", *"bc", "young"]


def test_a_withdrawn_request_is_not_granted():
    pacer = make_pacer(firsts="ab")
    pacer.withdraw("a")
    pacer.withdraw("never requested")
    assert pacer.poll(0.0) == (["b"], None)


def test_a_repeated_request_is_granted_once_in_the_place_of_the_last():
    pacer = make_pacer(firsts="aba")
    assert pacer.poll(0.0) == (["b", "a"], None)


def test_shards_that_are_not_read_any_more_use_no_memory():
    pacer = Pacer(1000.0)
    for second in range(100):
        pacer.request(f"shard {second}", float(second), renewal=False)
        pacer.poll(float(second))
        pacer.succeeded(f"shard {second}", float(second))
        assert len(pacer._not_before) <= TAKE_OVER_AFTER + 1


def test_without_requests_nothing_is_granted():
    assert Pacer(1.0).poll(0.0) == ([], None)


shards = st.sampled_from("abcdefgh")
steps = st.one_of(
    st.tuples(st.just("first"), shards),
    st.tuples(st.just("renewal"), shards),
    st.tuples(st.just("succeeded"), shards),
    st.tuples(st.just("withdraw"), shards),
    st.tuples(st.just("wait"), st.floats(0.001, 8.0)),
    st.tuples(st.just("poll"), st.none()),
)
budgets = st.sampled_from([0.3, 1.0, 1.5, 2.0, 7.0, 20.0])


class Schedule:
    """A pacer, its requests, and its grants."""

    def __init__(self, budget, now):
        self.budget = budget
        self.now = now
        self.pacer = Pacer(budget)
        self.waiting = set()
        self.grants = []
        self.successes = {}

    def do(self, step, argument):
        match step:
            case "first" | "renewal":
                self.pacer.request(argument, self.now, renewal=step == "renewal")
                self.waiting.add(argument)
            case "succeeded":
                self.pacer.succeeded(argument, self.now)
                self.successes[argument] = self.now
            case "withdraw":
                self.pacer.withdraw(argument)
                self.waiting.discard(argument)
            case "wait":
                self.now += argument
            case "poll":
                self.poll()

    def poll(self):
        granted, again_at = self.pacer.poll(self.now)
        assert self.waiting.issuperset(granted)
        self.waiting.difference_update(granted)
        self.grants += ((shard_id, self.now) for shard_id in granted)
        for shard_id in granted:
            assert self.now - self.successes.get(shard_id, float("-inf")) >= TAKE_OVER_AFTER - 1e-6
        assert (again_at is None) == (not self.waiting)
        # Another poll at the same time must grant nothing and return a later time. Otherwise the caller spins.
        assert self.pacer.poll(self.now) == ([], again_at)
        assert again_at is None or again_at > self.now
        return again_at

    def finish(self):
        """Poll at the returned times until no request waits."""
        for _ in range(50):
            again_at = self.poll()
            if again_at is None:
                return
            self.now = again_at
        raise AssertionError("the pacer keeps returning a next time and grants nothing")


@given(budgets, st.floats(0, 1e6), st.lists(steps, max_size=60))
def test_the_intervals_and_the_budget_hold_for_any_schedule(budget, now, steps_to_do):
    schedule = Schedule(budget, now)
    for step, argument in steps_to_do:
        schedule.do(step, argument)
    schedule.finish()
    for shard_id in "abcdefgh":
        times = [at for shard, at in schedule.grants if shard == shard_id]
        assert all(later - earlier >= SHARD_INTERVAL - 1e-6 for earlier, later in itertools.pairwise(times))
    limit = max(1, int(budget))
    times = [at for _, at in schedule.grants]
    assert all(later - earlier >= limit / budget - 1e-6 for earlier, later in zip(times, times[limit:], strict=False))


@given(st.lists(st.integers(0, 30), max_size=40), st.integers(1, 4), st.integers(1, 12))
def test_a_renewal_is_granted_however_many_new_shards_arrive(arrivals, budget, new_shards):
    pacer = make_pacer(float(budget), firsts=(f"early {n}" for n in range(new_shards)), renewals=["renewal"])
    second, granted = 0, []
    while "renewal" not in granted:
        # New shards without a subscription arrive every second.
        for n in range(new_shards + arrivals.count(second)):
            pacer.request(f"{second}/{n}", float(second), renewal=False)
        granted += pacer.poll(float(second))[0]
        second += 1
        assert second <= RENEWAL_OVERDUE_AFTER + 2
