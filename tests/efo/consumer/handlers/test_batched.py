"""`efo.batched` and `HOLD.since`: batches by number, bytes and time, with the acks of the records that they have."""

from __future__ import annotations

import threading
from math import inf

import pytest
import trio

import efo
from efo import HOLD, FailurePolicy, events
from efo.checks import check_async, name_of
from efo.consumer.handlers.batched import Batched, Waiting, handler_in, in_thread, with_handler
from efo.errors import ConfigurationError, HandlerError
from efo.model import Batch, Checkpoint, Record
from tests.efo.consumer.handlers.test_handler import STREAM, NumberHandler, make_handler, open_environment


async def reached(env, number: int) -> bool:
    """Return whether the saved checkpoint is the record with this index, or what came after it without records."""
    shard_id, records = min(env.fake.records(STREAM).items())
    saved = int((await env.lease(shard_id)).checkpoint.sequence_number)
    after = int(records[number + 1].sequence_number) if number + 1 < len(records) else inf
    return int(records[number].sequence_number) <= saved < after


async def test_a_call_has_so_many_records_of_several_events_and_never_more(autojump_clock):
    handler = NumberHandler()
    async with open_environment(event_records=2) as env:
        env.put(*range(11))
        async with env.consuming(make_handler(env, efo.batched(handler, records=5, seconds=inf))):
            await trio.sleep(20)
            assert handler.calls == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
            assert await reached(env, 9)
            env.put(11)
            await trio.sleep(20)
            assert len(handler.calls) == 2  # two wait
    assert handler.calls[2:] == [[10, 11]]  # what is left at the drain


async def test_an_event_that_is_larger_is_several_calls_and_the_checkpoint_follows_within_it(autojump_clock):
    handler = NumberHandler({8}, times=10**9)
    async with open_environment() as env:
        env.put(*range(10))
        with pytest.raises(ValueError, match="poison"):
            async with env.consuming(make_handler(env, efo.batched(handler, records=4))):
                await trio.sleep(20)
        assert handler.done == list(range(8))
        assert await reached(env, 7)


async def test_a_call_has_so_many_bytes_or_one_larger_record(autojump_clock):
    handler = NumberHandler()
    async with open_environment(event_records=1) as env:
        env.put(11, 12, 13, 1234567890, 14)
        async with env.consuming(make_handler(env, efo.batched(handler, bytes=4, seconds=inf))):
            await trio.sleep(20)
    assert handler.calls == [[11, 12], [13], [1234567890], [14]]


async def test_what_waits_is_handled_after_so_many_seconds_on_an_idle_shard(autojump_clock):
    times = []

    async def handle(batch):
        await trio.lowlevel.checkpoint()
        times.append((trio.current_time(), [int(record.data) for record in batch]))

    async with open_environment(event_records=1) as env:
        env.put(0)
        async with env.consuming(make_handler(env, efo.batched(handle, seconds=30))):
            await trio.sleep(20)
            first = next(t for e, t in zip(env.seen, env.times, strict=True) if isinstance(e, events.BatchDelivered))
            env.put(1)
            assert times == []
            await trio.sleep(30)
            assert times == [(pytest.approx(first + 30), [0, 1])]
            await trio.sleep(60)  # nothing waits: the timer does not run
            assert len(times) == 1
            assert await reached(env, 1)
        assert env.reported(events.AcksOverdue) == []


async def test_many_small_batches_that_wait_are_not_reported_as_overdue(autojump_clock):
    async with open_environment(event_records=1) as env:
        env.put(*range(150))
        async with env.consuming(make_handler(env, efo.batched(NumberHandler(), seconds=100))):
            await trio.sleep(50)
            env.put(*range(150))
            await trio.sleep(100)
        assert env.reported(events.AcksOverdue) == []


