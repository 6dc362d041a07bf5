"""How each form ends: by `until`, by its time, by an error; and what is reported of it. See test_conformance.py too."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

import pytest

import efo
from efo import events
from efo.consumer.streams.opening import logging_observer
from tests.efo.adapters.programs import STREAM, World, hash_of
from tests.efo.adapters.test_conformance import Reader, numbers


class Acked:
    """Takes batches and acks them; it lets the consumer end by itself."""

    def __init__(self):
        self.got = []
        self.consumer = None

    def __call__(self, consumer, batch):
        self.consumer = consumer
        self.got += numbers(batch)
        return True


@pytest.mark.promise("until now")
def test_until_now_ends_when_all_that_was_there_is_processed_over_reshards(program):
    world, reader = World(shards=2, event_records=7), Acked()
    world.put(*range(60))

    def reshard(fake):
        first, second = fake.open_shards(STREAM)
        children = fake.split(STREAM, first)
        fake.put_many(STREAM, [(f"key-{hash_of(n) % 7}", str(n).encode()) for n in range(60, 100)])
        fake.merge(STREAM, children[1], second)
        fake.put_many(STREAM, [(f"key-{hash_of(n) % 7}", str(n).encode()) for n in range(100, 120)])

    world.before.append(reshard)
    program(world, reader, until="now")
    assert sorted(reader.got) == list(range(120))
    unfinished = [lease for lease in world.leases().values() if not lease.is_finished]
    assert len(unfinished) == 2
    assert all(lease.owner is None for lease in unfinished)


@pytest.mark.promise("until, empty, polling")
def test_until_now_ends_on_an_empty_stream_which_is_read_by_polling(program):
    polling = efo.ConsumerSettings(lease_scan_seconds=1.0, read_mode="polling")
    for settings in (polling, efo.ConsumerSettings(lease_scan_seconds=1.0)):
        reader = Acked()
        program(World(shards=3), reader, until="now", settings=settings)
        assert reader.got == []


@pytest.mark.promise("until a time")
def test_until_a_time_waits_for_it_and_then_ends(program):
    world, reader = World(shards=1), Acked()
    world.put(0)

    def read(consumer, batch):
        if not reader.got:
            world.put(1)
        return reader(consumer, batch)

    until = datetime.fromtimestamp(world.settings.epoch + 30, tz=UTC)
    program(world, read, until=until)
    assert reader.got == [0, 1]
    (lease,) = world.leases().values()
    assert not lease.checkpoint.is_sentinel


@pytest.mark.promise("until and retries")
def test_what_fails_and_is_retried_is_still_processed_before_the_end(program_with_policy):
    world, got = World(shards=1, event_records=1), []
    world.put(*range(3))

    def fail_at_first(_consumer, batch):
        got.extend(numbers(batch))
        if got.count(2) == 1 and 2 in numbers(batch):
            raise ValueError("passes")
        return True

    program_with_policy(world, fail_at_first, on_error=efo.FailurePolicy(attempts=3), until="now")
    assert (set(got), got.count(2)) == ({0, 1, 2}, 2)
    again = Acked()
    program_with_policy(world, again, until="now")
    assert again.got == []


@pytest.mark.promise("timeout")
def test_a_timeout_drains_whatever_was_read(program):
    world, reader, again = World(shards=1), Acked(), Acked()
    world.put(*range(3))
    program(world, reader, timeout=3)
    assert reader.got == [0, 1, 2]
    program(world, again, timeout=3)
    assert again.got == []


@pytest.mark.promise("caught_up")
def test_caught_up_says_whether_all_is_acked(program):
    world, seen = World(shards=2, event_records=2), []
    world.put(*range(20))
    reader = Reader(20)

    def read(consumer, batch):
        seen.append(consumer.caught_up())
        return reader(consumer, batch)

    program(world, read)
    assert seen.count(True) == 0  # before its ack, no batch is processed


@pytest.mark.promise("one reader")
def test_two_runs_at_the_same_time_are_refused(program):
    world, refused = World(shards=1), []
    world.put(0)

    def run_again(consumer, _batch):
        with pytest.raises(efo.errors.ConfigurationError, match="read already") as caught:
            run_second(consumer)
        refused.append(caught.value)
        consumer.drain()
        return True

    program(world, run_again)
    assert len(refused) == 1


def run_second(consumer):
    """Call `run` of a consumer a second time, from within a handler, and raise what it raises."""
    consumer = getattr(consumer, "many", consumer)
    if isinstance(consumer, efo.sync.Consumer | efo.sync.MultiStreamConsumer):
        consumer.run(efo.sync.Handler(lambda _batch: None))
        return
    consumer.run(nothing).send(None)


async def nothing(_batch):
    """Do nothing."""


@pytest.mark.promise("failure is noticed")
def test_an_error_that_ends_the_consumer_is_noticed_and_logged_at_once(program, caplog, request):
    world, seen = World(shards=1), []
    world.put(0)

    def fail(consumer, _batch):
        seen.append(consumer)
        raise ValueError("customer 4711")

    with pytest.raises(ValueError, match="customer"), caplog.at_level("ERROR", "efo"):
        program(world, fail, **defaults(program))
    if any(form in request.node.name for form in ("iteration", "records")):
        pytest.skip("the application's own loop raised it, and not the consumer")
    (consumer,) = seen
    failure = consumer.failure if not hasattr(consumer, "many") else consumer.many.failure
    assert failure.startswith("ValueError at test_ends.py:")
    lines = [record.getMessage() for record in caplog.records if "ended by" in record.getMessage()]
    assert len(lines) == 1
    assert "ValueError at test_ends.py:" in lines[0]
    assert "4711" not in caplog.text


@pytest.mark.promise("skips are logged")
def test_what_is_skipped_is_logged_by_default(program_with_policy, caplog):
    world = World(shards=1)
    world.put(*range(3))

    def refuse(_consumer, batch):
        if 1 in numbers(batch):
            raise ValueError("poison")
        return True

    with caplog.at_level("WARNING", "efo"):
        policy = efo.FailurePolicy(then="skip")
        program_with_policy(world, refuse, on_error=policy, until="now", **defaults(program_with_policy))
    assert sum("was skipped: ValueError" in record.getMessage() for record in caplog.records) == 1


def defaults(program):
    """Return the arguments that leave the observer to efo."""
    return {"observer": logging_observer if program.reads_many else None}


@pytest.mark.promise("a drain from any thread")
def test_a_drain_from_another_thread_ends_the_program(program):
    world, threads = World(shards=1), []
    world.put(0, 1)

    def drain_elsewhere(consumer, _batch):
        threads.append(threading.Thread(target=consumer.drain))
        threads[-1].start()
        threads[-1].join()
        return True

    program(world, drain_elsewhere)
    assert len(threads) == 1
    assert not any(lease.checkpoint.is_sentinel for lease in world.leases().values())


@pytest.mark.promise("ephemeral")
def test_an_ephemeral_consumer_is_deregistered_at_the_end_and_its_checkpoints_stay(program):
    world, reader = World(shards=1), Acked()
    world.put(0, 1)
    settings = efo.ConsumerSettings(lease_scan_seconds=1.0, ephemeral=True)
    program(world, reader, until="now", settings=settings)
    ready = [event for event in world.seen if isinstance(event, events.ConsumerReady)]
    (ended,) = [event for event in world.seen if isinstance(event, events.ConsumerDeregistered)]
    assert ready[0].registered
    assert ready[0].name == ended.name
    assert ended.name.startswith("app-")
    assert ended.error_type is None
    assert not any(lease.checkpoint.is_sentinel for lease in world.leases().values())


@pytest.mark.promise("ephemeral")
def test_an_ephemeral_consumer_is_deregistered_after_an_error(program):
    world = World(shards=1)
    world.put(0)

    def fail(_consumer, _batch):
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011 - the application's own
        program(world, fail, settings=efo.ConsumerSettings(ephemeral=True))
    assert [event.error_type for event in world.seen if isinstance(event, events.ConsumerDeregistered)] == [None]
