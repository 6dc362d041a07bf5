"""What a Handler calls for each batch of a shard, and what it acks: the shard is the test's."""

from __future__ import annotations

from contextlib import contextmanager
from math import inf

import pytest
import trio

import efo
from efo import HOLD, FailurePolicy, Handler
from efo.consumer.handlers import handler as handlers
from efo.errors import ConfigurationError, HandlerError
from efo.model import Batch, Checkpoint, Record

POLICY = FailurePolicy(then="skip")


def batch(number: int, *keys: str | None, size: int = 1) -> Batch:
    """Return a batch of records with these keys, numbered from 100 times its number on."""
    records = tuple(Record(str(100 * number + n), 0.0, bytes(size), key) for n, key in enumerate(keys))
    return Batch("orders", "s-0", records, None, 0, number)


class Shard:
    """A shard with these batches. `acks`: what was acked. `spans`: the records of each span, and how many are open."""

    shard_id, stream, ages = "s-0", "orders", None
    is_paused = is_draining = False
    overdue_after = 10.0

    def __init__(self, *batches: Batch, is_traced: bool = False) -> None:
        self.batches = [*batches]
        self.is_traced = is_traced
        self.acks: list[object] = []
        self.seen: list[object] = []
        self.observer = self.seen.append
        self.spans: list[list[int]] = []
        self.open_spans = 0
        self.wanted_from = 0
        self.taken = 0

    def __aiter__(self):
        return self

    async def __anext__(self) -> Batch:
        await trio.lowlevel.checkpoint()
        if not self.batches:
            raise StopAsyncIteration
        self.taken += 1
        return self.batches.pop(0)

    def is_current(self, batch: Batch) -> bool:
        return batch.number >= self.wanted_from

    is_wanted = is_current

    async def resumed(self) -> None:
        await trio.lowlevel.checkpoint()

    async def wait(self, batch: Batch, seconds: float) -> bool:
        await trio.sleep(seconds)
        return self.is_wanted(batch)

    @contextmanager
    def process_span(self, batch: Batch):
        self.spans.append(numbers(batch.records))
        self.open_spans += 1
        yield
        self.open_spans -= 1

    def ack_through(self, batch: Batch, index: int) -> None:
        self.acks.append(("through", int(batch.records[index].sequence_number)))

    def ack_records(self, batch: Batch, indexes) -> None:
        self.acks.append(numbers(batch.records[index] for index in indexes))

    def ack_to(self, checkpoint: Checkpoint, *, inclusive: bool = True) -> None:
        self.acks.append(("to", str(checkpoint), inclusive))


def numbers(records) -> list[int]:
    return [int(record.sequence_number) for record in records]


class Calls:
    """A handler that notes its calls. `outcomes`: what each returns or raises, at last None. `seconds`: of a call."""

    def __init__(self, *outcomes: object, seconds: float = 0.0) -> None:
        self.outcomes, self.seconds = [*outcomes], seconds
        self.made: list[object] = []
        self.in_span: list[int] = []
        self.shard: Shard | None = None

    async def batch(self, batch: Batch) -> object:
        return await self._call(numbers(batch))

    async def record(self, record: Record, batch: Batch) -> object:
        assert record in batch.records
        return await self._call(int(record.sequence_number))

    async def _call(self, what: object) -> object:
        self.made.append(what)
        self.in_span.append(0 if self.shard is None else self.shard.open_spans)
        await trio.sleep(self.seconds)
        outcome = self.outcomes.pop(0) if self.outcomes else None
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


async def test_each_batch_is_a_call_and_acked_through(autojump_clock):
    calls, shard = Calls(), Shard(batch(1, "a", "b"), batch(2, "a"))
    await Handler(calls.batch)(shard)
    assert (calls.made, shard.acks) == ([[100, 101], [200]], [("through", 101), ("through", 200)])


async def test_each_record_is_a_call_and_acked_through(autojump_clock):
    calls, shard = Calls(), Shard(batch(1, "a", "b"), batch(2, "a"))
    await Handler(record_handler=calls.record)(shard)
    assert calls.made == [100, 101, 200]
    assert shard.acks == [("through", 100), ("through", 101), ("through", 200)]


async def test_the_records_of_a_batch_that_is_no_longer_wanted_are_not_processed(autojump_clock):
    shard = Shard(batch(1, "a", "b"), batch(2, "a"))
    made = []

    async def handle(record: Record, _batch: Batch) -> None:
        made.append(int(record.sequence_number))
        shard.wanted_from = 2

    await Handler(record_handler=handle)(shard)
    assert made == [100, 200]


@pytest.mark.parametrize("is_traced", [False, True])
@pytest.mark.parametrize("kind", ["batch", "batched", "by key"])
async def test_a_call_is_in_the_span_of_its_records_if_the_shard_is_traced(autojump_clock, is_traced, kind):
    shard = Shard(batch(1, "a", "b"), is_traced=is_traced)
    calls = Calls()
    calls.shard = shard
    handler = efo.batched(calls.batch) if kind == "batched" else calls.batch
    await Handler(handler, key_concurrency=2 if kind == "by key" else 1)(shard)
    expected = [[100], [101]] if kind == "by key" else [[100, 101]]
    assert sorted(shard.spans) == (expected if is_traced else [])
    assert all(calls.in_span) is is_traced
    assert shard.open_spans == 0


