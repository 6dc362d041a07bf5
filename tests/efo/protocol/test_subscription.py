"""The subscription of one shard: all transitions, the delivered events, and when the next attempt is due."""

import pytest

from efo.errors import (
    AccessDeniedError,
    ConfigurationError,
    GoAwayError,
    OrderError,
    ResourceInUseError,
    ShardGoneError,
    SilenceError,
    TransportError,
)
from efo.model import ChildShard, HashKeyRange, Position, Record
from efo.protocol.messages import SubscribeToShardEvent
from efo.protocol.subscription import (
    TRANSITIONS,
    Cancel,
    Closed,
    DataArrived,
    Deliver,
    Fail,
    Finish,
    GoAwayReceived,
    Received,
    Signal,
    State,
    Subscribe,
    Subscription,
    SubscriptionTiming,
)

START = Position.trim_horizon()
CHILDREN = (ChildShard("child", ("parent",), HashKeyRange("0", "1")),)
BROKEN = TransportError("broke")
IN_USE = ResourceInUseError("ResourceInUseException", "wait")
DENIED = AccessDeniedError("AccessDeniedException", "no")


def event(*numbers, continuation=None):
    """Return an event with records of these sequence numbers. The continuation defaults to the last one."""
    records = tuple(Record(str(number), 0.0, b"", "k") for number in numbers)
    return SubscribeToShardEvent(records, 0, str(numbers[-1] if continuation is None else continuation))


def last_event(*numbers):
    return SubscribeToShardEvent(event(*numbers, continuation=0).records, 0, None, CHILDREN)


def numbers(delivered):
    return [int(record.sequence_number) for record in delivered.records]


def subscription(position=START, random=0.5, **timing):
    return Subscription(position, lambda: random, timing=SubscriptionTiming(**timing))


def renew(machine):
    """Tick when the next attempt is due, while the owner waits for events."""
    machine.wait_started(machine._due)
    return machine.tick(machine._due)


def in_state(state, position=START, random=0.5):
    """Return a machine in this state at time 0. A live attempt has the number 1, the candidate the highest number."""
    machine = subscription(position, random)
    if state is State.WAITING:
        return machine
    assert machine.tick(0.0) == [Subscribe(1, position, renewal=False)]
    match state:
        case State.LIVE | State.RENEWING:
            machine.handle(Received(1, event(10)), 0.0)
            if state is State.RENEWING:
                renew(machine)
        case State.ENDED:
            machine.handle(Received(1, last_event(10)), 0.0)
        case State.FAILED:
            machine.handle(Closed(1, DENIED), 0.0)
    assert machine.state is state
    return machine


def inputs(machine, signal):
    """Return the inputs that cause this signal, from each possible attempt."""
    live = {State.LIVE: 1, State.RENEWING: 1}.get(machine.state)
    candidate = {State.CONNECTING: 1, State.RENEWING: 2}.get(machine.state)
    either = [attempt for attempt in (live, candidate) if attempt is not None]
    match signal:
        case Signal.CANDIDATE_EVENT:
            return [Received(candidate, event(20))]
        case Signal.LIVE_EVENT:
            return [Received(live, event(20))]
        case Signal.END_EVENT:
            return [Received(attempt, last_event(20)) for attempt in either]
        case Signal.CANDIDATE_CLOSED:
            return [Closed(candidate, error) for error in (None, BROKEN, IN_USE)]
        case Signal.LIVE_CLOSED:
            return [Closed(live, error) for error in (None, BROKEN, IN_USE)]
        case Signal.FATAL:
            return [Closed(attempt, DENIED) for attempt in either]


@pytest.mark.parametrize(("state", "signal"), TRANSITIONS, ids=lambda value: value.name)
def test_each_signal_causes_the_transition_of_the_table(state, signal):
    expected = TRANSITIONS[state, signal]
    if signal is Signal.DUE:
        machine = in_state(state)
        renew(machine)
        assert machine.state is expected
        return
    possible_inputs = inputs(in_state(state), signal)
    assert possible_inputs
    for possible_input in possible_inputs:
        machine = in_state(state)
        machine.handle(possible_input, 1.0)
        assert machine.state is expected


