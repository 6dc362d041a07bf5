"""The checkpoint from acks: it never passes a record that is not acked, and never moves back (rule R3)."""

import weakref

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from efo.model import Batch, Checkpoint, Record, checkpoint_of
from efo.protocol.progress import Progress, index_of


def batch(number, records=(), continuation=None):
    """Return a batch. `records`: pairs of sequence number and sub-sequence number."""
    records = tuple(Record(str(seq), 0.0, b"", "k", sub_sequence_number=sub) for seq, sub in records)
    return Batch("s", "shard", records, None if continuation is None else str(continuation), 0, number)


def checkpoint_after(batch: Batch) -> Checkpoint | None:
    """Return the checkpoint of a batch that is done, without others."""
    progress = Progress()
    progress.delivered(batch)
    progress.ack(batch)
    return progress.checkpoint


@pytest.mark.parametrize(
    ("records", "continuation", "expected"),
    [
        ([(5, 0), (7, 0)], 9, ("9", 0)),
        ([(5, 0), (7, 0)], 7, ("7", 0)),
        ([(5, 0), (7, 3)], 7, ("7", 3)),
        ([(7, 3)], 9, ("9", 0)),
        ([(7, 3)], 6, ("7", 3)),
        ([(9, 0)], 10, ("10", 0)),  # compared as numbers, not as text
        ([], 9, ("9", 0)),
        ([(7, 3)], None, ("7", 3)),
    ],
)
def test_the_checkpoint_of_a_batch_is_its_continuation_or_its_last_record(records, continuation, expected):
    assert checkpoint_after(batch(0, records, continuation)) == Checkpoint(*expected)


def test_a_shard_end_without_records_has_no_checkpoint():
    assert checkpoint_after(batch(0)) is None
    progress = Progress()
    progress.delivered(batch(0))
    progress.ack(batch(0))
    assert progress.is_idle


def test_an_empty_event_does_not_move_the_checkpoint_back_within_an_aggregate():
    progress = Progress()
    progress.delivered(batch(0, [(7, 0), (7, 1), (7, 2)], 7))
    progress.delivered(batch(1, [], 7))
    progress.ack_through(batch(1, [], 7))
    assert progress.checkpoint == Checkpoint("7", 2)


def test_the_checkpoint_never_moves_back_before_the_start():
    progress = Progress(Checkpoint("7", 2))
    assert progress.checkpoint == Checkpoint("7", 2)
    progress.delivered(batch(0, [], 7))  # the records of the aggregate were filtered out: rule R5
    progress.ack(batch(0, [], 7))
    assert progress.checkpoint == Checkpoint("7", 2)
    progress.delivered(batch(1, [], 8))
    progress.ack(batch(1, [], 8))
    assert progress.checkpoint == Checkpoint("8")


@pytest.mark.parametrize("start", ["TRIM_HORIZON", "LATEST", "AT_TIMESTAMP"])
def test_any_continuation_is_ahead_of_a_sentinel_start(start):
    progress = Progress(Checkpoint(start))
    progress.delivered(batch(0, [], 1))
    progress.ack(batch(0, [], 1))
    assert progress.checkpoint == Checkpoint("1")


def test_the_continuation_zero_is_not_a_checkpoint():
    """A server without records may send it. A subscribe at zero fails, now and after a restart."""
    assert checkpoint_after(batch(0, [], 0)) is None
    assert checkpoint_after(batch(0, [(5, 0)], 0)) == Checkpoint("5")
    progress = Progress(Checkpoint("LATEST"))
    progress.delivered(batch(0, [], 0))
    progress.ack(batch(0, [], 0))
    assert progress.checkpoint == Checkpoint("LATEST")


def test_acks_out_of_order_count_when_the_first_batch_is_acked():
    progress = Progress()
    batches = [batch(number, [(number, 0)], number) for number in range(3)]
    for one in batches:
        progress.delivered(one)
    progress.ack(batches[2])
    progress.ack(batches[1])
    assert progress.checkpoint is None
    progress.ack(batches[0])
    assert progress.checkpoint == Checkpoint("2")


@pytest.mark.scenario("G66")
def test_acks_of_unknown_or_completed_batches_have_no_effect():
    progress = Progress()
    first = batch(0, [(1, 0)], 1)
    progress.ack(first)
    progress.ack_through(batch(9))
    progress.delivered(first)
    progress.ack(batch(1))
    progress.ack_through(batch(-1))
    assert not progress.is_idle
    progress.ack(first)
    progress.ack(first)
    assert progress.checkpoint == Checkpoint("1")