async def test_what_is_held_at_the_end_is_flushed(autojump_clock):
    flushed = []

    async def flush(shard_id: str) -> None:
        flushed.append(shard_id)

    shard = Shard(batch(1, "a"))
    await Handler(Calls(HOLD).batch, flush=flush)(shard)
    assert (flushed, shard.acks) == (["s-0"], [("through", 100)])
    await Handler(Calls().batch, flush=flush)(Shard(batch(1, "a")))
    assert flushed == ["s-0"]


async def test_batches_that_wait_are_acked_to_their_last_record_and_reported_later(autojump_clock):
    shard = Shard(batch(1, "a", "b"), batch(2, "a"))
    calls = Calls()
    await Handler(efo.batched(calls.batch, seconds=7))(shard)
    assert (calls.made, shard.acks) == ([[100, 101, 200]], [("to", "200", True)])
    assert shard.overdue_after == 17.0


async def test_what_waits_and_is_not_current_at_its_ack_is_not_acked(autojump_clock):
    shard = Shard(batch(1, "a"))

    async def seek(_batch: Batch) -> None:
        shard.wanted_from = 9

    await Handler(efo.batched(seek))(shard)
    assert shard.acks == []


async def test_after_a_seek_what_comes_next_is_processed(autojump_clock):
    """A call that fails is abandoned when the seek comes, and the records after the seek are not."""
    shard = Shard(batch(1, "a"), batch(2, "a"))
    made = []

    async def handle(batch: Batch) -> None:
        made.append(batch.number)
        if batch.number == 1:
            shard.wanted_from = 2
            raise OSError("down")

    policy = FailurePolicy(attempts=3)
    await Handler(efo.batched(handle, records=1), on_error=policy)(shard)
    assert (made, shard.acks) == ([1, 2], [("to", "200", True)])


# --- several keys ------------------------------------------------------------------------------------------


async def test_so_many_keys_are_processed_at_once_and_each_slice_is_acked_by_itself(autojump_clock):
    shard = Shard(batch(1, "a", "b", "a", "c"), batch(2, "a"))
    calls = Calls(seconds=1.0)
    await Handler(calls.batch, key_concurrency=2)(shard)
    assert sorted(calls.made) == [[100, 102], [101], [103], [200]]
    assert calls.made.index([200]) > calls.made.index([100, 102])
    assert sorted(shard.acks) == sorted(calls.made)
    assert trio.current_time() == 2.0  # two calls at once


async def test_the_records_of_a_key_are_calls_one_after_the_other(autojump_clock):
    shard = Shard(batch(1, "a", "b", "a"))
    calls = Calls(seconds=1.0)
    await Handler(record_handler=calls.record, key_concurrency=3)(shard)
    assert sorted(calls.made[:2]) == [100, 101]
    assert (calls.made[2:], trio.current_time()) == ([102], 2.0)
    assert sorted(shard.acks) == [[100], [101], [102]]


async def test_with_several_keys_nothing_can_be_held(autojump_clock):
    with pytest.RaisesGroup(HandlerError, flatten_subgroups=True, allow_unwrapped=True):
        await Handler(Calls(HOLD).batch, key_concurrency=2)(Shard(batch(1, "a")))


@pytest.mark.parametrize(
    ("name", "limit", "size", "taken"), [("MAX_PENDING_RECORDS", 4, 1, 2), ("MAX_PENDING_BYTES", 20, 5, 2)]
)
async def test_a_shard_is_not_read_further_while_so_much_waits(autojump_clock, monkeypatch, name, limit, size, taken):
    monkeypatch.setattr(handlers, name, limit)
    shard = Shard(*(batch(n, "a", "a", size=size) for n in range(1, 6)))
    with trio.move_on_after(5):
        await Handler(Calls(seconds=10.0).batch, key_concurrency=3)(shard)
    assert shard.taken == taken


# --- arguments ---------------------------------------------------------------------------------------------


async def handle(batch: Batch) -> None:
    """Process nothing."""


def plain(batch: Batch) -> None:
    """Process nothing, without `async`."""


async def handle_record(record: Record, batch: Batch) -> None:
    """Process nothing."""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "pass either handler, for batches, or record_handler"),
        ({"handler": handle, "record_handler": handle_record}, "pass either handler"),
        ({"handler": plain}, "handler"),
        ({"handler": efo.batched(plain)}, "handler"),
        ({"record_handler": handle}, "record_handler"),
        ({"handler": handle, "flush": plain}, "flush"),
        ({"handler": handle, "key_concurrency": 0}, "key_concurrency=0"),
        ({"handler": efo.batched(handle), "key_concurrency": 2}, r"efo\.batched\(\.\.\.\) needs key_concurrency=1"),
        ({"handler": handle, "observer": 7}, "observer=7"),
        ({"handler": handle, "observer": lambda: None}, "observer"),
        ({"handler": handle, "on_error": 7}, "on_error=7: expected a FailurePolicy"),
    ],
)
def test_a_wrong_argument_is_refused(arguments, message):
    with pytest.raises(ConfigurationError, match=message):
        Handler(**arguments)


def test_what_a_handler_may_have():
    made = Handler(handle, observer=[].append, on_error=lambda _error: POLICY, key_concurrency=2)
    assert made._rng is not None
    assert Handler(efo.batched(handle, seconds=inf), key_concurrency=1)._key_concurrency == 1
    assert Handler(handle)._on_error == FailurePolicy()