async def test_a_shard_is_finished_when_what_was_left_is_done(autojump_clock):
    handler = NumberHandler()
    async with open_environment() as env:
        parent = env.fake.open_shards(STREAM)[0]
        env.put(1, 2)
        env.fake.split(STREAM, parent)
        async with env.consuming(make_handler(env, efo.batched(handler, seconds=inf))):
            await trio.sleep(20)
            assert handler.calls == [[1, 2]]
            assert (await env.lease(parent)).is_finished


@pytest.mark.parametrize("then", ["skip", "dead_letter"])
async def test_only_the_records_that_fail_by_themselves_are_skipped(autojump_clock, then):
    handler, letters = NumberHandler({3, 6}), []

    async def keep(letter):
        await trio.lowlevel.checkpoint()
        letters.append(int(letter.record.data))

    policy = FailurePolicy(then=then, dead_letter=keep if then == "dead_letter" else None)
    async with open_environment(event_records=2) as env:
        env.put(*range(9))
        async with env.consuming(make_handler(env, efo.batched(handler, records=9), on_error=policy)):
            await trio.sleep(60)
            assert await reached(env, 8)
        assert handler.done == [0, 1, 2, 4, 5, 7, 8]
        assert letters == ([3, 6] if then == "dead_letter" else [])
        assert len(env.reported(events.RecordSkipped)) == (0 if letters else 2)


async def test_a_drain_between_two_attempts_acks_nothing_of_the_batch_or_after_it(autojump_clock):
    handler = NumberHandler({1})
    policy = FailurePolicy(attempts=None, retry_for=10_000)
    async with open_environment() as env:
        env.put(*range(10))
        async with env.consuming(make_handler(env, efo.batched(handler, records=3), on_error=policy)):
            await trio.sleep(30)
        assert handler.done == []
        assert (await env.lease()).checkpoint.is_sentinel
        rest = NumberHandler()
        async with env.consuming(make_handler(env, efo.batched(rest, records=3))):
            await trio.sleep(10)
        assert rest.done == list(range(10))


async def test_a_seek_drops_what_waits_and_acks_of_it_have_no_effect(autojump_clock):
    handler, started, go_on = NumberHandler(), trio.Event(), trio.Event()

    async def handle(batch):
        started.set()
        await go_on.wait()
        await handler(batch)

    async with open_environment(event_records=1) as env:
        env.put(*range(6))
        async with env.consuming(make_handler(env, efo.batched(handle, records=4, seconds=inf))) as consumer:
            await started.wait()
            shard_id = env.fake.open_shards(STREAM)[0]
            consumer.seek(shard_id, Checkpoint(env.fake.records(STREAM)[shard_id][0].sequence_number))
            go_on.set()
            await trio.sleep(10)
            assert handler.calls == [[0, 1, 2, 3], [1, 2, 3, 4]]
            assert await reached(env, 4)
            consumer.seek(shard_id, efo.TRIM_HORIZON)  # 5 waits
            await trio.sleep(10)
        assert handler.calls[2:] == [[0, 1, 2, 3], [4, 5]]


async def test_a_pause_calls_nothing_and_a_resume_goes_on(autojump_clock):
    handler = NumberHandler()
    async with open_environment(event_records=1) as env:
        env.put(0, 1)
        async with env.consuming(make_handler(env, efo.batched(handler, seconds=20))) as consumer:
            await trio.sleep(10)
            shard_id = env.fake.open_shards(STREAM)[0]
            consumer.pause(shard_id)
            await trio.sleep(60)
            assert handler.calls == []
            consumer.resume(shard_id)
            await trio.sleep(1)
            assert handler.calls == [[0, 1]]
            env.put(2)
            await trio.sleep(5)
            consumer.pause(shard_id)  # and drain
        assert handler.calls == [[0, 1]]
        assert await reached(env, 1)


