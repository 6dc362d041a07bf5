"""Per-key ordering, for any order in which slices are done."""

from collections import defaultdict
from itertools import chain, takewhile

from hypothesis import given, strategies as st

from efo.model import Batch, Record, checkpoint_of
from efo.protocol.per_key_order import BatchSlice, PerKeyOrder
from efo.protocol.progress import Progress


def batch(number, keys, data=b""):
    records = tuple(Record(str(1000 * number + i), 0.0, data, key) for i, key in enumerate(keys))
    return Batch("s", "shard", records, None, 0, number)


def test_each_key_is_a_slice_in_the_order_of_its_first_record():
    order = PerKeyOrder()
    order.add(batch(0, "abacb"))
    slices = [order.take() for _ in range(3)]
    assert [list(batch_slice.indexes) for batch_slice in slices] == [[0, 2], [1, 4], [3]]
    assert order.take() is None
    assert order.records == 5


def test_a_slice_waits_only_for_earlier_slices_of_its_key():
    order = PerKeyOrder()
    order.add(batch(0, "a"))
    first = order.take()
    order.add(batch(1, "ab"))
    assert order.take().first.partition_key == "b"
    assert order.take() is None
    order.done(first)
    assert order.take().batch.number == 1


def test_a_record_without_a_key_is_a_slice_of_its_own_and_waits_for_no_other():
    order = PerKeyOrder()
    order.add(batch(0, ["a", None, None, "a"]))
    order.add(batch(1, [None, "a"]))
    slices = [order.take() for _ in range(4)]
    found = [(each.batch.number, list(each.indexes)) for each in slices]
    assert found == [(0, [0, 3]), (0, [1]), (0, [2]), (1, [0])]
    assert order.take() is None
    assert order.records == 6
    for each in slices:
        order.done(each)
    order.done(order.take())
    assert (order.records, order.size, order._undone, order._waiting) == (0, 0, {}, {})


def test_a_waiting_record_counts_all_bytes_of_its_batch():
    order = PerKeyOrder()
    order.add(batch(0, ""))
    order.add(batch(1, "aab", b"xx"))
    order.add(batch(2, "bb", b"yyy"))
    assert (order.records, order.size) == (5, 12)
    one, two = order.take(), order.take()
    order.done(one)
    assert (order.records, order.size) == (3, 12)
    order.done(two)
    assert (order.records, order.size) == (2, 6)
    order.done(order.take())
    assert (order.records, order.size, order._undone) == (0, 0, {})


@given(
    batches=st.lists(st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=8), max_size=8),
    data=st.data(),
)
def test_each_key_is_handled_in_order_and_completely(batches, data):
    order, running, waiting = PerKeyOrder(), [], [batch(number, keys) for number, keys in enumerate(batches)]
    expected, handled = defaultdict(list), defaultdict(list)
    for record in (record for one in waiting for record in one.records):
        expected[record.partition_key].append(record.sequence_number)
    while waiting or running:
        if waiting and data.draw(st.booleans()):
            order.add(waiting.pop(0))
        while data.draw(st.booleans()) and (batch_slice := order.take()):
            running.append(batch_slice)
        keys = [batch_slice.first.partition_key for batch_slice in running]
        assert all(key is None or keys.count(key) == 1 for key in keys)
        if running:
            batch_slice = running.pop(data.draw(st.integers(0, len(running) - 1)))
            handled[batch_slice.first.partition_key] += [
                record.sequence_number for record in batch_slice.as_batch().records
            ]
            order.done(batch_slice)
        elif batch_slice := order.take():
            running.append(batch_slice)
        elif waiting:
            order.add(waiting.pop(0))
    while batch_slice := order.take():
        handled[batch_slice.first.partition_key] += [
            record.sequence_number for record in batch_slice.as_batch().records
        ]
        order.done(batch_slice)
    handled[None].sort(key=int)  # they have no order
    assert handled == expected | {None: expected[None]}
    assert order.records == 0


@given(batches=st.lists(st.text("abc", min_size=1, max_size=6), min_size=1, max_size=5), data=st.data())
def test_the_checkpoint_never_passes_a_record_that_is_not_done(batches, data):
    order, progress, running, done = PerKeyOrder(), Progress(), [], set()
    delivered = [batch(number, keys) for number, keys in enumerate(batches)]
    for one in delivered:
        order.add(one)
        progress.delivered(one)
    while (batch_slice := order.take()) or running:
        running += [(batch_slice, index) for index in batch_slice.indexes] if batch_slice else []
        batch_slice, index = running.pop(data.draw(st.integers(0, len(running) - 1)))
        progress.ack_records(batch_slice.batch, [index])
        done.add(batch_slice.batch.records[index].sequence_number)
        if all(batch_slice.batch.records[at].sequence_number in done for at in batch_slice.indexes):
            order.done(batch_slice)
        contiguous = list(takewhile(lambda r: r.sequence_number in done, chain(*(one.records for one in delivered))))
        assert progress.checkpoint == (checkpoint_of(contiguous[-1]) if contiguous else None)
    assert progress.is_idle


def test_the_halves_of_a_slice_keep_its_order():
    whole = BatchSlice.whole(batch(3, "abcde"))
    assert whole.as_batch() is whole.batch
    left, right = whole.halves()
    assert [record.partition_key for record in left.as_batch().records] == ["a", "b"]
    assert [record.partition_key for record in right.as_batch().records] == ["c", "d", "e"]
    assert (left.as_batch().number, len(right), right.as_batch() is whole.batch) == (3, 3, False)
