"""Whatever fails when, each record is delivered once and in order: a subscription against a model of the service."""

from hypothesis import settings
from hypothesis import strategies as st
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
    """A shard's log, and the attempts that read it; attempts that were cancelled may still say something."""

    @initialize(
        old=st.lists(st.integers(1, 3), max_size=4),
        start=st.sampled_from(["TRIM_HORIZON", "AT", "AFTER"]),
        at=st.integers(0, 3),
        random=st.integers(0, 2**16),
    )
    def begin(self, old, start, at, random):
        self.now = 0.0
        self.log = []
        self.tip = 0  # the service may name any number up to here as the place where it is
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
        self.cursors = {}  # of every attempt that was ever made
        self.alive = set()
        self.machine = Subscription(self.start, lambda: (random % 97) / 96)

    def act(self, actions):
        for action in actions:
            match action:
                case Subscribe(attempt=attempt, position=position, renewal=renewal):
                    expected = self.start if self.continuation is None else Position.after(self.continuation)
                    assert position == expected
                    assert renewal == bool(self.alive)
                    assert attempt not in self.cursors
                    self.cursors[attempt] = read_after(position)
                    self.alive.add(attempt)
                case Cancel(attempt=attempt):
                    self.alive.discard(attempt)
                case Deliver(event=event):
                    assert self.finishes == 0
                    self.delivered += [int(record.sequence_number) for record in event.records]
                    self.take_continuation(event.continuation_sequence_number)
                case Finish(children=children):
                    assert children == CHILDREN
                    self.finishes += 1
                case other:
                    raise AssertionError(other)

    def take_continuation(self, continuation):
        if continuation is None:
            return
        assert int(continuation) >= int(self.continuation or 0), "a continuation went back"
        assert not self.delivered or int(continuation) >= self.delivered[-1]
        if int(continuation):  # zero is no record's number
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
    def pass_time_in_the_service(self, step):
        self.tip += step

    @rule(really=st.integers(1, 30))
    def reshard(self, really):
        self.closed = self.closed or really == 30  # not often: the end of a shard is the end of its history

    # --- what the attempts say ---------------------------------------------------------------------------

    @precondition(lambda self: self.alive)
    @rule(newest=st.booleans(), most=st.integers(0, 4), ahead=st.integers(0, 3))
    def deliver_something(self, newest, most, ahead):
        self.event_of((max if newest else min)(self.alive), most, ahead)

    @precondition(lambda self: self.machine.state is State.RENEWING and not self.closed)
    @rule(most=st.integers(1, 4), ahead=st.integers(0, 3))
    def deliver_while_the_candidate_is_on_its_way(self, most, ahead):
        self.append_some(1, 1)
        self.event_of(min(self.alive), most, ahead)

    @precondition(lambda self: self.cursors)
    @rule(data=st.data(), most=st.integers(0, 4), ahead=st.integers(0, 3))
    def say_something_perhaps_too_late(self, data, most, ahead):
        self.event_of(data.draw(st.sampled_from(sorted(self.cursors))), most, ahead)

    def event_of(self, attempt, most, ahead):
        cursor = self.cursors[attempt]
        rest = [number for number in self.log if number > cursor]
        numbers = rest[:most]
        records = tuple(Record(str(number), 0.0, b"", "k") for number in numbers)
        if self.closed and numbers == rest:
            event = SubscribeToShardEvent(records, 0, None, CHILDREN)
        else:
            at = numbers[-1] if numbers else max(cursor, 0)
            beyond = rest[most] - 1 if len(rest) > most else self.tip
            self.cursors[attempt] = max(at, min(at + ahead, beyond))
            event = SubscribeToShardEvent(records, 0, str(self.cursors[attempt]))
        was_alive = attempt in self.alive
        actions = self.machine.handle(Received(attempt, event), self.now)
        assert bool(actions) == was_alive, "stale attempts are ignored, others are not"
        self.act(actions)

    @precondition(lambda self: self.cursors)
    @rule(data=st.data(), error=st.sampled_from(ERRORS))
    def close(self, data, error):
        attempt = data.draw(st.sampled_from(sorted(self.cursors)))
        self.alive.discard(attempt)
        self.act(self.machine.handle(Closed(attempt, error), self.now))

    # --- the owner ---------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.0, 0.3, 4.0, 30.0, 300.0]))
    def pass_time(self, seconds):
        self.now += seconds
        self.act(self.machine.tick(self.now))

    @rule()
    def wait_until_the_deadline(self):
        self.machine.waiting(self.now)
        if self.machine.deadline < float("inf"):
            self.now = max(self.now, self.machine.deadline)
            self.act(self.machine.tick(self.now))

    @precondition(lambda self: self.machine.state is State.LIVE)
    @rule()
    def grow_old_enough_for_a_renewal(self):
        self.now = max(self.now, self.machine._due)
        self.machine.waiting(self.now)  # events kept coming until now
        self.act(self.machine.tick(self.now))
        assert self.machine.state is State.RENEWING

    @invariant()
    def each_record_once_and_in_order(self):
        if hasattr(self, "machine"):
            owed = [number for number in self.log if number > self.expected_from]
            assert self.delivered == owed[: len(self.delivered)]
            assert not self.finishes or self.delivered == owed
            assert self.finishes <= 1
            assert (self.machine.state is State.ENDED) == bool(self.finishes)

    @invariant()
    def it_never_gets_stuck(self):
        if hasattr(self, "machine") and self.machine.state not in FINAL:
            assert self.alive or self.machine.deadline < float("inf")
            assert len(self.alive) <= 2

    def teardown(self):
        """At last the service works: everything is delivered, and the shard ends."""
        if not hasattr(self, "machine"):
            return
        self.closed = True
        for _ in range(200):
            if self.machine.state in FINAL:
                break
            if not self.alive:
                self.wait_until_the_deadline()
            else:
                self.event_of(max(self.alive), 2, 1)
        self.each_record_once_and_in_order()
        assert self.finishes == 1


def read_after(position):
    """The service's reading of a position: records with a greater number follow."""
    match position.type:
        case PositionType.AFTER_SEQUENCE_NUMBER:
            return int(position.sequence_number)
        case PositionType.AT_SEQUENCE_NUMBER:
            return int(position.sequence_number) - 1
        case _:
            return -1


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=120, stateful_step_count=60)