async def test_values_come_batched_too_and_a_record_that_cannot_be_deserialized_is_alone(autojump_clock):
    seen = []

    async def handle(values, batch):
        await trio.lowlevel.checkpoint()
        seen.append((values, len(batch)))

    wrapped = efo.batched(efo.deserialize(handle, efo.deserializers.json()), records=4)
    async with open_environment(event_records=1) as env:
        env.put(1, 2, "{", 4)
        async with env.consuming(make_handler(env, wrapped, on_error=FailurePolicy(then="skip"))):
            await trio.sleep(20)
    assert seen == [([1, 2], 2), ([4], 1)]


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: efo.batched(None), "expected a handler of batches"),
        (lambda: efo.batched(efo.batched(NumberHandler())), "expected a handler of batches"),
        (lambda: efo.batched(NumberHandler(), records=0), "records=0: expected 1 or more"),
        (lambda: efo.batched(NumberHandler(), bytes=0.5), "bytes=0.5"),
        (lambda: efo.batched(NumberHandler(), seconds=0), "seconds=0: expected a number above 0 seconds"),
        (lambda: efo.in_thread(efo.batched(print)), "is async, so pass it without in_thread"),
        (lambda: efo.deserialize(efo.batched(print), efo.deserializers.json()), "values, batch"),
        (lambda: efo.Handler(efo.batched(lambda _batch: None)), "async"),
        (lambda: efo.Handler(efo.batched(NumberHandler()), key_concurrency=2), "key_concurrency=1"),
        (lambda: efo.Handler(record_handler=efo.batched(NumberHandler())), "record, batch"),
        (lambda: efo.sync.Handler(efo.batched(NumberHandler())), "async"),
    ],
)
def test_what_cannot_be_batched_is_refused_at_the_call(make, match):
    with pytest.raises(ConfigurationError, match=match):
        make()


async def test_a_wrapper_around_it_stops_everything(autojump_clock):
    inner = efo.batched(NumberHandler())

    async def handle(batch):
        await inner(batch)

    async with open_environment() as env:
        env.put(1)
        with pytest.raises(HandlerError, match="outermost"):
            async with env.consuming(make_handler(env, handle, on_error=FailurePolicy(then="skip"))):
                await trio.sleep(10)


# --- HOLD.since ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["batches", "records", "batched"])
async def test_all_before_the_first_held_record_is_done(autojump_clock, form):
    """A handler with a window of four records: those before it are done."""
    window: list = []

    async def handle(batch):
        await trio.lowlevel.checkpoint()
        window.extend(batch.records)
        del window[:-4]
        return HOLD.since(window[0])

    async def handle_record(record, batch):
        return await handle(efo.Batch(STREAM, batch.shard_id, (record,), None, 0, 0))

    async with open_environment() as env:
        options = {"record_handler": handle_record} if form == "records" else {}
        args = [] if options else [efo.batched(handle, records=5) if form == "batched" else handle]
        env.put(*range(10))
        async with env.consuming(make_handler(env, *args, **options)):
            await trio.sleep(20)
            assert await reached(env, 5)
            env.put(10)  # in a batch of its own: the window begins in an earlier one
            await trio.sleep(20)
            assert await reached(env, 5)
            env.put(11, 12, 13, 14, 15)
            await trio.sleep(20)
            assert await reached(env, 11)


async def test_a_record_that_the_handler_has_not_got_cannot_be_held(autojump_clock):
    async with open_environment() as env:
        env.put(1, 2)
        later = env.fake.records(STREAM)[env.fake.open_shards(STREAM)[0]][1]

        async def handle(_record, batch):
            await trio.lowlevel.checkpoint()
            return HOLD.since(next(r for r in batch if r.sequence_number == later.sequence_number))

        with pytest.raises(HandlerError, match="after those"):
            async with env.consuming(make_handler(env, record_handler=handle)):
                await trio.sleep(10)


async def test_a_mistake_in_since_stops_everything(autojump_clock):
    async def handle(batch):
        return HOLD.since(batch)

    async with open_environment() as env:
        env.put(1)
        with pytest.raises(HandlerError, match="record"):
            async with env.consuming(make_handler(env, handle, on_error=FailurePolicy(then="skip"))):
                await trio.sleep(10)


BATCH = Batch("orders", "shardId-000000000000", (Record("1", 0.0, b"{}", "key"),), "2", 0, 0)