@pytest.mark.parametrize("state", State)
@pytest.mark.scenario("G49")
def test_inputs_of_stale_attempts_have_no_effect(state):
    machine = in_state(state)
    current = {State.CONNECTING: {1}, State.LIVE: {1}, State.RENEWING: {1, 2}}.get(state, set())
    before = (machine.state, machine.position, machine.deadline)
    for attempt in {0, 1, 2, 3, 99} - current:
        for stale in (Received(attempt, event(5, 99)), Received(attempt, last_event()), Closed(attempt, DENIED)):
            assert machine.handle(stale, 1.0) == []
    assert (machine.state, machine.position, machine.deadline) == before


@pytest.mark.parametrize("state", State)
def test_a_tick_before_the_deadline_does_nothing(state):
    machine = in_state(state)
    if machine.deadline > 0:
        assert machine.tick(min(machine.deadline - 0.001, 1e6)) == []
        assert machine.state is state


class TestPositions:
    def test_the_first_attempt_is_due_at_once_and_at_the_start_position(self):
        machine = subscription(Position.at("7"))
        assert machine.deadline <= 0.0
        assert machine.tick(0.0) == [Subscribe(1, Position.at("7"), renewal=False)]

    def test_attempts_before_the_first_event_use_the_start_position(self):
        machine = in_state(State.CONNECTING, Position.latest())
        for attempt in (2, 3):
            machine.handle(Closed(attempt - 1, BROKEN), 0.0)
            assert machine.tick(machine.deadline) == [Subscribe(attempt, Position.latest(), renewal=False)]

    @pytest.mark.parametrize("error", [None, BROKEN, GoAwayError("bye"), IN_USE])
    def test_attempts_after_the_first_event_start_after_the_last_continuation(self, error):
        machine = in_state(State.LIVE)
        machine.handle(Received(1, event(11, continuation=15)), 1.0)
        assert machine.handle(Closed(1, error), 2.0) == []
        assert machine.deadline == 2.0
        assert machine.tick(2.0) == [Subscribe(2, Position.after("15"), renewal=False)]

    @pytest.mark.scenario("G58")
    def test_empty_events_move_the_position(self):
        machine = in_state(State.LIVE)
        [delivered] = machine.handle(Received(1, event(continuation=30)), 1.0)
        assert delivered.event.continuation_sequence_number == "30"
        assert machine.position == Position.after("30")

    @pytest.mark.parametrize(
        ("start", "sent", "delivered_numbers", "position"),
        [
            # Sequence numbers are compared as numbers: "9" is less than "10".
            (Position.after("9"), event(10), [10], Position.after("10")),
            (Position.after("9"), event(continuation=9), [], Position.after("9")),
            # An older continuation of an idle shard does not move the position back.
            (Position.after("9"), event(continuation=0), [], Position.after("9")),
            (Position.at("9"), event(9), [9], Position.after("9")),
            (Position.after("9"), event(8, 9, 10), [10], Position.after("10")),
            # The continuation zero does not move the position.
            (Position.at_timestamp(3.0), event(continuation=0), [], Position.at_timestamp(3.0)),
            (START, event(continuation="000"), [], START),
            # Padded numbers stay padded, because the server may compare them as text.
            (Position.after("0009"), event(continuation="0007"), [], Position.after("0009")),
            (Position.at("0009"), event(continuation="0007"), [], Position.after("0008")),
        ],
    )
    def test_records_before_the_start_position_are_not_delivered(self, start, sent, delivered_numbers, position):
        machine = in_state(State.CONNECTING, start)
        [delivered] = machine.handle(Received(1, sent), 1.0)
        assert numbers(delivered.event) == delivered_numbers
        assert machine.position == position


