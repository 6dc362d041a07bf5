"""The limits of age of a shard, over FakeKinesis in virtual time: what is dropped, and nothing else (R3, R11)."""

from __future__ import annotations

from datetime import timedelta

import pytest
import trio

import efo
from efo import events
from efo.consumer.age_limits import AgeLimits, limits_of
from efo.consumer.handlers.handler import Handler
from efo.model import Batch, Checkpoint, Record
from efo.protocol.failure import FailurePolicy
from efo.protocol.messages import SubscribeToShardEvent
from efo.settings import ConsumerSettings
from tests.efo.consumer.test_shard_stream import STREAM, open_environment

BEHIND = ["fanout", "polling"]


def dropped(env):
    return [event for event in env.seen if isinstance(event, events.RecordsDropped)]


@pytest.mark.parametrize("read_mode", BEHIND)
async def test_the_position_covers_what_is_dropped(autojump_clock, read_mode):
    async with open_environment() as env:
        env.put(*range(10))
        await trio.sleep(1000)
        async with env.consuming(max_record_age_seconds=600, read_mode=read_mode):
            await trio.sleep(20)
            assert (env.received, sum(event.records for event in dropped(env))) == ([], 10)
            (first, *_) = dropped(env)
            assert (first.reason, first.since) == ("too_old", env.fake.settings.epoch)
        assert await env.checkpoint() >= Checkpoint(env.number(9))
        env.seen.clear()
        async with env.consuming(max_record_age_seconds=600, read_mode=read_mode):
            env.put(10)
            await trio.sleep(20)
        assert (env.received, dropped(env)) == ([10], [])


async def test_a_record_is_old_when_its_turn_comes(autojump_clock):
    async with open_environment(event_records=1) as env:
        env.pace = 400.0
        env.put(*range(4))
        async with env.consuming(max_record_age_seconds=600.0):
            await trio.sleep(2000)
        assert env.received == [0, 1]
        assert sum(event.records for event in dropped(env)) == 2


async def test_dropped_records_of_an_event_do_not_ack_those_before_them(autojump_clock):
    async with open_environment(event_records=1) as env:
        held = []

        async def hold(shard):
            async for batch in shard:
                held.append(batch)
                if len(held) == 1:
                    env.put(1)
                    await trio.sleep(1000)  # the next one is too old then

        async with env.consuming(hold, max_record_age_seconds=600):
            env.put(0)
            await trio.sleep(1100)
            assert len(held) == len(dropped(env)) == 1
        assert (await env.checkpoint()) < Checkpoint(env.number(0))


@pytest.mark.parametrize("read_mode", BEHIND)
async def test_a_backlog_is_skipped_once_and_the_shard_goes_on(autojump_clock, read_mode):
    async with open_environment() as env:
        for number in range(12):  # more than a page of GetRecords
            env.fake.put(STREAM, "k", b"%1000000d" % number)
        await trio.sleep(1000)
        env.put(12)
        await trio.sleep(10)
        async with env.consuming(skip_when_behind_seconds=600, read_mode=read_mode):
            await trio.sleep(30)
            env.put(13)
            await trio.sleep(30)
        (hole,) = dropped(env)
        assert (env.received, hole.reason, hole.records) == ([13], "behind", 1 if read_mode == "fanout" else 10)
        assert (hole.since, hole.until) == (
            env.fake.settings.epoch,
            pytest.approx(env.fake.settings.epoch + 1010, abs=9),
        )
        assert await env.checkpoint() >= Checkpoint(env.number(13))


async def test_a_shard_within_the_limit_is_read_whole(autojump_clock):
    async with open_environment(event_records=2) as env:
        env.put(*range(10))
        await trio.sleep(500)
        env.put(10)
        async with env.consuming(skip_when_behind_seconds=600, max_record_age_seconds=600):
            await trio.sleep(30)
        assert (env.received, dropped(env)) == ([*range(11)], [])


async def test_a_jump_forgets_nothing_that_was_delivered(autojump_clock):
    async with open_environment(event_records=1) as env:
        got, slow = [], trio.Event()

        async def unacked_first(shard):
            async for batch in shard:
                got.append(int(batch.records[0].data))
                if got == [0]:
                    first = batch
                    env.put(1, 2)
                    await trio.sleep(1000)
                    env.put(3)
                elif got[-1] == 4:
                    slow.set()
                    assert shard.is_in_flight(first)

        async with env.consuming(unacked_first, skip_when_behind_seconds=600):
            env.put(0)
            await trio.sleep(1100)
            env.put(4)
            await slow.wait()
        assert (got, [hole.reason for hole in dropped(env)]) == ([0, 3, 4], ["behind"])
        assert (await env.checkpoint()) < Checkpoint(env.number(0))


async def test_children_of_a_shard_that_was_skipped_are_read(autojump_clock):
    async with open_environment(event_records=2) as env:
        env.put(*range(10))
        env.fake.split(STREAM, env.shard_id)
        await trio.sleep(1000)
        env.put(10)
        async with env.consuming(skip_when_behind_seconds=600):
            await trio.sleep(60)
            env.put(11)
            await trio.sleep(60)
        assert env.received[-1:] == [11]
        assert await env.checkpoint() == Checkpoint.SHARD_END


async def test_dead_letters_are_stored_before_the_position_passes_them(autojump_clock):
    async with open_environment() as env:
        letters, handled, fails = [], [], True

        async def store(letter):
            if fails:
                raise OSError
            letters.append(int(letter.record.data))

        async def handle(batch):
            handled.extend(int(record.data) for record in batch)

        policy = FailurePolicy(attempts=None, retry_for=3600, then="dead_letter", dead_letter=store)
        env.put(0, 1)
        await trio.sleep(1000)
        env.put(2)
        async with env.consuming(Handler(handle, on_error=policy), max_record_age_seconds=600):
            await trio.sleep(100)
            assert (letters, handled) == ([], [])
            assert (await env.checkpoint()).is_sentinel
            fails = False
            await trio.sleep(100)
        assert (letters, handled) == ([0, 1], [2])
        stored = [event for event in env.seen if isinstance(event, events.RecordDeadLettered)]
        assert {event.error_type for event in stored} == {"record_too_old"}