async def handle(batch):
    """Handle a batch."""


def blocking(batch):
    return threading.current_thread()


def generator(batch):
    yield batch


async def async_generator(batch):
    yield batch


class Processor:
    async def __call__(self, batch): ...

    async def method(self, batch): ...

    def blocking(self, batch): ...


async def test_in_thread_runs_a_blocking_function_in_another_thread():
    assert await in_thread(blocking)(BATCH) is not threading.current_thread()


async def test_in_thread_keeps_name_arguments_and_exceptions():
    def refuse(number, *, by):
        raise ValueError(number + by)

    called = in_thread(refuse)
    assert name_of(called) == name_of(refuse)
    with pytest.raises(ValueError, match="5"):
        await called(2, by=3)


def test_in_thread_checks_the_parameters_of_the_function_that_it_wraps():
    with pytest.raises(ConfigurationError, match="cannot be called"):
        check_async(in_thread(lambda: None), "handler", "batch")


@pytest.mark.parametrize("function", [handle, Processor()])
def test_in_thread_of_an_async_function_is_rejected(function):
    with pytest.raises(ConfigurationError, match="the function is async"):
        in_thread(function)


@pytest.mark.parametrize("function", [None, "print", 7])
def test_what_is_no_function_is_rejected(function):
    with pytest.raises(ConfigurationError, match="expected a function"):
        in_thread(function)


def test_a_limiter_of_another_kind_is_rejected():
    with pytest.raises(ConfigurationError, match="CapacityLimiter"):
        in_thread(blocking, limiter=4)


async def test_the_limiter_bounds_the_number_of_threads():
    limiter, running, most = trio.CapacityLimiter(2), 0, 0
    lock = threading.Lock()

    def work():
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        trio.from_thread.run(trio.lowlevel.checkpoint)
        with lock:
            running -= 1

    async with trio.open_nursery() as nursery:
        for _ in range(8):
            nursery.start_soon(in_thread(work, limiter=limiter))
    assert most <= 2
    assert (limiter.total_tokens, limiter.borrowed_tokens) == (2, 0)


async def test_a_running_thread_is_waited_for_when_its_caller_is_cancelled():
    started, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def work():
        started.set()
        assert may_end.wait(60)
        ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(in_thread(work))
        await trio.to_thread.run_sync(started.wait, 60)
        nursery.cancel_scope.cancel()
        may_end.set()
    assert ended.is_set()


@pytest.mark.parametrize("function", [generator, async_generator])
def test_a_generator_function_in_a_thread_is_rejected(function):
    with pytest.raises(ConfigurationError, match="a call of a generator function runs nothing"):
        in_thread(function)


# --- what waits, by itself ---------------------------------------------------------------------------------


def delivered(number, *sizes, continuation="end"):
    """Return a batch of records of these sizes, which are numbered from 100 times its number on."""
    records = tuple(efo.Record(str(100 * number + n), 0.0, bytes(size), "key") for n, size in enumerate(sizes))
    return efo.Batch("orders", "s-0", records, continuation, 50 * number, number)


class Waits:
    """What waits of a shard. `calls`: what was taken, as the numbers of records."""

    def __init__(self, *batches, records=4, size=100, seconds=5.0):
        self.waiting = Waiting(Batched(None, records, size, seconds))
        self.first = 0  # the first batch since the last seek
        for batch in batches:
            self.waiting.add(batch, 10.0)

    def take(self, now=10.0, *, is_last=False):
        return self.waiting.take(now, lambda batch: batch.number >= self.first, is_last=is_last)

    def calls(self, now=10.0, *, is_last=False):
        taken = iter(lambda: self.take(now, is_last=is_last), None)
        return [[int(record.sequence_number) for record in batch] for batch in taken]