class TestRenewal:
    def test_a_renewal_is_due_at_a_jittered_age(self):
        for random, due in ((0.0, 240.0), (0.5, 262.5), (1.0, 285.0)):
            assert in_state(State.LIVE, random=random)._due == due

    def test_the_age_counts_from_the_acceptance_of_the_call(self):
        machine = in_state(State.CONNECTING)
        machine.handle(Received(1, event(10), accepted_at=70.0), 100.0)
        assert machine._due == 70.0 + 262.5

    def test_a_live_attempt_is_renewed_at_once_after_goaway(self):
        machine = in_state(State.LIVE)
        machine.wait_started(9.0)
        assert machine.handle(GoAwayReceived(1), 10.0) == []
        assert machine.deadline == 10.0
        assert machine.tick(10.0) == [Subscribe(2, Position.after("10"), renewal=True)]
        sent = event(11)
        assert machine.handle(Received(1, sent), 10.1) == [Deliver(sent, 0)]
        assert machine.handle(Received(2, event(12)), 10.2) == [Cancel(1, "renewed"), Deliver(event(12), 0)]
        assert machine._due == 10.2 + 262.5

    def test_a_candidate_is_renewed_after_goaway_as_soon_as_it_is_live(self):
        machine = in_state(State.RENEWING)
        for leaving in (2, 1):
            assert machine.handle(GoAwayReceived(leaving), 262.5) == []
        machine.handle(Received(2, event(11)), 263.0)
        machine.wait_started(263.0)
        assert machine.tick(263.0) == [Subscribe(3, Position.after("11"), renewal=True)]
        machine.handle(Received(3, event(12)), 264.0)
        assert machine._due == 264.0 + 262.5

    def test_resource_in_use_is_repeated_each_second_anew_after_another_failure(self):
        machine = in_state(State.CONNECTING)
        for number, (error, pause) in enumerate([(IN_USE, 1.0), (BROKEN, 0.25), (IN_USE, 1.0)], start=1):
            machine.handle(Closed(number, error), 10.0 * number)
            assert machine.deadline == 10.0 * number + pause
            machine.tick(machine.deadline)

    def test_a_failed_renewal_backs_off_despite_goaway(self):
        machine = in_state(State.RENEWING)
        machine.handle(GoAwayReceived(1), 262.5)
        machine.handle(Closed(2, IN_USE), 263.0)
        assert machine._due == 268.0

    def test_the_candidate_starts_after_the_last_delivered_event(self):
        machine = in_state(State.LIVE)
        machine.handle(Received(1, event(12)), 1.0)
        assert renew(machine) == [Subscribe(2, Position.after("12"), renewal=True)]

    def test_the_first_event_of_the_candidate_takes_over(self):
        machine = in_state(State.RENEWING)
        sent = event(11)
        assert machine.handle(Received(2, sent, 99), 262.5) == [Cancel(1, "renewed"), Deliver(sent, 99)]
        assert machine._due == 262.5 + 262.5
        assert machine.handle(Received(1, event(11, 12)), 263.0) == []
        assert machine.handle(Closed(1, IN_USE), 263.0) == []

    def test_records_that_the_live_attempt_delivered_are_removed_from_the_candidates_event(self):
        machine = in_state(State.RENEWING)
        machine.handle(Received(1, event(11, 12)), 262.5)
        [_, delivered] = machine.handle(Received(2, event(11, 12, 13)), 262.6)
        assert numbers(delivered.event) == [13]
        assert machine.position == Position.after("13")

    def test_a_candidate_that_is_behind_does_not_move_the_position_back(self):
        machine = in_state(State.RENEWING)
        machine.handle(Received(1, event(11, 12, 13, continuation=14)), 262.5)
        [_, delivered] = machine.handle(Received(2, event(11)), 262.6)
        assert numbers(delivered.event) == []
        assert delivered.event.continuation_sequence_number == "14"
        assert machine.position == Position.after("14")
        [delivered] = machine.handle(Received(2, event(12, 13, 15)), 262.7)
        assert numbers(delivered.event) == [15]

    def test_a_candidate_that_fails_does_not_affect_the_live_attempt(self):
        machine = in_state(State.RENEWING)
        assert machine.handle(Closed(2, BROKEN), 263.0) == []
        machine.wait_started(263.0)
        assert machine.deadline == 263.25
        [delivered] = machine.handle(Received(1, event(11)), 263.1)
        assert numbers(delivered.event) == [11]
        assert machine.tick(263.25) == [Subscribe(3, Position.after("11"), renewal=True)]

    def test_a_renewal_that_fails_repeatedly_backs_off_although_the_live_attempt_delivers(self):
        machine = in_state(State.RENEWING, random=1.0)
        waits = []
        now = machine._due
        for attempt in range(2, 7):
            machine.handle(Closed(attempt, BROKEN), now)
            waits.append(machine._due - now)
            machine.handle(Received(1, event(attempt + 10)), now)
            now = machine._due
            renew(machine)
        assert waits == [0.5, 1.0, 2.0, 4.0, 8.0]

    def test_the_candidate_stays_when_the_live_attempt_closes(self):
        machine = in_state(State.RENEWING)
        assert machine.handle(Closed(1, None), 263.0) == []
        assert machine.deadline == float("inf")
        sent = event(11)
        assert machine.handle(Received(2, sent), 264.0) == [Deliver(sent, 0)]


