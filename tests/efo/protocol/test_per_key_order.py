"""Several keys at once, each in order: against any order in which the work may end."""

from collections import defaultdict
from itertools import chain, takewhile

from hypothesis import given
from hypothesis import strategies as st

from efo.model import Batch, Record, checkpoint_of
from efo.protocol.batch_slice import BatchSlice
from efo.protocol.per_key_order import PerKeyOrder
from efo.protocol.progress import Progress


def batch(number, keys, data=b""):
    records = tuple(Record(str(1000 * number + i), 0.0, data, key) for i, key in enumerate(keys))
    return Batch("s", "shard", records, None, 0, number)


def test_each_key_is_a_piece_in_the_order_of_its_first_record():
    lanes = PerKeyOrder()
    lanes.add(batch(0, "abacb"))
    pieces = [lanes.take() for _ in range(3)]
    assert [list(batch_slice.indexes) for batch_slice in pieces] == [[0, 2], [1, 4], [3]]
    assert lanes.take() is None
    assert lanes.records == 5


def test_a_key_waits_for_itself_alone():
    lanes = PerKeyOrder()
    lanes.add(batch(0, "a"))
    first = lanes.take()
    lanes.add(batch(1, "ab"))
    assert lanes.take().first.partition_key == "b"
    assert lanes.take() is None
    lanes.done(first)
    assert lanes.take().batch.number == 1


def test_a_record_that_waits_keeps_its_batch_in_memory():
    lanes = PerKeyOrder()
    lanes.add(batch(0, ""))
    lanes.add(batch(1, "aab", b"xx"))
    lanes.add(batch(2, "bb", b"yyy"))
    assert (lanes.records, lanes.size) == (5, 12)
    one, two = lanes.take(), lanes.take()
    lanes.done(one)
    assert (lanes.records, lanes.size) == (3, 12)
    lanes.done(two)
    assert (lanes.records, lanes.size) == (2, 6)
    lanes.done(lanes.take())
    assert (lanes.records, lanes.size, lanes._undone) == (0, 0, {})


@given(
    batches=st.lists(st.text("abcd", min_size=1, max_size=8), max_size=8),
    data=st.data(),
)
def test_whatever_ends_when_each_key_is_in_order_and_nothing_is_left(batches, data):
    lanes, running, waiting = PerKeyOrder(), [], [batch(number, keys) for number, keys in enumerate(batches)]
    expected, handled = defaultdict(list), defaultdict(list)
    for record in (record for one in waiting for record in one.records):
        expected[record.partition_key].append(record.sequence_number)
    while waiting or running:
        if waiting and data.draw(st.booleans()):
            lanes.add(waiting.pop(0))
        while data.draw(st.booleans()) and (batch_slice := lanes.take()):
            running.append(batch_slice)
        assert len({batch_slice.first.partition_key for batch_slice in running}) == len(running)
        if running:
            batch_slice = running.pop(data.draw(st.integers(0, len(running) - 1)))
            handled[batch_slice.first.partition_key] += [
                record.sequence_number for record in batch_slice.as_batch().records
            ]
            lanes.done(batch_slice)
        elif batch_slice := lanes.take():
            running.append(batch_slice)
        elif waiting:
            lanes.add(waiting.pop(0))
    while batch_slice := lanes.take():
        handled[batch_slice.first.partition_key] += [
            record.sequence_number for record in batch_slice.as_batch().records
        ]
        lanes.done(batch_slice)
    assert handled == expected
    assert lanes.records == 0


@given(batches=st.lists(st.text("abc", min_size=1, max_size=6), min_size=1, max_size=5), data=st.data())
def test_the_checkpoint_is_never_ahead_of_a_record_that_is_not_done(batches, data):
    lanes, progress, running, done = PerKeyOrder(), Progress(), [], set()
    delivered = [batch(number, keys) for number, keys in enumerate(batches)]
    for one in delivered:
        lanes.add(one)
        progress.delivered(one)
    while (batch_slice := lanes.take()) or running:
        running += [(batch_slice, index) for index in batch_slice.indexes] if batch_slice else []
        batch_slice, index = running.pop(data.draw(st.integers(0, len(running) - 1)))
        if data.draw(st.booleans()):
            progress.ack_records(batch_slice.batch.number, [index])
        else:
            progress.ack_record(batch_slice.batch.number, batch_slice.batch.records[index])
        done.add(batch_slice.batch.records[index].sequence_number)
        if all(batch_slice.batch.records[at].sequence_number in done for at in batch_slice.indexes):
            lanes.done(batch_slice)
        contiguous = list(takewhile(lambda r: r.sequence_number in done, chain(*(one.records for one in delivered))))
        assert progress.checkpoint == (checkpoint_of(contiguous[-1]) if contiguous else None)
    assert progress.is_idle


def test_halves_are_a_piece_in_order():
    whole = BatchSlice.whole(batch(3, "abcde"))
    assert whole.as_batch() is whole.batch
    left, right = whole.halves()
    assert [record.partition_key for record in left.as_batch().records] == ["a", "b"]
    assert [record.partition_key for record in right.as_batch().records] == ["c", "d", "e"]
    assert (left.as_batch().number, len(right), right.is_whole) == (3, 3, False)