def test_nothing_is_due_before_something_waits_and_then_after_so_many_seconds():
    waits = Waits()
    assert (waits.waiting.due, waits.take(is_last=True)) == (inf, None)
    waits.waiting.add(delivered(0, 1), 20.0)
    waits.waiting.add(delivered(1, 1), 22.0)
    assert waits.waiting.due == 25.0
    assert waits.take(24.9) is None
    assert waits.calls(25.0) == [[0, 100]]
    assert waits.waiting.due == inf


@pytest.mark.parametrize(
    ("batches", "calls", "rest"),
    [
        ([delivered(0, 1, 1, 1)], [], [[0, 1, 2]]),
        ([delivered(0, 1, 1, 1, 1)], [[0, 1, 2, 3]], []),
        ([delivered(0, 1, 1), delivered(1, 1, 1, 1)], [[0, 1, 100, 101]], [[102]]),
        ([delivered(0, *[1] * 9)], [[0, 1, 2, 3], [4, 5, 6, 7]], [[8]]),
        ([delivered(0, 50, 49)], [], [[0, 1]]),
        ([delivered(0, 50, 50)], [[0, 1]], []),
        ([delivered(0, 50), delivered(1, 51)], [[0]], [[100]]),
        ([delivered(0, 60, 30), delivered(1, 30, 10)], [[0, 1]], [[100, 101]]),
        ([delivered(0, 500, 1)], [[0]], [[1]]),
        ([delivered(0, 1, 500, 1)], [[0], [1]], [[2]]),
        ([delivered(0, 1), delivered(1, 500)], [[0], [100]], []),
    ],
)
def test_a_call_has_as_many_records_and_bytes_as_fit(batches, calls, rest):
    waits = Waits(*batches)
    assert waits.calls() == calls
    assert waits.calls(is_last=True) == rest
    assert waits.waiting.due == inf


def test_a_call_has_the_place_of_its_last_record():
    waits = Waits(delivered(0, 1), delivered(1, 1, 1, 1, continuation="more"), delivered(2, 1), records=3)
    first, second = waits.take(), waits.take(is_last=True)
    assert (first.number, first.continuation, first.millis_behind_latest, len(first)) == (1, None, 50, 3)
    assert (second.number, second.continuation, second.millis_behind_latest, len(second)) == (2, "end", 100, 2)
    whole = Waits(delivered(1, 1, 1, 1, continuation="more"), records=3).take()
    assert (whole.number, whole.continuation) == (1, "more")


def test_what_was_delivered_before_a_seek_is_dropped():
    waits = Waits(delivered(0, *[1] * 6), delivered(1, 1), delivered(2, 1, 1))
    assert [int(record.sequence_number) for record in waits.take()] == [0, 1, 2, 3]
    waits.first = 2
    assert waits.calls() == []
    assert waits.calls(is_last=True) == [[200, 201]]
    waits.waiting.add(delivered(3, 1, 1, 1), 10.0)
    assert waits.calls() == []  # the counts began again
    waits.first = 9
    assert waits.calls(is_last=True) == []


def test_the_limits_of_a_call_by_default():
    async def handle(batch):
        """Process nothing."""

    made = efo.batched(handle)
    assert (made.records, made.size, made.seconds) == (10_000, 16 * 1024 * 1024, 5.0)
    assert efo.batched(handle, seconds=inf).seconds == inf


@pytest.mark.parametrize("limit", [{"records": 0}, {"bytes": 0}, {"seconds": 0}, {"seconds": "5"}])
def test_a_limit_that_is_none_is_refused(limit):
    async def handle(batch):
        """Process nothing."""

    with pytest.raises(efo.errors.ConfigurationError, match=f"{next(iter(limit))}="):
        efo.batched(handle, **limit)


def test_the_limits_stay_when_a_surface_moves_the_handler():
    async def handle(batch):
        """Process nothing."""

    made = with_handler(efo.batched(handle, records=7, bytes=8, seconds=9), lambda function: (function,))
    assert (made.handler, made.records, made.size, made.seconds) == ((handle,), 7, 8, 9)
    assert with_handler(handle, lambda function: (function,)) == (handle,)
    assert handler_in(made) == (handle,)
    assert handler_in(handle) is handle