class TestFailures:
    def test_the_next_attempt_is_due_five_seconds_after_resource_in_use_that_lasts(self):
        machine = in_state(State.CONNECTING, random=0.0)
        machine.handle(Closed(1, IN_USE), 100.0)
        assert machine.deadline == 101.0
        machine.tick(101.0)
        machine.handle(Closed(2, IN_USE), 105.5)
        assert machine.deadline == 110.5

    def test_the_next_renewal_is_due_five_seconds_after_resource_in_use(self):
        machine = in_state(State.RENEWING, random=0.0)
        machine.handle(Closed(2, IN_USE), 250.0)
        assert machine._due == 255.0

    def test_attempts_without_an_event_back_off(self):
        machine = in_state(State.CONNECTING, random=1.0)
        waits, now = [], 0.0
        for attempt in range(1, 10):
            # A clean end without an event is a failure too, despite the 200.
            machine.handle(Closed(attempt, None if attempt % 2 else BROKEN), now)
            waits.append(machine.deadline - now)
            now = machine.deadline
            machine.tick(now)
        assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]

    def test_the_first_event_resets_the_backoff(self):
        machine = in_state(State.CONNECTING, random=1.0)
        for attempt in (1, 2, 3):
            machine.handle(Closed(attempt, BROKEN), 0.0)
            machine.tick(100.0)
        machine.handle(Received(4, event(10)), 100.0)
        machine.handle(Closed(4, BROKEN), 101.0)
        assert machine.tick(101.0) == [Subscribe(5, Position.after("10"), renewal=False)]
        machine.handle(Closed(5, BROKEN), 101.0)
        assert machine.deadline == 101.5

    @pytest.mark.parametrize("error", [DENIED, ShardGoneError("gone")])
    @pytest.mark.parametrize(
        ("state", "failing", "other"),
        [(State.CONNECTING, 1, None), (State.LIVE, 1, None), (State.RENEWING, 1, 2), (State.RENEWING, 2, 1)],
    )
    def test_an_error_that_is_not_retryable_is_final(self, error, state, failing, other):
        machine = in_state(state)
        *cancels, failed = machine.handle(Closed(failing, error), 1.0)
        assert failed == Fail(error)
        assert other is None or Cancel(other, "service") in cancels
        assert machine.deadline == float("inf")
        assert machine.tick(1e9) == []


