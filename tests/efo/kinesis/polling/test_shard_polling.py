"""Polling over HTTP/2: limits, iterators, failures, back-pressure, and shards that are gone."""

import tracemalloc

import pytest
import trio

from efo.errors import AccessDeniedError, ResourceNotFoundError, ShardGoneError
from efo.events import EventReceived, PollAttempted
from efo.model import Position
from efo.testing.faults.kinds import PASSING, RESPONSE_FAULTS, NoResponse, Refuse
from efo.testing.faults.script import When
from tests.efo.kinesis.sources import SHARD, STREAM, open_sources, read

START = Position.trim_horizon()
MIB = 1024 * 1024


def attempts(sources, operation="GetRecords"):
    return [event for event in sources.seen if isinstance(event, PollAttempted) and event.operation == operation]


async def test_a_backlog_is_read_at_the_rate_that_aws_allows_without_being_throttled(autojump_clock):
    async with open_sources() as sources:
        for _ in range(60):
            sources.fake.put(STREAM, "k", b"x" * (MIB - 1))
        source, size, started_at = sources.poll(START), 0, trio.current_time()
        while size < 59 * MIB:
            event = await source.receive()
            size += sum(len(record.data) for record in event.records)
        assert trio.current_time() - started_at == pytest.approx(25, abs=6)  # 60 MiB less the last 10, at 2 MiB/s
        assert {attempt.error_type for attempt in attempts(sources)} == {None}


async def test_several_consumers_of_a_shard_slow_down_and_all_read_everything(autojump_clock):
    async with open_sources() as sources, trio.open_nursery() as nursery:
        results = []

        async def consume():
            results.append(await read(sources.poll(START), 50))

        for _ in range(4):
            nursery.start_soon(consume)
        for number in range(50):
            sources.put(number)
            await trio.sleep(0.5)
    assert results == [list(range(50))] * 4
    errors = [attempt.error_type for attempt in attempts(sources)]
    assert 0 < errors.count("throttled") < len(errors) / 3


async def test_an_idle_shard_is_asked_once_a_second(autojump_clock):
    async with open_sources() as sources:
        source = sources.poll(START)
        with trio.move_on_after(100):
            await read(source, 1)
        assert len(attempts(sources)) == pytest.approx(100, abs=3)
        assert len(attempts(sources, "GetShardIterator")) == 1


async def test_a_reader_that_is_busy_for_longer_than_an_iterator_lives_continues(autojump_clock):
    async with open_sources() as sources:
        sources.put(1)
        source = sources.poll(START)
        assert await read(source, 1) == [1]
        assert source.has_pending  # what is slow is the reader
        await trio.sleep(1000)
        sources.put(2)
        assert await read(source, 1) == [2]
        assert [attempt.error_type for attempt in attempts(sources)] == [None] * len(attempts(sources))


async def test_an_iterator_that_the_service_calls_expired_is_replaced(autojump_clock):
    async with open_sources() as sources:
        sources.put(1)
        source = sources.poll(START)
        await read(source, 1)
        sources.fake.faults.add(Refuse("ExpiredIteratorException"), When(operation="GetRecords"))
        sources.put(2)
        assert await read(source, 1) == [2]
        assert [a.error_type for a in attempts(sources)].count("expired_iterator") == 1
        assert len(attempts(sources, "GetShardIterator")) == 2


async def test_a_call_without_a_response_is_given_up_and_repeated(autojump_clock):
    async with open_sources() as sources:
        sources.put(1)
        sources.fake.faults.add(NoResponse(), When(operation="GetRecords"))
        assert await read(sources.poll(START), 1) == [1]
        assert [attempt.error_type for attempt in attempts(sources)] == ["silence", None]


@pytest.mark.parametrize("operation", ["GetRecords", "GetShardIterator"])
@pytest.mark.parametrize("fault", [f for f in PASSING if isinstance(f, RESPONSE_FAULTS)], ids=repr)
async def test_a_response_that_is_damaged_or_lost_loses_and_repeats_nothing(autojump_clock, fault, operation):
    async with open_sources() as sources:
        sources.fake.faults.add(fault, When(operation=operation, times=2))
        sources.put(*range(10))
        source = sources.poll(START)
        assert await read(source, 10) == list(range(10))
        sources.put(10)
        assert await read(source, 1) == [10]
        assert sources.fake.faults.fired


@pytest.mark.parametrize("operation", ["GetRecords", "GetShardIterator"])
async def test_a_denied_call_is_final(autojump_clock, operation):
    async with open_sources() as sources:
        sources.fake.faults.add(Refuse("AccessDeniedException"), When(operation=operation))
        source = sources.poll(START)
        with pytest.raises(AccessDeniedError):
            await source.receive()
        assert source.state == "failed"


async def test_a_shard_that_expired_is_gone(autojump_clock):
    async with open_sources() as sources:
        sources.put(1)
        source = sources.poll(START)
        await read(source, 1)
        sources.fake.split(STREAM, SHARD)
        await trio.sleep(26 * 3600)
        with pytest.raises(ShardGoneError):
            await read(source, 1)


async def test_a_deleted_stream_is_an_error_and_not_the_end_of_a_shard(autojump_clock):
    async with open_sources() as sources:
        source = sources.poll(START)
        await source.receive()
        sources.fake.delete_stream(STREAM)
        await trio.sleep(5)
        with pytest.raises(ResourceNotFoundError):
            await read(source, 1)


async def test_the_shard_that_is_listed_is_asked_for_again(autojump_clock):
    async with open_sources() as sources:
        sources.put(1)
        sources.fake.faults.add(Refuse("ResourceNotFoundException"), When(operation="GetShardIterator", times=3))
        assert await read(sources.poll(START), 1) == [1]


async def test_events_report_records_bytes_and_lag(autojump_clock):
    async with open_sources() as sources:
        sources.put(1, 2)
        source = sources.poll(START)
        await source.receive()
        await source.receive()
        first, second = (event for event in sources.seen if isinstance(event, EventReceived))
        assert (first.records, first.millis_behind_latest, first.interval) == (2, 0, None)
        assert first.wire_bytes > 200
        assert second.interval == pytest.approx(0.25)


async def test_a_reader_that_takes_nothing_holds_at_most_a_page(autojump_clock):
    """Back-pressure needs no window: what is not wanted is not asked for (rule R9)."""
    async with open_sources() as sources:
        for _ in range(40):
            sources.fake.put(STREAM, "k", b"x" * (MIB - 1))
        source = sources.poll(START)
        tracemalloc.start()
        try:
            event = await source.receive()
            await trio.sleep(100)
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert len(event.records) == 10
        assert held < 16 * MIB
        assert len(attempts(sources)) == 1
