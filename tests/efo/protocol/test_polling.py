"""The state machine of polling: iterators, pages, pace, failures, and the end of a shard."""

import random

import pytest
from hypothesis import given, strategies as st

from efo.errors import (
    AccessDeniedError,
    ExpiredIteratorError,
    InternalFailureError,
    ProtocolError,
    ServiceError,
    ShardGoneError,
    ThrottledError,
    TransportError,
)
from efo.model import ChildShard, HashKeyRange, Position, Record
from efo.protocol.polling import (
    BYTES_PER_SECOND,
    ITERATOR_LIFE,
    MAX_SLOWDOWN,
    MIN_INTERVAL,
    GetIterator,
    Poll,
    Polling,
    RecordsPage,
)
from efo.protocol.subscription import Deliver, Fail, Finish

START = Position.trim_horizon()
CHILDREN = (ChildShard("s-1", ("s-0",), HashKeyRange("0", "9")),)
EXPIRED = ExpiredIteratorError("ExpiredIteratorException", "old")
THROTTLED = ThrottledError("ProvisionedThroughputExceededException", "slow down")


def record(number, size=0):
    return Record(str(number), 1.0, b"x" * size, "")


def page(*numbers, behind=0, iterator="next", size=0, children=None):
    return RecordsPage(tuple(record(number, size) for number in numbers), iterator, behind, children)


def machine(position=START, *, interval=1.0, draw=1.0, started=True):
    polling = Polling(position, lambda: draw, interval=interval)
    if started:
        polling.started("first", 0.0)
    return polling


def delivered(actions):
    return [
        int(record.sequence_number)
        for action in actions
        if isinstance(action, Deliver)
        for record in action.event.records
    ]


def test_the_first_call_gets_an_iterator_at_the_position_and_the_next_one_reads():
    polling = machine(Position.at("7"), started=False)
    assert polling.due < 0
    assert polling.next_call(0.0) == GetIterator(Position.at("7"))
    polling.started("first", 0.0)
    assert polling.next_call(0.1) == Poll("first")
    polling.received(page(7), 100, 0.1)
    assert polling.next_call(1.0) == Poll("next")


def test_an_event_has_the_last_record_as_its_continuation():
    (deliver,) = machine().received(page(7, 8, behind=40), 123, 0.0)
    assert (deliver.event.continuation_sequence_number, deliver.event.millis_behind_latest) == ("8", 40)
    assert deliver.wire_bytes == 123


def test_a_page_that_does_not_say_how_far_it_is_behind_is_current():
    polling = machine()
    (deliver,) = polling.received(page(behind=None), 10, 0.0)
    assert deliver.event.millis_behind_latest == 0
    polling.received(page(behind=None), 10, 1.0)
    assert polling.due - 1.0 == 0.5


@pytest.mark.parametrize("position", [START, Position.at_timestamp(5.0), Position.at("5")])
def test_a_page_without_records_moves_no_position_before_the_first_record(position):
    polling = machine(position)
    (deliver,) = polling.received(page(), 10, 0.0)
    assert deliver.event.continuation_sequence_number == "0"
    assert polling.position == position


def test_a_page_without_records_has_the_last_record_as_its_continuation_after_one():
    polling = machine()
    polling.received(page(7), 10, 0.0)
    (deliver,) = polling.received(page(), 10, 1.0)
    assert deliver.event.continuation_sequence_number == "7"
    assert polling.position == Position.after("7")


def test_records_that_were_delivered_are_removed():
    polling = machine(Position.after("6"))
    assert delivered(polling.received(page(5, 6, 7), 10, 0.0)) == [7]
    assert delivered(polling.received(page(6, 7), 10, 1.0)) == []
    assert delivered(polling.received(page(7, 8), 10, 2.0)) == [8]