class TestEnd:
    @pytest.mark.parametrize(("state", "attempt"), [(State.CONNECTING, 1), (State.LIVE, 1)])
    def test_the_last_records_are_delivered_before_the_end(self, state, attempt):
        machine = in_state(state)
        [delivered, *_, finish] = machine.handle(Received(attempt, last_event(11, 12)), 1.0)
        assert numbers(delivered.event) == [11, 12]
        assert finish == Finish(CHILDREN)
        assert machine.tick(1e9) == []

    @pytest.mark.parametrize("attempt", [1, 2])
    def test_either_attempt_may_end_the_shard(self, attempt):
        machine = in_state(State.RENEWING)
        machine.handle(Received(1, event(11)), 1.0)
        [delivered, *cancels, finish] = machine.handle(Received(attempt, last_event(11, 12)), 2.0)
        assert numbers(delivered.event) == [12]
        assert Cancel(3 - attempt, "shard_end") in cancels
        assert finish == Finish(CHILDREN)

    @pytest.mark.scenario("G49")
    def test_inputs_after_the_end_are_ignored(self):
        machine = in_state(State.ENDED)
        assert machine.handle(Received(1, event(99)), 1.0) == []
        assert machine.handle(Closed(1, None), 1.0) == []
        assert machine.deadline == float("inf")


class TestSilence:
    def test_the_silence_timeout_counts_from_the_beginning_of_the_wait(self):
        machine = in_state(State.LIVE)
        machine.wait_started(200.0)  # the owner was busy until now
        assert machine.deadline == 235.0
        assert machine.tick(234.9) == []
        assert machine.tick(235.0) == [Cancel(1, "silence")]
        assert machine.state is State.WAITING
        assert machine.tick(235.0) == [Subscribe(2, Position.after("10"), renewal=False)]

    @pytest.mark.scenario("G57")
    def test_every_event_restarts_the_silence_timeout(self):
        machine = in_state(State.LIVE)
        machine.wait_started(0.0)
        machine.handle(Received(1, event(continuation=11)), 30.0)
        assert machine.deadline == 65.0

    def test_every_part_of_an_event_restarts_it_up_to_the_event_timeout(self):
        machine = in_state(State.LIVE)
        machine.wait_started(0.0)
        for now in range(0, 290, 10):
            assert machine.handle(DataArrived(1), float(now)) == []
            assert machine._silence_deadline == min(now + 35.0, 300.0)
        machine.handle(DataArrived(2), 290.0)  # a stale attempt
        assert machine._silence_deadline == 300.0
        (cancel,) = [action for action in machine.tick(300.0) if isinstance(action, Cancel)]
        assert cancel == Cancel(1, "silence")

    def test_the_candidate_stays_when_the_live_attempt_is_silent(self):
        machine = in_state(State.RENEWING)
        machine.wait_started(300.0)
        assert machine.deadline == 335.0
        assert machine.tick(335.0) == [Cancel(1, "silence")]
        assert machine.state is State.CONNECTING
        sent = event(11)
        assert machine.handle(Received(2, sent), 336.0) == [Deliver(sent, 0)]

    def test_a_candidate_has_no_silence_timeout(self):
        machine = in_state(State.CONNECTING)
        machine.wait_started(0.0)
        assert machine.deadline == float("inf")

    @pytest.mark.parametrize(
        ("parts", "text"),
        [([], "no data of an event arrived for 35 s"), (range(0, 300, 10), "no complete event arrived for 300 s")],
    )
    def test_the_error_says_whether_nothing_arrived_or_no_whole_event(self, parts, text):
        machine = Subscription(START, lambda: 0.5, is_final=lambda _error: True)
        machine.tick(0.0)
        machine.handle(Received(1, event(10)), 0.0)
        for now in parts:
            machine.handle(DataArrived(1), float(now))
        machine._due = float("inf")  # no renewal before
        *_, failure = machine.tick(machine.deadline)
        assert str(failure.error) == text

    def test_a_silence_error_is_retryable(self):
        assert SilenceError.retryable