@pytest.mark.scenario("G66")
@pytest.mark.parametrize("other", [[(1, 0)], [(1, 0), (2, 0), (4, 0)], []])
def test_acks_of_an_earlier_reading_whose_batch_had_the_same_number_have_no_effect(other):
    progress = Progress()
    delivered, earlier = batch(0, [(1, 0), (2, 0), (3, 0)], 3), batch(0, other, 3)
    progress.delivered(delivered)
    progress.ack(earlier)
    progress.ack_through(earlier)
    progress.ack_through(earlier, 0)
    progress.ack_records(earlier, [0])
    assert (progress.checkpoint, progress.is_idle) == (None, False)
    progress.ack_records(delivered, [0])
    assert progress.checkpoint == Checkpoint("1")


class Key(str):
    """A partition key that can have weak references."""

    __slots__ = ("__weakref__",)


def test_a_batch_in_flight_keeps_none_of_its_records_but_the_last_that_is_done():
    """A reader that copies the records and acks much later should not hold their memory."""
    progress = Progress()
    records = tuple(Record(str(number), 0.0, b"", Key("k")) for number in (1, 2, 3))
    keys = [weakref.ref(record.partition_key) for record in records]
    delivered = Batch("s", "shard", records, "3", 0, 0)
    progress.delivered(delivered)
    progress.ack_records(delivered, [0, 1])
    del records, delivered
    assert [key() is not None for key in keys] == [False, True, False]
    assert progress.checkpoint == Checkpoint("2")


def test_acks_of_single_records_move_the_checkpoint_within_their_batch():
    progress = Progress()
    first = batch(0, [(1, 0), (2, 0), (2, 1)], 5)
    progress.delivered(first)
    assert progress.ack_records(first, [1]) == []
    assert progress.checkpoint is None
    progress.ack_records(first, [0])
    assert progress.checkpoint == Checkpoint("2")
    assert progress.ack_records(first, [2]) == [0]
    assert (progress.checkpoint, progress.is_idle) == (Checkpoint("5"), True)


def test_records_may_be_acked_in_any_order_across_batches():
    progress = Progress()
    batches = [batch(n, [(10 * n + 1, 0), (10 * n + 2, 0)], 10 * n + 5) for n in range(3)]
    for one in batches:
        progress.delivered(one)
    for one in reversed(batches):
        for index in range(len(one.records)):
            progress.ack_records(one, [index])
    assert (progress.checkpoint, progress.is_idle) == (Checkpoint("25"), True)


@pytest.mark.scenario("G66")
def test_acks_of_records_that_were_not_delivered_have_no_effect():
    progress = Progress()
    delivered = batch(0, [(1, 0), (3, 0)], 3)
    progress.delivered(delivered)
    progress.ack_records(delivered, [-1, 2])
    progress.ack_records(batch(7, [(1, 0), (3, 0)], 3), [0])
    assert progress.checkpoint is None
    progress.ack(delivered)
    assert progress.ack_records(delivered, [0]) == []


def test_ack_through_a_record_acks_everything_before_it():
    progress = Progress()
    batches = [batch(number, [(10 * number + 1, 0), (10 * number + 2, 0)], 10 * number + 3) for number in range(3)]
    for one in batches:
        progress.delivered(one)
    assert progress.ack_through(batches[1], 0) == [0]
    assert progress.checkpoint == Checkpoint("11")
    assert progress.ack_through(batches[1], 1) == [1]
    assert progress.checkpoint == Checkpoint("13")
    assert progress.ack_through(batches[2]) == [2]


def test_ack_to_a_checkpoint_needs_no_batch_and_no_record_with_that_number():
    progress = Progress()
    for number in range(3):
        first = 10 * number + 1
        progress.delivered(batch(number, [(first, 0), (first, 1), (first + 4, 0)], first + 8))
    assert progress.ack_to(Checkpoint("13")) == [0]
    assert progress.checkpoint == Checkpoint("13")
    assert progress.ack_to(Checkpoint("11", 1)) == []
    assert progress.checkpoint == Checkpoint("13")
    assert progress.ack_to(Checkpoint("15")) == [1]
    assert progress.checkpoint == Checkpoint("19")
    assert progress.ack_to(Checkpoint("21", 1)) == []
    assert progress.checkpoint == Checkpoint("21", 1)


def test_ack_to_a_checkpoint_that_is_not_included_acks_the_batches_that_end_before_it():
    progress = Progress()
    for number, last in enumerate([5, 7]):
        progress.delivered(batch(number, [(last - 1, 0), (last, 1)]))
    assert progress.ack_to(Checkpoint("5", 1), inclusive=False) == []
    assert progress.checkpoint is None
    assert progress.ack_to(Checkpoint("7"), inclusive=False) == [0]
    assert progress.checkpoint == Checkpoint("5", 1)