def test_the_end_of_the_shard_is_delivered_after_its_last_records():
    polling = machine()
    deliver, finish = polling.received(page(7, iterator=None, children=CHILDREN), 10, 0.0)
    assert (deliver.event.continuation_sequence_number, deliver.event.child_shards) == (None, CHILDREN)
    assert delivered([deliver]) == [7]
    assert finish == Finish(CHILDREN)
    assert polling.state == "ended"


# --- the pace --------------------------------------------------------------------------------------------


def test_a_shard_that_is_behind_is_read_at_the_shortest_interval_even_if_pages_are_empty():
    polling = machine()
    for now in range(10):
        polling.received(page(behind=1000), 10, float(now))
        assert polling.due == now + MIN_INTERVAL


def test_a_shard_that_is_current_is_read_less_and_less_often_up_to_the_interval():
    polling = machine()
    pauses = []
    for now in range(5):
        polling.received(page(), 10, float(now))
        pauses.append(polling.due - now)
    assert pauses == [0.25, 0.5, 1.0, 1.0, 1.0]


def test_records_shorten_the_interval_by_half():
    polling = machine(interval=4.0)
    for now in range(6):
        polling.received(page(), 10, float(now))
    pauses = []
    for now in range(10, 16):
        polling.received(page(now), 10, float(now))
        pauses.append(polling.due - now)
    assert pauses == [2.0, 1.0, 0.5, 0.25, 0.25, 0.25]


def test_a_large_page_is_followed_by_the_pause_that_its_bytes_need():
    polling = machine()
    polling.received(page(1, 2, size=2 * 2**20, behind=5), 10, 0.0)
    assert polling.due == 2.0


def test_the_bytes_of_a_page_are_those_of_data_and_keys():
    polling = machine()
    keyed = Record("1", 1.0, b"x" * BYTES_PER_SECOND, "k" * BYTES_PER_SECOND)
    polling.received(RecordsPage((keyed,), "next", 5, None), 10, 0.0)
    assert polling.due == 2.0


@pytest.mark.parametrize(("failures", "pace"), [(1, 0.4), (2, 0.8), (4, 3.2), (9, 3.2)])
def test_throttling_halves_the_pace_and_a_page_raises_it_by_a_quarter(failures, pace):
    polling = machine()
    for _ in range(failures):
        polling.failed(THROTTLED, 0.0)
    polling.received(page(1, behind=5), 10, 100.0)
    assert polling.due - 100.0 == pytest.approx(pace)


def test_throttling_slows_down_to_a_limit_and_pages_recover():
    polling = machine()
    now = 0.0
    for _ in range(10):
        polling.failed(THROTTLED, now)
        assert now + MIN_INTERVAL <= polling.due <= now + 10  # QUIET_AFTER: longer would look like an outage
        now = polling.due
    polling.received(page(1, behind=5), 10, now)
    slow = polling.due - now
    assert MIN_INTERVAL < slow <= MIN_INTERVAL * MAX_SLOWDOWN
    for n in range(2, 30):
        now = polling.due
        polling.received(page(n, behind=5), 10, now)
    assert polling.due - now == MIN_INTERVAL


# --- iterators and failures ------------------------------------------------------------------------------


def test_an_expired_iterator_is_replaced_at_once_after_the_last_record():
    polling = machine()
    polling.received(page(7), 10, 0.0)
    assert polling.failed(EXPIRED, 400.0) == []
    assert polling.due == 400.0
    assert polling.next_call(400.0) == GetIterator(Position.after("7"))


def test_iterators_that_expire_at_once_are_not_asked_for_without_a_pause():
    polling = machine()
    polling.received(page(7), 10, 0.0)
    polling.failed(EXPIRED, 400.0)
    polling.started("second", 400.0)
    polling.failed(EXPIRED, 400.0)
    assert polling.due >= 400.0 + MIN_INTERVAL
    assert polling.next_call(polling.due) == GetIterator(Position.after("7"))


