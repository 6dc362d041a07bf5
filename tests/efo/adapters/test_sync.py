"""`efo.sync` as scripts, threads and notebooks use it."""

from __future__ import annotations

import asyncio
import threading

import pytest

import efo
import efo.sync
from tests.efo.adapters.programs import World, use_virtual_time


@pytest.fixture(autouse=True)
def virtual_time(monkeypatch):
    use_virtual_time(monkeypatch)


def world_of(count, shards=1):
    world = World(shards)
    world.put(*range(count))
    return world


def read_all(world, count):
    got = []
    with efo.sync.open_consumer(world.stream(), **world.options()) as consumer:
        for record, batch in consumer.records():
            got.append(int(record.data))
            consumer.ack_record(batch, record)
            if len(got) == count:
                return got
    raise AssertionError("the iteration ended")


def test_a_half_read_iterator_goes_on_where_it_was_left():
    world, got = world_of(0), []
    with efo.sync.open_consumer(world.stream(), **world.options()) as consumer:
        for number in range(3):
            world.put(number)
            for batch in consumer:
                got += [int(record.data) for record in batch]
                consumer.ack(batch)
                break
    assert got == [0, 1, 2]


def test_records_that_are_not_acked_are_read_again_and_those_before_them_are_not():
    world = world_of(10)
    assert len(read_all(world, 4)) == 4
    assert len(read_all(world, 6)) == 6


def test_what_was_held_can_be_acked_after_a_drain_has_ended_the_loop():
    world, held = world_of(10, shards=2), []
    with efo.sync.open_consumer(world.stream(), **world.options()) as consumer:
        for batch in consumer:
            held.append(batch)
            if sum(map(len, held)) == 10:
                consumer.drain()
        for batch in held:
            consumer.ack_through(batch)
    assert all(not lease.checkpoint.is_sentinel for lease in world.leases().values())


def test_it_works_beside_a_running_event_loop():
    """As in a Jupyter cell: code without `await`, in the thread of a loop that runs."""

    async def cell():
        return read_all(world_of(5), 5)

    assert sorted(asyncio.run(cell())) == list(range(5))


def test_it_works_in_a_thread_and_another_thread_drains_it():
    world, ended = world_of(5), []
    with efo.sync.open_consumer(world.stream(), **world.options()) as consumer:

        def read():
            for batch in consumer:
                consumer.ack(batch)
                got.set()
            ended.append(True)

        got = threading.Event()
        thread = threading.Thread(target=read)
        thread.start()
        assert got.wait(60)
        consumer.drain()
        thread.join(60)
    assert ended == [True]
    assert next(iter(consumer), "ended") == "ended"


def test_handlers_run_in_the_calling_thread():
    world, threads = world_of(6, shards=3), []
    with efo.sync.open_consumer(world.stream(), **world.options()) as consumer:

        def bill(_record, _batch):
            threads.append(threading.current_thread())
            if len(threads) == 6:
                consumer.drain()

        consumer.run(efo.sync.Handler(record_handler=bill))
    assert threads == [threading.main_thread()] * 6


def test_system_exit_of_a_handler_ends_the_program():
    world = world_of(1)

    def leave(_batch):
        raise SystemExit(3)

    with pytest.raises(SystemExit) as caught:
        efo.sync.consume(world.stream(), leave, **world.options())
    assert caught.value.code == 3
    (lease,) = world.leases().values()
    assert (lease.owner, lease.checkpoint) == (None, efo.Checkpoint.TRIM_HORIZON)


def test_held_records_are_flushed_in_a_drain():
    world, flushed = world_of(3), []
    with efo.sync.open_consumer(world.stream(), **world.options()) as consumer:

        def hold(_batch):
            consumer.drain()
            return efo.HOLD

        consumer.run(efo.sync.Handler(hold, flush=flushed.append))
    assert len(flushed) == 1
    (lease,) = world.leases().values()
    assert not lease.checkpoint.is_sentinel


def test_an_iteration_raises_the_error_that_ended_it():
    world = world_of(1)

    def start(_lease):
        raise RuntimeError("no start")

    settings = efo.ConsumerSettings(start_at=start)
    with (
        pytest.raises(RuntimeError, match="no start"),
        efo.sync.open_consumer(world.stream(), **world.options(settings=settings)) as consumer,
    ):
        next(consumer)


async def async_handler(_batch):
    pass


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((async_handler,), "async_handler is async: write `def` for efo.sync"),
        ((None,), "pass either handler"),
        ((lambda: None,), "cannot be called with"),
    ],
)
def test_a_handler_that_is_none_is_refused_at_the_call(arguments, message):
    with pytest.raises(efo.errors.ConfigurationError, match=message):
        efo.sync.consume("orders", *arguments, application="app")


def test_a_number_of_threads_that_is_none_is_refused():
    with pytest.raises(efo.errors.ConfigurationError, match="threads=-1"):
        efo.sync.Handler(print, threads=-1)


def test_a_reader_for_another_surface_is_refused():
    world = world_of(0)
    with efo.sync.open_consumer(world.stream(), **world.options()) as consumer:
        for reader in (efo.Handler(async_handler), async_handler, None):
            with pytest.raises(efo.errors.ConfigurationError, match=r"efo\.sync\.Handler"):
                consumer.run(reader)
        with pytest.raises(efo.errors.ConfigurationError, match="expected the Batch"):
            consumer.ack("batch")


def test_a_missing_application_is_refused_at_the_call():
    with (
        pytest.raises(efo.errors.ConfigurationError, match="application"),
        efo.sync.open_consumer("orders", application=""),
    ):
        pass


def test_a_handler_of_a_surface_that_trio_calls_says_so():
    import trio  # noqa: PLC0415

    async def main():
        async with world.stream() as kinesis:
            await efo.consume(kinesis, efo.sync.Handler(print)._handler, **world.options())

    world = world_of(1)
    with pytest.raises(efo.errors.EfoError, match="use the same surface"):
        trio.run(main)


def test_an_ack_of_a_batch_without_records_is_refused_and_the_consumer_goes_on():
    with efo.sync.open_consumer((world := world_of(3)).stream(), **world.options()) as consumer:
        batch = next(consumer)
        with pytest.raises(efo.errors.ConfigurationError, match="without records"):
            consumer.ack(efo.Batch(batch.stream, batch.shard_id, (), None, 0, batch.number))
        consumer.ack(batch)
        assert consumer.status().shards
