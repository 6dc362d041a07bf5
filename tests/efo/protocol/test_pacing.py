"""When subscribes are granted (rule R6): intervals, the budget, who goes first, and that nobody starves."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from efo.protocol.pacing import RENEWAL_PATIENCE, SHARD_INTERVAL, TAKE_OVER_AFTER, Backoff, Pacer


def pacer(budget=1000.0, *, firsts=(), renewals=(), at=0.0):
    made = Pacer(budget)
    for shard_id in renewals:
        made.request(shard_id, at, renewal=True)
    for shard_id in firsts:
        made.request(shard_id, at, renewal=False)
    return made


class TestShardIntervals:
    def test_a_shard_subscribes_once_per_second(self):
        pace = pacer(firsts=["a"])
        assert pace.poll(10.0) == (["a"], None)
        pace.request("a", 10.0, renewal=False)
        assert pace.poll(10.0) == ([], 10.0 + SHARD_INTERVAL)
        assert pace.poll(10.99) == ([], 11.0)
        assert pace.poll(11.0) == (["a"], None)

    def test_and_not_within_five_seconds_of_a_success(self):
        pace = pacer(firsts=["a"])
        pace.poll(0.0)
        pace.succeeded("a", 0.5)
        pace.request("a", 0.5, renewal=True)
        assert pace.poll(1.0) == ([], 0.5 + TAKE_OVER_AFTER)
        assert pace.poll(5.5) == (["a"], None)

    def test_shards_do_not_wait_for_each_other(self):
        pace = pacer(firsts=["a"])
        pace.poll(0.0)
        pace.request("a", 0.0, renewal=False)
        pace.request("b", 0.0, renewal=False)
        assert pace.poll(0.0) == (["b"], 1.0)


class TestBudget:
    def test_no_more_at_once_than_the_budget(self):
        pace = pacer(2.0, firsts="abcde")
        assert pace.poll(0.0) == (["a", "b"], 1.0)
        assert pace.poll(0.5) == ([], 1.0)
        assert pace.poll(1.0) == (["c", "d"], 2.0)
        assert pace.poll(2.0) == (["e"], None)

    def test_below_one_per_second(self):
        pace = pacer(0.1, firsts="ab")
        assert pace.poll(0.0) == (["a"], 10.0)
        assert pace.poll(10.0) == (["b"], None)

    def test_who_came_first_goes_first(self):
        assert pacer(3.0, firsts="cab").poll(0.0)[0] == ["c", "a", "b"]

    @pytest.mark.parametrize("budget", [0.0, -1.0, float("nan"), float("inf")])
    def test_a_budget_that_grants_nothing_is_refused(self, budget):
        with pytest.raises(ValueError, match="positive"):
            Pacer(budget)


class TestOrder:
    def test_shards_without_a_subscription_go_before_renewals(self):
        assert pacer(2.0, renewals="ab", firsts="cd").poll(0.0)[0] == ["c", "d"]

    def test_a_renewal_that_waited_long_goes_with_them(self):
        pace = pacer(1.0, renewals=["old"])
        pace.request("new", RENEWAL_PATIENCE, renewal=False)
        assert pace.poll(RENEWAL_PATIENCE)[0] == ["old"]

    def test_but_not_before(self):
        pace = pacer(1.0, renewals=["old"])
        pace.request("new", 0.0, renewal=False)
        assert pace.poll(RENEWAL_PATIENCE - 0.01)[0] == ["new"]

    def test_four_renewals_that_waited_long_go_for_each_of_the_others(self):
        pace = pacer(2.0, renewals="123456")
        now = RENEWAL_PATIENCE
        for shard_id in "abc":
            pace.request(shard_id, 0.0, renewal=False)
        pace.request("young", now, renewal=True)
        grants = []
        while True:
            granted, again_at = pace.poll(now)
            grants += granted
            if again_at is None:
                break
            now = again_at
        assert grants == [*"1234", "a", *"56", *"bc", "young"]


def test_a_withdrawn_request_is_not_granted():
    pace = pacer(firsts="ab")
    pace.withdraw("a")
    pace.withdraw("never asked")
    assert pace.poll(0.0) == (["b"], None)


def test_a_repeated_request_is_granted_once():
    pace = pacer(firsts="aa")
    assert pace.poll(0.0) == (["a"], None)


def test_shards_that_went_away_leave_nothing_behind():
    pace = Pacer(1000.0)
    for second in range(100):
        pace.request(f"shard {second}", float(second), renewal=False)
        pace.poll(float(second))
        pace.succeeded(f"shard {second}", float(second))
        assert len(pace._not_before) <= TAKE_OVER_AFTER + 1


def test_nothing_to_do():
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
    """A pacer, what was asked of it, and what it granted."""

    def __init__(self, budget, now):
        self.budget = budget
        self.now = now
        self.pace = Pacer(budget)
        self.waiting = set()
        self.grants = []
        self.successes = {}

    def do(self, step, argument):
        match step:
            case "first" | "renewal":
                self.pace.request(argument, self.now, renewal=step == "renewal")
                self.waiting.add(argument)
            case "succeeded":
                self.pace.succeeded(argument, self.now)
                self.successes[argument] = self.now
            case "withdraw":
                self.pace.withdraw(argument)
                self.waiting.discard(argument)
            case "wait":
                self.now += argument
            case "poll":
                self.poll()

    def poll(self):
        granted, again_at = self.pace.poll(self.now)
        assert self.waiting.issuperset(granted)
        self.waiting.difference_update(granted)
        self.grants += ((shard_id, self.now) for shard_id in granted)
        for shard_id in granted:
            assert self.now - self.successes.get(shard_id, float("-inf")) >= TAKE_OVER_AFTER - 1e-6
        assert (again_at is None) == (not self.waiting)
        # Called at this very time again it must grant nothing, and ask for a later one: else its caller spins.
        assert self.pace.poll(self.now) == ([], again_at)
        assert again_at is None or again_at > self.now
        return again_at

    def finish(self):
        """Poll exactly when it asks for it, until nobody waits."""
        for _ in range(50):
            again_at = self.poll()
            if again_at is None:
                return
            self.now = again_at
        raise AssertionError("it asks again and again and grants nothing")


@given(budgets, st.floats(0, 1e6), st.lists(steps, max_size=60))
def test_the_rules_hold_under_any_schedule(budget, now, steps_to_do):
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
def test_a_renewal_is_granted_however_many_shards_keep_coming(arrivals, budget, crowd):
    pace = pacer(float(budget), firsts=(f"early {n}" for n in range(crowd)), renewals=["renewal"])
    second, granted = 0, []
    while "renewal" not in granted:
        # A crowd of shards that never subscribed arrives all the time.
        for n in range(crowd + arrivals.count(second)):
            pace.request(f"{second}/{n}", float(second), renewal=False)
        granted += pace.poll(float(second))[0]
        second += 1
        assert second <= RENEWAL_PATIENCE + 2


class TestBackoff:
    def test_the_ceiling_doubles_up_to_the_most(self):
        backoff = Backoff(lambda: 1.0, first=0.5, most=30.0)
        assert [backoff.next() for _ in range(9)] == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]

    def test_full_jitter_reaches_down_to_nothing(self):
        backoff = Backoff(lambda: 0.0)
        assert [backoff.next() for _ in range(4)] == [0.0] * 4

    def test_something_that_worked_starts_it_over(self):
        backoff = Backoff(lambda: 1.0)
        backoff.next()
        backoff.next()
        backoff.reset()
        assert backoff.next() == 0.5

    def test_it_never_overflows(self):
        backoff = Backoff(lambda: 1.0, most=60.0)
        assert [backoff.next() for _ in range(5000)][-1] == 60.0

    @given(st.floats(0, 1), st.integers(0, 40))
    def test_bounds(self, random, failures):
        backoff = Backoff(lambda: random)
        for _ in range(failures):
            backoff.next()
        assert 0 <= backoff.next() <= 30.0
