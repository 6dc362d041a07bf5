"""From acks to the checkpoint: never ahead of what is not acked, never back (rule R3)."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from efo.model import Batch, Checkpoint, Record, checkpoint_of
from efo.protocol.progress import Progress, checkpoint_after


def batch(number, records=(), continuation=None):
    """A batch of records, given as (sequence number, index in an aggregate)."""
    made = tuple(Record(str(seq), 0.0, b"", "k", sub_sequence_number=sub) for seq, sub in records)
    return Batch("s", "shard", made, None if continuation is None else str(continuation), 0, number)


@pytest.mark.parametrize(
    ("records", "continuation", "expected"),
    [
        ([(5, 0), (7, 0)], 9, ("9", 0)),
        ([(5, 0), (7, 0)], 7, ("7", 0)),
        ([(5, 0), (7, 3)], 7, ("7", 3)),
        ([(7, 3)], 9, ("9", 0)),
        ([(7, 3)], 6, ("7", 3)),
        ([(9, 0)], 10, ("10", 0)),  # as numbers, not as text
        ([], 9, ("9", 0)),
        ([(7, 3)], None, ("7", 3)),
    ],
)
def test_a_batch_says_as_much_as_its_continuation_or_its_last_record(records, continuation, expected):
    assert checkpoint_after(batch(0, records, continuation)) == Checkpoint(*expected)


def test_the_end_of_a_shard_without_records_says_nothing():
    assert checkpoint_after(batch(0)) is None
    progress = Progress()
    progress.delivered(batch(0))
    progress.ack(0)
    assert progress.checkpoint is None
    assert progress.is_idle


def test_an_idle_event_does_not_undo_the_rest_of_an_aggregate():
    progress = Progress()
    progress.delivered(batch(0, [(7, 0), (7, 1), (7, 2)], 7))
    progress.delivered(batch(1, [], 7))
    progress.ack_through(1)
    assert progress.checkpoint == Checkpoint("7", 2)


def test_what_was_done_before_is_not_undone():
    progress = Progress(Checkpoint("7", 2))
    assert progress.checkpoint == Checkpoint("7", 2)
    progress.delivered(batch(0, [], 7))  # the records of the aggregate were cut off: rule R5
    progress.ack(0)
    assert progress.checkpoint == Checkpoint("7", 2)
    progress.delivered(batch(1, [], 8))
    progress.ack(1)
    assert progress.checkpoint == Checkpoint("8")


@pytest.mark.parametrize("start", ["TRIM_HORIZON", "LATEST", "AT_TIMESTAMP"])
def test_any_record_is_ahead_of_a_named_start(start):
    progress = Progress(Checkpoint(start))
    progress.delivered(batch(0, [], 1))
    progress.ack(0)
    assert progress.checkpoint == Checkpoint("1")


def test_zero_is_no_place_to_go_on_from():
    """A server that knows of no record yet may say so: nobody can subscribe there, now or after a restart."""
    assert checkpoint_after(batch(0, [], 0)) is None
    assert checkpoint_after(batch(0, [(5, 0)], 0)) == Checkpoint("5")
    progress = Progress(Checkpoint("LATEST"))
    progress.delivered(batch(0, [], 0))
    progress.ack(0)
    assert progress.checkpoint == Checkpoint("LATEST")


def test_acks_out_of_order_wait_for_the_first():
    progress = Progress()
    for number in range(3):
        progress.delivered(batch(number, [(number, 0)], number))
    progress.ack(2)
    progress.ack(1)
    assert progress.checkpoint is None
    progress.ack(0)
    assert progress.checkpoint == Checkpoint("2")


@pytest.mark.scenario("G66")
def test_strange_acks_change_nothing():
    progress = Progress()
    progress.ack(0)
    progress.ack_through(9)
    progress.delivered(batch(0, [(1, 0)], 1))
    progress.ack(1)
    progress.ack_through(-1)
    assert not progress.is_idle
    progress.ack(0)
    progress.ack(0)
    assert progress.checkpoint == Checkpoint("1")


def test_single_records_move_the_checkpoint_within_their_batch():
    progress = Progress()
    first = batch(0, [(1, 0), (2, 0), (2, 1)], 5)
    progress.delivered(first)
    assert progress.ack_record(0, first.records[1]) == []
    assert progress.checkpoint is None
    progress.ack_record(0, first.records[0])
    assert progress.checkpoint == Checkpoint("2")
    assert progress.ack_records(0, [2]) == [0]
    assert (progress.checkpoint, progress.is_idle) == (Checkpoint("5"), True)


def test_records_are_acked_in_any_order_across_batches():
    progress = Progress()
    batches = [batch(n, [(10 * n + 1, 0), (10 * n + 2, 0)], 10 * n + 5) for n in range(3)]
    for one in batches:
        progress.delivered(one)
    for one in reversed(batches):
        for record in one.records:
            progress.ack_record(one.number, record)
    assert (progress.checkpoint, progress.is_idle) == (Checkpoint("25"), True)


@pytest.mark.scenario("G66")
def test_records_that_were_not_delivered_change_nothing():
    progress = Progress()
    progress.delivered(batch(0, [(1, 0), (3, 0)], 3))
    for other in [(0, 0), (1, 1), (2, 0), (9, 0)]:
        progress.ack_record(0, batch(0, [other]).records[0])
    progress.ack_records(0, [-1, 2])
    progress.ack_records(7, [0])
    assert progress.checkpoint is None
    progress.ack(0)
    assert progress.ack_records(0, [0]) == []


def test_an_ack_through_a_record_covers_all_before_it():
    progress = Progress()
    for number in range(3):
        progress.delivered(batch(number, [(10 * number + 1, 0), (10 * number + 2, 0)], 10 * number + 3))
    assert progress.ack_through(1, 0) == [0]
    assert progress.checkpoint == Checkpoint("11")
    assert progress.ack_through(1, 1) == [1]
    assert progress.checkpoint == Checkpoint("13")
    assert progress.ack_through(2) == [2]


def test_a_restart_forgets_what_is_in_flight():
    progress = Progress()
    before = batch(0, [(5, 0), (6, 0)], 6)
    progress.delivered(before)
    progress.ack_record(0, before.records[0])
    progress.restart(Checkpoint("2"))
    assert (progress.checkpoint, progress.is_idle) == (Checkpoint("2"), True)
    progress.delivered(batch(1, [(3, 0)], 3))
    progress.ack_through(0)
    progress.ack_record(0, before.records[1])
    assert (progress.checkpoint, progress.is_idle) == (Checkpoint("2"), False)
    progress.ack_through(1)
    assert progress.checkpoint == Checkpoint("3")


class Acks(RuleBasedStateMachine):
    """Deliveries and acks in any order, against the plain set of acked numbers."""

    def __init__(self):
        super().__init__()
        self.progress = Progress()
        self.said = []  # what each batch says, by number
        self.batches = []
        self.acked = set()
        self.acked_records = set()  # (number, index)
        self.completed = []
        self.at = (0, 0)
        self.seen = []

    @rule(size=st.integers(0, 3), aggregated=st.booleans(), ahead=st.integers(0, 2), ends=st.booleans())
    def deliver(self, size, aggregated, ahead, ends):
        seq, records = self.at[0], []
        for index in range(size):
            seq, sub = (seq + 1, 0) if not aggregated or index == 0 else (seq, index)
            records.append((seq, sub))
        continuation = None if ends else seq + ahead
        new = batch(len(self.said), records, continuation)
        self.said.append(checkpoint_after(new))
        self.batches.append(new)
        self.at = (max(seq, continuation or 0), 0)
        self.progress.delivered(new)

    @precondition(lambda self: self.said)
    @rule(data=st.data())
    def ack(self, data):
        number = data.draw(st.integers(0, len(self.said) - 1))
        self.completed += self.progress.ack(number)
        self.acked.add(number)

    @precondition(lambda self: self.said)
    @rule(data=st.data())
    def ack_through(self, data):
        number = data.draw(st.integers(0, len(self.said) - 1))
        self.completed += self.progress.ack_through(number)
        self.acked |= set(range(number + 1))

    @precondition(lambda self: any(one.records for one in self.batches))
    @rule(data=st.data(), how=st.sampled_from(["record", "indexes", "through"]))
    def ack_records(self, data, how):
        number = data.draw(st.sampled_from([one.number for one in self.batches if one.records]))
        records = self.batches[number].records
        index = data.draw(st.integers(0, len(records) - 1))
        done = {(number, index)}
        match how:
            case "record":
                self.completed += self.progress.ack_record(number, records[index])
            case "indexes":
                self.completed += self.progress.ack_records(number, [index])
            case "through":
                self.completed += self.progress.ack_through(number, index)
                done |= {(number, earlier) for earlier in range(index)}
                self.acked |= set(range(number))
        self.acked_records |= done
        if all((number, at) in self.acked_records for at in range(len(records))):
            self.acked.add(number)

    @invariant()
    def the_checkpoint_is_the_best_of_the_contiguous_acks(self):
        first_open = next((n for n in range(len(self.said)) if n not in self.acked), len(self.said))
        done = [checkpoint for checkpoint in self.said[:first_open] if checkpoint is not None]
        if first_open < len(self.said):
            for index, record in enumerate(self.batches[first_open].records):
                if (first_open, index) not in self.acked_records:
                    break
                done.append(checkpoint_of(record))
        assert self.progress.checkpoint == max(done, default=None)
        assert self.progress.is_idle == (first_open == len(self.said))

    @invariant()
    def each_batch_is_told_once_when_it_is_complete(self):
        assert sorted(self.completed) == sorted(self.acked)

    @invariant()
    def it_never_goes_back(self):
        self.seen.append(self.progress.checkpoint)
        known = [checkpoint for checkpoint in self.seen if checkpoint is not None]
        assert known == sorted(known)


TestAcks = Acks.TestCase