class TestContinuationThatMovesBack:
    def test_an_attempt_that_repeats_events_is_closed_and_no_record_is_repeated(self):
        machine = live_after(event(1, 2), event(3, 4))
        actions = machine.handle(Received(1, event(1, 2)), 10)
        assert actions == [Cancel(1, "protocol")]
        assert machine.state is State.WAITING
        (subscribe,) = machine.tick(machine.deadline)
        assert subscribe == Subscribe(2, Position.after("4"), renewal=False)

    def test_an_event_that_repeats_the_last_one_is_delivered_without_records(self):
        machine = live_after(event(1, 2), event(3, 4))
        (deliver,) = machine.handle(Received(1, event(3, 4)), 10)
        assert numbers(deliver.event) == []
        assert machine.state is State.LIVE

    def test_after_an_early_event_without_records_the_next_attempt_starts_before_it(self):
        machine = live_after(event(1, 2), event(continuation=9))
        assert machine.handle(Received(1, event(3, 4)), 10) == [Cancel(1, "protocol")]
        (subscribe,) = machine.tick(machine.deadline)
        assert subscribe == Subscribe(2, Position.after("2"), renewal=False)
        (deliver,) = machine.handle(Received(2, event(3, 4)), 11)
        assert numbers(deliver.event) == [3, 4]

    def test_records_that_arrive_after_later_ones_are_a_final_order_error(self):
        machine = live_after(event(1, 2), event(5, 6))
        cancel, fail = machine.handle(Received(1, event(3, 4)), 10)
        assert cancel == Cancel(1, "service")
        assert isinstance(fail.error, OrderError)
        assert "records 3 to 4 arrived after record 5" in str(fail.error)
        assert machine.state is State.FAILED

    def test_a_candidate_that_is_behind_is_not_a_protocol_error(self):
        machine = live_after(event(1, 2))
        (candidate,) = renew(machine)
        machine.handle(Received(1, event(3, 4, 5)), 250)
        machine.handle(Received(candidate.attempt, event(3)), 250)
        (deliver,) = machine.handle(Received(candidate.attempt, event(4)), 251)
        assert numbers(deliver.event) == []
        assert machine.state is State.LIVE


def live_after(*events):
    """Return a subscription whose first attempt has delivered these events."""
    machine = subscription()
    machine.tick(0)
    for received in events:
        machine.handle(Received(1, received), 1)
    return machine


@pytest.mark.parametrize("renew_from", [200.5, 201, float("inf")])
def test_a_renewal_cannot_be_due_after_its_latest_age(renew_from):
    with pytest.raises(ConfigurationError, match=r"renew_from=.* expected at most renew_to=200"):
        SubscriptionTiming(renew_from=renew_from, renew_to=200)
    assert SubscriptionTiming(renew_from=200, renew_to=200).renew_to == 200


@pytest.mark.parametrize("name", ["renew_from", "renew_to", "silence_timeout"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), "soon", None, True])
def test_a_time_of_a_subscription_is_a_number_above_zero(name, value):
    with pytest.raises(ConfigurationError, match=f"{name}=.*expected a number above 0 seconds"):
        SubscriptionTiming(**{name: value})


def test_an_attempt_is_being_renewed_only_while_it_is_live_and_has_a_candidate():
    machine = subscription()
    assert machine.live is None
    assert not machine.is_being_renewed(1)
    renewing = in_state(State.RENEWING)
    assert renewing.is_being_renewed(1)
    assert not renewing.is_being_renewed(2)
    renewing.handle(Closed(2, BROKEN), 0.0)
    assert not renewing.is_being_renewed(1)


def test_a_candidate_that_was_closed_is_forgotten():
    machine = in_state(State.RENEWING)
    machine.handle(Closed(2, BROKEN), 0.0)
    assert machine.handle(Received(2, event(20)), 0.0) == []
    assert machine.handle(Closed(1, DENIED), 0.0) == [Cancel(1, "service"), Fail(DENIED)]