@pytest.mark.parametrize(
    ("number", "sub", "index"),
    [(5, 0, 0), (7, 0, 1), (7, 1, 2), (4, 0, None), (5, 1, None), (7, 2, None), (8, 0, None)],
)
def test_a_record_is_found_by_its_sequence_and_sub_sequence_number(number, sub, index):
    (wanted,) = batch(0, [(number, sub)]).records
    assert index_of(batch(0, [(5, 0), (7, 0), (7, 1)]).records, wanted) == index


def test_ack_to_a_checkpoint_ahead_of_what_was_delivered_acks_what_was_delivered():
    progress = Progress(Checkpoint("2"))
    progress.delivered(batch(0, [(5, 0)], 6))
    assert progress.ack_to(Checkpoint("99")) == [0]
    assert progress.checkpoint == Checkpoint("6")
    assert progress.ack_to(Checkpoint("99")) == []
    assert progress.checkpoint == Checkpoint("6")


def test_a_restart_forgets_the_batches_in_flight():
    progress = Progress()
    before = batch(0, [(5, 0), (6, 0)], 6)
    progress.delivered(before)
    progress.ack_records(before, [0])
    progress.ack_to(Checkpoint("5"))
    progress.restart(Checkpoint("2"))
    assert (progress.checkpoint, progress.is_idle) == (Checkpoint("2"), True)
    progress.delivered(batch(1, [(3, 0)], 3))
    progress.ack_through(before)
    progress.ack_records(before, [1])
    assert (progress.checkpoint, progress.is_idle) == (Checkpoint("2"), False)
    progress.ack_through(batch(1, [(3, 0)], 3))
    assert progress.checkpoint == Checkpoint("3")


class Acks(RuleBasedStateMachine):
    """Deliveries and acks in any order, compared with a plain set of acked batches and records."""

    def __init__(self):
        super().__init__()
        self.progress = Progress()
        self.checkpoints = []  # the checkpoint after each batch, by number
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
        new = batch(len(self.checkpoints), records, continuation)
        self.checkpoints.append(checkpoint_after(new))
        self.batches.append(new)
        self.at = (max(seq, continuation or 0), 0)
        self.progress.delivered(new)

    @precondition(lambda self: self.checkpoints)
    @rule(data=st.data())
    def ack(self, data):
        number = data.draw(st.integers(0, len(self.checkpoints) - 1))
        self.completed += self.progress.ack(self.batches[number])
        self.acked.add(number)

    @precondition(lambda self: self.checkpoints)
    @rule(data=st.data())
    def ack_through(self, data):
        number = data.draw(st.integers(0, len(self.checkpoints) - 1))
        self.completed += self.progress.ack_through(self.batches[number])
        self.acked |= set(range(number + 1))

    @precondition(lambda self: any(one.records for one in self.batches))
    @rule(data=st.data(), how=st.sampled_from(["indexes", "through"]))
    def ack_records(self, data, how):
        number = data.draw(st.sampled_from([one.number for one in self.batches if one.records]))
        records = self.batches[number].records
        index = data.draw(st.integers(0, len(records) - 1))
        done = {(number, index)}
        match how:
            case "indexes":
                self.completed += self.progress.ack_records(self.batches[number], [index])
            case "through":
                self.completed += self.progress.ack_through(self.batches[number], index)
                done |= {(number, earlier) for earlier in range(index)}
                self.acked |= set(range(number))
        self.acked_records |= done
        if all((number, at) in self.acked_records for at in range(len(records))):
            self.acked.add(number)

    @invariant()
    def the_checkpoint_is_the_highest_of_the_contiguous_acks(self):
        first_open = next((n for n in range(len(self.checkpoints)) if n not in self.acked), len(self.checkpoints))
        done = [checkpoint for checkpoint in self.checkpoints[:first_open] if checkpoint is not None]
        if first_open < len(self.checkpoints):
            for index, record in enumerate(self.batches[first_open].records):
                if (first_open, index) not in self.acked_records:
                    break
                done.append(checkpoint_of(record))
        assert self.progress.checkpoint == max(done, default=None)
        assert self.progress.is_idle == (first_open == len(self.checkpoints))

    @invariant()
    def each_completed_batch_is_returned_once(self):
        assert sorted(self.completed) == sorted(self.acked)

    @invariant()
    def the_checkpoint_never_moves_back(self):
        self.seen.append(self.progress.checkpoint)
        known = [checkpoint for checkpoint in self.seen if checkpoint is not None]
        assert known == sorted(known)


TestAcks = Acks.TestCase
