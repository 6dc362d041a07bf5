"""A subscription and a model of the service: for any failures, each record is delivered once and in order."""

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from efo.errors import InternalFailureError, ResourceInUseError, TransportError
from efo.model import ChildShard, HashKeyRange, Position, PositionType, Record
from efo.protocol.messages import SubscribeToShardEvent
from efo.protocol.subscription import (
    Cancel,
    Closed,
    Deliver,
    Finish,
    Received,
    State,
    Subscribe,
    Subscription,
)

CHILDREN = (ChildShard("child", ("parent",), HashKeyRange("0", "1")),)
ERRORS = [None, TransportError("broke"), ResourceInUseError("ResourceInUseException", "wait"),
          InternalFailureError("InternalFailure", "")]  # fmt: skip
FINAL = (State.ENDED, State.FAILED)


class Histories(RuleBasedStateMachine):
    """The records of a shard and the attempts that read them. Cancelled attempts may still send events."""

    @initialize(
        old=st.lists(st.integers(1, 3), max_size=4),
        start=st.sampled_from(["TRIM_HORIZON", "AT", "AFTER"]),
        at=st.integers(0, 3),
        random=st.integers(0, 2**16),
    )
    def begin(self, old, start, at, random):
        self.now = 0.0
        self.log = []
        self.tip = 0  # the service may send any number up to this one as a continuation
        self.closed = False
        for step in old:
            self.append(step)
        self.start = Position.trim_horizon()
        if start != "TRIM_HORIZON" and old:
            number = self.log[at % len(old)]
            self.start = Position.at(str(number)) if start == "AT" else Position.after(str(number))
        self.expected_from = read_after(self.start)
        self.delivered = []
        self.continuation = None
        self.finishes = 0
        self.cursors = {}  # of all attempts so far
        self.open_attempts = set()
        self.machine = Subscription(self.start, lambda: (random % 97) / 96)

    def perform(self, actions):
        for action in actions:
            match action:
                case Subscribe(attempt=attempt, position=position, renewal=renewal):
                    expected = self.start if self.continuation is None else Position.after(self.continuation)
                    assert position == expected
                    assert renewal == bool(self.open_attempts)
                    assert attempt not in self.cursors
                    self.cursors[attempt] = read_after(position)
                    self.open_attempts.add(attempt)
                case Cancel(attempt=attempt):
                    self.open_attempts.discard(attempt)
                case Deliver(event=event):
                    assert self.finishes == 0
                    self.delivered += [int(record.sequence_number) for record in event.records]
                    self.update_continuation(event.continuation_sequence_number)
                case Finish(children=children):
                    assert children == CHILDREN
                    self.finishes += 1
                case other:
                    raise AssertionError(other)

    def update_continuation(self, continuation):
        if continuation is None:
            return
        assert int(continuation) >= int(self.continuation or 0), "a continuation moved back"
        assert not self.delivered or int(continuation) >= self.delivered[-1]
        if int(continuation):  # zero is not the number of a record
            self.continuation = continuation

    # --- the shard ---------------------------------------------------------------------------------------

    @precondition(lambda self: not self.closed)
    @rule(step=st.integers(1, 3), more=st.integers(0, 2))
    def append_some(self, step, more):
        for _ in range(1 + more):
            self.append(step)

    def append(self, step):
        self.tip += step
        self.log.append(self.tip)

    @precondition(lambda self: not self.closed)
    @rule(step=st.integers(1, 3))
    def advance_the_tip(self, step):
        self.tip += step

    @rule(chance=st.integers(1, 30))
    def reshard(self, chance):
        self.closed = self.closed or chance == 30  # rarely: the history of the shard ends here

    # --- the attempts ------------------------------------------------------------------------------------

    @precondition(lambda self: self.open_attempts)
    @rule(newest=st.booleans(), max_records=st.integers(0, 4), ahead=st.integers(0, 3))
    def deliver_an_event(self, newest, max_records, ahead):
        self.event_of((max if newest else min)(self.open_attempts), max_records, ahead)

    @precondition(lambda self: self.machine.state is State.RENEWING and not self.closed)
    @rule(max_records=st.integers(1, 4), ahead=st.integers(0, 3))
    def deliver_an_event_of_the_live_attempt_during_a_renewal(self, max_records, ahead):
        self.append_some(1, 1)
        self.event_of(min(self.open_attempts), max_records, ahead)

    @precondition(lambda self: self.cursors)
    @rule(data=st.data(), max_records=st.integers(0, 4), ahead=st.integers(0, 3))
    def deliver_an_event_of_any_attempt(self, data, max_records, ahead):
        self.event_of(data.draw(st.sampled_from(sorted(self.cursors))), max_records, ahead)

    def event_of(self, attempt, max_records, ahead):
        cursor = self.cursors[attempt]
        rest = [number for number in self.log if number > cursor]
        numbers = rest[:max_records]
        records = tuple(Record(str(number), 0.0, b"", "k") for number in numbers)
        if self.closed and numbers == rest:
            event = SubscribeToShardEvent(records, 0, None, CHILDREN)
        else:
            at = numbers[-1] if numbers else max(cursor, 0)
            beyond = rest[max_records] - 1 if len(rest) > max_records else self.tip
            self.cursors[attempt] = max(at, min(at + ahead, beyond))
            event = SubscribeToShardEvent(records, 0, str(self.cursors[attempt]))
        was_open = attempt in self.open_attempts
        actions = self.machine.handle(Received(attempt, event), self.now)
        assert bool(actions) == was_open, "exactly the stale attempts are ignored"
        self.perform(actions)

    @precondition(lambda self: self.cursors)
    @rule(data=st.data(), error=st.sampled_from(ERRORS))
    def close(self, data, error):
        attempt = data.draw(st.sampled_from(sorted(self.cursors)))
        self.open_attempts.discard(attempt)
        self.perform(self.machine.handle(Closed(attempt, error), self.now))

    # --- the owner ---------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.0, 0.3, 4.0, 30.0, 300.0]))
    def pass_time(self, seconds):
        self.now += seconds
        self.perform(self.machine.tick(self.now))

    @rule()
    def wait_until_the_deadline(self):
        self.machine.wait_started(self.now)
        if self.machine.deadline < float("inf"):
            self.now = max(self.now, self.machine.deadline)
            self.perform(self.machine.tick(self.now))

    @precondition(lambda self: self.machine.state is State.LIVE)
    @rule()
    def wait_until_a_renewal_is_due(self):
        self.now = max(self.now, self.machine._due)
        self.machine.wait_started(self.now)  # events arrived until now
        self.perform(self.machine.tick(self.now))
        assert self.machine.state is State.RENEWING

    @invariant()
    def each_record_is_delivered_once_and_in_order(self):
        if hasattr(self, "machine"):
            expected = [number for number in self.log if number > self.expected_from]
            assert self.delivered == expected[: len(self.delivered)]
            assert not self.finishes or self.delivered == expected
            assert self.finishes <= 1
            assert (self.machine.state is State.ENDED) == bool(self.finishes)

    @invariant()
    def the_subscription_never_gets_stuck(self):
        if hasattr(self, "machine") and self.machine.state not in FINAL:
            assert self.open_attempts or self.machine.deadline < float("inf")
            assert len(self.open_attempts) <= 2

    def teardown(self):
        """Assert that without further failures all records are delivered and the shard ends."""
        if not hasattr(self, "machine"):
            return
        self.closed = True
        for _ in range(200):
            if self.machine.state in FINAL:
                break
            if not self.open_attempts:
                self.wait_until_the_deadline()
            else:
                self.event_of(max(self.open_attempts), 2, 1)
        self.each_record_is_delivered_once_and_in_order()
        assert self.finishes == 1


def read_after(position):
    """Return the number after which the service reads for this position."""
    match position.type:
        case PositionType.AFTER_SEQUENCE_NUMBER:
            return int(position.sequence_number)
        case PositionType.AT_SEQUENCE_NUMBER:
            return int(position.sequence_number) - 1
        case _:
            return -1


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=120, stateful_step_count=60)