async def test_batches_by_time_do_not_lose_a_dead_letter_that_takes_long(autojump_clock):
    async with open_environment(event_records=1) as env:
        letters, handled = [], []

        async def store(letter):
            await trio.sleep(5)
            letters.append(int(letter.record.data))

        async def handle(batch):
            handled.extend(int(record.data) for record in batch)

        def policy(error):
            is_old = isinstance(error, efo.errors.RecordTooOldError)
            return FailurePolicy(then="dead_letter", dead_letter=store) if is_old else FailurePolicy()

        handler = Handler(efo.batched(handle, records=100, seconds=2), on_error=policy)

        async with env.consuming(handler, max_record_age_seconds=600) as consumer:
            env.put(0)
            await trio.sleep(1)
            consumer.pause(env.shard_id)
            env.put(1)
            await trio.sleep(1000)
            env.put(2)
            consumer.resume(env.shard_id)
            await trio.sleep(100)
        assert (set(letters), handled) == ({1}, [0, 2])


@pytest.mark.parametrize("value", [0, -1, "1h", timedelta(0), True])
@pytest.mark.parametrize("name", ["max_record_age_seconds", "skip_when_behind_seconds"])
def test_a_wrong_limit_is_refused(name, value):
    with pytest.raises(efo.errors.ConfigurationError, match=f"{name}=.*above 0"):
        ConsumerSettings(**{name: value})


# --- the limits by themselves ------------------------------------------------------------------------------

NOW = 10_000.0


def record(number, arrived=NOW):
    return Record(str(number), arrived, b"1", "key")


def limits(max_age=None, max_behind=None):
    """Return the limits of a shard, and the events that they report."""
    seen = []
    return AgeLimits("s-0", max_age, max_behind, lambda: NOW, seen.append), seen


def event(behind, *arrivals, to="200"):
    return SubscribeToShardEvent(tuple(record(n, at) for n, at in enumerate(arrivals, 101)), behind, to)


def test_a_shard_is_skipped_once_until_it_was_within_the_limit():
    ages, seen = limits(max_behind=600.0)
    behinds = [(0, False), (600_000, False), (600_001, True), (700_000, False), (600_000, False), (600_001, True)]
    assert [(behind, ages.skips(event(behind))) for behind, _ in behinds] == behinds
    assert len(seen) == 2


@pytest.mark.parametrize(
    ("arrivals", "since"), [((NOW - 800, NOW - 790), NOW - 800), ((), NOW - 700), ((0.0, NOW - 790), NOW - 700)]
)
def test_what_is_skipped_is_reported_from_its_first_record_on(arrivals, since):
    ages, seen = limits(max_behind=600.0)
    assert ages.skips(event(700_000, *arrivals))
    assert seen == [events.RecordsDropped("s-0", "behind", since, NOW, len(arrivals))]


def test_the_end_of_a_shard_is_never_skipped_and_nothing_without_a_limit():
    assert not limits(max_behind=600.0)[0].skips(event(700_000, to=None))
    assert not limits(max_age=600.0)[0].skips(event(700_000))


MIXED = (record(101, NOW - 601), record(102, NOW - 600), record(103, 0.0), record(104, 0.5), record(105, NOW - 700))


def never(_records):
    raise AssertionError("there is no sink")


async def test_records_that_are_too_old_are_dropped_and_reported_together():
    ages, seen = limits(max_age=600.0)
    assert await ages.sort(MIXED, never) == (MIXED[1], MIXED[2])
    assert seen == [events.RecordsDropped("s-0", "too_old", 0.5, NOW - 601, 3)]
    assert await ages.sort(MIXED[1:3], never) == MIXED[1:3]
    assert len(seen) == 1


@pytest.mark.parametrize("is_stored", [True, False])
async def test_records_that_are_too_old_are_dead_letters_if_there_is_a_sink(is_stored):
    ages, seen = limits(max_age=600.0)
    stored = []

    async def store(batch):
        stored.append(batch.records)
        return is_stored

    ages.dead_letter = store
    young = await ages.sort(MIXED, lambda records: Batch("orders", "s-0", records, None, 0, 0))
    assert young == ((MIXED[1], MIXED[2]) if is_stored else None)
    assert (stored, seen) == ([(MIXED[0], MIXED[3], MIXED[4])], [])


async def test_a_reader_that_takes_it_over_gets_what_is_too_old_and_decides():
    ages, seen = limits(max_age=600.0)
    is_old = ages.take_over()
    assert await ages.sort(MIXED, never) == MIXED
    assert ([is_old(each) for each in MIXED], seen) == ([True, False, False, True, True], [])
    unlimited, _ = limits(max_behind=600.0)
    assert await unlimited.sort(MIXED, never) == MIXED
    assert not unlimited.take_over()(MIXED[0])


@pytest.mark.parametrize("name", ["max_record_age_seconds", "skip_when_behind_seconds"])
def test_a_shard_has_limits_if_there_is_one(name):
    assert limits_of("s-0", ConsumerSettings(), lambda: NOW, lambda _event: None) is None
    ages = limits_of("s-0", ConsumerSettings(**{name: 600.0}), lambda: NOW, lambda _event: None)
    assert ages is not None
    assert ages.max_age == (600.0 if name.startswith("max") else None)
    assert ages.skips(event(700_000)) is name.startswith("skip")