def test_an_iterator_that_must_have_expired_is_not_used():
    polling = machine()
    polling.received(page(7), 10, 10.0)
    assert polling.next_call(10.0 + ITERATOR_LIFE - 1) == Poll("next")
    assert polling.next_call(10.0 + ITERATOR_LIFE) == GetIterator(Position.after("7"))


@pytest.mark.parametrize("error", [TransportError("cut"), InternalFailureError("InternalFailure", ""), THROTTLED])
def test_a_call_that_failed_is_repeated_with_the_same_iterator_after_a_growing_pause(error):
    polling = machine()
    pauses = []
    for now in range(0, 100, 20):
        assert polling.failed(error, float(now)) == []
        assert polling.state == "waiting"
        assert polling.next_call(float(now)) == Poll("first")
        pauses.append(polling.due - now)
    assert pauses == [0.75, 1.25, 2.25, 4.25, 8.25]
    polling.received(page(1), 10, 100.0)
    assert polling.state == "live"
    polling.failed(error, 200.0)
    assert polling.due - 200.0 == pauses[0]


@pytest.mark.parametrize("error", [ServiceError("NeverSeenBefore", "", status=400), ProtocolError("no JSON")])
def test_after_an_odd_answer_another_iterator_is_used_since_it_may_be_what_is_refused(error):
    polling = machine()
    polling.received(page(7), 10, 0.0)
    assert polling.failed(error, 1.0) == []
    assert polling.next_call(2.0) == GetIterator(Position.after("7"))


@pytest.mark.parametrize("error", [AccessDeniedError("AccessDeniedException", ""), ShardGoneError("gone")])
def test_an_error_that_repeating_cannot_cure_is_final(error):
    polling = machine()
    assert polling.failed(error, 0.0) == [Fail(error)]
    assert polling.state == "failed"


# --- every history ---------------------------------------------------------------------------------------


class Service:
    """A shard of some records, with the limits of AWS. Iterators are indexes and the time of their making."""

    def __init__(self, count):
        self.numbers = list(range(100, 100 + 3 * count, 3))
        self.calls = []

    def index(self, position):
        if position.sequence_number is None:
            return 0
        return sum(number <= int(position.sequence_number) for number in self.numbers)

    def get_records(self, iterator, now, limit):
        index, at = map(float, iterator.split())
        self.calls.append(now)
        assert sum(now - 1 < call <= now for call in self.calls) <= 5, "more than five calls in a second"
        if now - at > 300:
            return EXPIRED
        read = self.numbers[int(index) : int(index) + limit]
        end = int(index) + len(read)
        if end == len(self.numbers):
            return page(*read, iterator=None, children=CHILDREN)
        return page(*read, iterator=f"{end} {now}", behind=1000)


@given(st.integers(0, 30), st.integers(0, 2**32), st.lists(st.sampled_from(["ok", "fail", "sleep", "restart"])))
def test_every_record_is_delivered_once_and_in_order_whatever_happens(count, seed, faults):
    service, rng, faults = Service(count), random.Random(seed), list(faults)
    polling = machine(draw=0.5, started=False)
    read, now = [], 0.0
    while polling.state != "ended":
        now = max(now + rng.random() / 10, polling.due)
        match faults.pop(0) if faults else "ok":
            case "fail":
                polling.failed(rng.choice([TransportError("cut"), THROTTLED]), now)
                continue
            case "sleep":
                now += rng.choice([250, 400])
            case "restart":
                polling = Polling(polling.position, lambda: 0.5, interval=1.0)
                now += 1  # a new process: the limits do not know it
        call = polling.next_call(now)
        if isinstance(call, GetIterator):
            polling.started(f"{service.index(call.position)} {now}", now)
            continue
        result = service.get_records(call.iterator, now, rng.randint(1, 4))
        read += delivered(
            polling.received(result, 1, now) if isinstance(result, RecordsPage) else polling.failed(result, now)
        )
    assert read == service.numbers
