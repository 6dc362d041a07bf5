"""`efo.consume` and `efo.open_consumer` as an application calls them, over FakeKinesis in virtual time."""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Self

import pytest
import trio

import efo
from efo import events
from efo.testing import FakeKinesis, FakeSettings

STREAM = "orders"


@asynccontextmanager
async def stream_of(*data: bytes, shards: int = 1) -> AsyncIterator[FakeKinesis]:
    async with FakeKinesis() as fake:
        fake.create_stream(STREAM, shards=shards)
        fake.put_many(STREAM, [("key", one) for one in data])
        yield fake


async def ignore(_batch: efo.Batch) -> None:
    """Process nothing."""


async def run_for(seconds: float, fake: FakeKinesis, *arguments: object, **options: object) -> None:
    """Consume for some virtual seconds, then drain."""
    options = {"application": "billing", "leases": efo.leases.MemoryLeaseStore(), **options}
    async with trio.open_nursery() as nursery:

        async def consume(*, task_status: trio.TaskStatus[efo.Consumer]) -> None:
            await efo.consume(fake.kinesis(STREAM), *arguments, **options, task_status=task_status)

        consumer = await nursery.start(consume)
        await trio.sleep(seconds)
        consumer.drain()


async def test_a_handler_gets_batches_with_their_stream_and_shard(autojump_clock):
    batches: list[efo.Batch] = []

    async def handle(batch: efo.Batch) -> None:
        batches.append(batch)

    async with stream_of(b"1", b"2") as fake:
        (shard,) = fake.open_shards(STREAM)
        await run_for(10, fake, handle)
    assert {(batch.stream, batch.shard_id) for batch in batches} == {(STREAM, shard)}
    assert [record.data for batch in batches for record in batch] == [b"1", b"2"]
    assert sum(len(batch) for batch in batches) == 2


async def test_a_record_handler_gets_each_record_with_its_batch(autojump_clock):
    identities: list[tuple[str, str, str, int]] = []

    async def handle(record: efo.Record, batch: efo.Batch) -> None:
        identities.append((batch.stream, batch.shard_id, record.sequence_number, record.sub_sequence_number))

    async with stream_of(b"1", b"2") as fake:
        (shard,) = fake.open_shards(STREAM)
        expected = [(STREAM, shard, record.sequence_number, 0) for record in fake.records(STREAM)[shard]]
        await run_for(10, fake, record_handler=handle)
    assert identities == expected


async def test_a_blocking_handler_runs_in_a_thread():
    handled: list[bytes] = []
    done = threading.Event()

    def handle(batch: efo.Batch) -> None:
        handled.extend(record.data for record in batch)
        if len(handled) == 2:
            done.set()

    async with stream_of(b"1", b"2") as fake, trio.open_nursery() as nursery:
        consumer = await nursery.start(start_consume, fake, efo.in_thread(handle))
        await trio.to_thread.run_sync(done.wait, 60)
        consumer.drain()
    assert handled == [b"1", b"2"]


async def start_consume(fake, handler, *, task_status):
    await efo.consume(
        fake.kinesis(STREAM),
        handler,
        application="billing",
        leases=efo.leases.MemoryLeaseStore(),
        observer=efo.events.ignore_events,
        task_status=task_status,
    )


async def test_every_setting_is_reached_through_settings(autojump_clock):
    handled: list[bytes] = []

    async def handle(batch: efo.Batch) -> None:
        handled.extend(record.data for record in batch)

    async with stream_of(b"old") as fake:
        settings = efo.ConsumerSettings(initial_position=efo.LATEST, consumer_name="reader", max_leases=1)
        async with trio.open_nursery() as nursery:
            consumer = await nursery.start(start_with, fake, handle, settings)
            await trio.sleep(5)
            fake.put(STREAM, "key", b"new")
            await trio.sleep(5)
            consumer.drain()
    assert handled == [b"new"]


async def start_with(fake, handler, settings, *, task_status):
    await efo.consume(
        fake.kinesis(STREAM),
        handler,
        application="billing",
        leases=efo.leases.MemoryLeaseStore(),
        settings=settings,
        task_status=task_status,
    )


async def test_the_initial_position_of_the_call_overrides_that_of_the_settings(autojump_clock):
    handled: list[bytes] = []

    async def handle(batch: efo.Batch) -> None:
        handled.extend(record.data for record in batch)

    async with stream_of(b"old") as fake:
        settings = efo.ConsumerSettings(initial_position=efo.LATEST)
        await run_for(10, fake, handle, settings=settings, initial_position="TRIM_HORIZON")
    assert handled == [b"old"]


# --- mistakes are rejected at the call ---------------------------------------------------------------------


def ordinary(batch):
    """Process a batch, but not as an async function."""


MISTAKES = [
    ({"handler": ordinary}, "is not an async function"),
    ({"handler": None}, "either handler, for batches, or record_handler"),
    ({"handler": ignore, "record_handler": ignore}, "either handler, for batches, or record_handler"),
    ({"record_handler": ignore}, "cannot be called with"),
    ({"handler": ignore, "flush": ordinary}, "flush ordinary is not an async function"),
    ({"handler": ignore, "on_error": "skip"}, "on_error='skip'"),
    ({"handler": ignore, "on_service_error": "skip"}, "on_service_error='skip'"),
    ({"handler": ignore, "initial_position": "newest"}, "initial_position='newest'"),
    ({"handler": ignore, "key_concurrency": 0}, "key_concurrency=0"),
    ({"handler": ignore, "on_error": ignore}, r"on_error=.*: expected a FailurePolicy, or a function"),
    ({"handler": ignore, "key_concurrency": "4"}, "key_concurrency='4'"),
    ({"handler": ignore, "key_concurrency": True}, "key_concurrency=True"),
    ({"handler": ignore, "settings": {"max_leases": 1}}, r"settings=.*: expected a ConsumerSettings"),
    ({"handler": ignore, "observer": 5}, "observer=5: expected a function of an event"),
    ({"handler": ignore, "observer": ignore}, r"observer=.*: expected a function of an event"),
    ({"handler": ignore, "application": ""}, "application is empty"),
    ({"handler": ignore, "application": 5}, "application=5"),
    ({"handler": ignore, "leases": None}, "leases=None: expected a path, a URL"),
    ({"handler": ignore, "leases": ":memory:"}, "leases=':memory:': expected a path or a URL"),
    ({"handler": ignore, "leases": "redis"}, "leases='redis': expected a path or a URL"),
    ({"handler": ignore, "leases": " postgresql://host/leases"}, "expected a path or a URL"),
    ({"handler": ignore, "leases": "postgresql//host/leases"}, "expected a path or a URL"),
    ({"handler": ignore, "leases": "memory:x"}, "expected memory:, which has no name"),
    ({"handler": ignore, "leases": "sqlite::memory:"}, "names no file"),
    ({"handler": ignore, "leases": "dynamodb://localhost:8000/table"}, "is not the name of a table"),
    ({"handler": ignore, "leases": "dynamodb:table?regoin"}, "dynamodb has no option 'regoin'"),
    ({"handler": ignore, "leases": efo.leases.MemoryLeaseStore}, "leases=MemoryLeaseStore: expected a path, a URL"),
    (
        {"handler": ignore, "observer": efo.telemetry.LoggingObserver},
        "observer=LoggingObserver: expected a function",
    ),
    ({"handler": ignore, "observer": lambda: None}, r"observer .* cannot be called with \(event\)"),
    ({"handler": ignore, "on_error": efo.FailurePolicy}, r"on_error=FailurePolicy: expected a FailurePolicy"),
    ({"handler": ignore, "on_error": lambda: None}, r"on_error .* cannot be called with \(exception\)"),
    ({"handler": ignore, "application": " "}, "application is empty"),
    ({"handler": ignore, "application": "bill "}, "without blanks around it"),
    ({"handler": ignore, "worker_id": 5}, "worker_id=5"),
    ({"handler": ignore, "region": 5}, "region=5"),
    ({"handler": ignore, "worker_id": ""}, "worker_id is empty"),
    ({"handler": ignore, "leases": "mysql://host/leases"}, "unknown scheme 'mysql'"),
    ({"handler": ignore, "region": "eu-west-1"}, "region has no effect on an open client"),
]


@pytest.mark.parametrize(("options", "message"), MISTAKES, ids=lambda value: value if isinstance(value, str) else None)
async def test_a_mistake_is_rejected_before_anything_is_read(options, message):
    async with stream_of(b"1") as fake:
        arguments = {"application": "billing", "leases": "memory:", **options}
        if "handler" not in arguments:
            arguments["handler"] = None
        with pytest.raises(efo.errors.ConfigurationError, match=message):
            await efo.consume(fake.kinesis(STREAM), **arguments)


def test_a_dead_letter_sink_that_is_not_async_is_rejected():
    with pytest.raises(efo.errors.ConfigurationError, match="dead_letter ordinary is not an async function"):
        efo.FailurePolicy(then="dead_letter", dead_letter=ordinary)


async def test_a_reader_that_is_not_async_is_rejected(autojump_clock):
    async with stream_of(b"1") as fake:
        opening = efo.open_consumer(fake.kinesis(STREAM), application="billing", leases="memory:")
        async with opening as consumer:
            with pytest.raises(efo.errors.ConfigurationError, match="reader ordinary is not an async function"):
                await consumer.run(ordinary)


# --- a handler that does not fit efo is never skipped ------------------------------------------------------


async def misspells(batch):
    batch.recrods  # noqa: B018 - no such attribute


async def returns_a_count(batch):
    return len(batch)


async def awaits_asyncio(_batch):
    import asyncio  # noqa: PLC0415

    await asyncio.sleep(0.01)


@pytest.mark.parametrize("handler", [misspells, returns_a_count, awaits_asyncio])
@pytest.mark.parametrize("then", ["skip", "isolate", "stop"])
async def test_a_handler_that_misuses_efo_stops_everything_whatever_the_policy(autojump_clock, handler, then):
    seen: list[events.Event] = []
    async with stream_of(b"1", b"2") as fake:
        with pytest.raises(efo.errors.HandlerError):
            await efo.consume(
                fake.kinesis(STREAM),
                handler,
                application="billing",
                leases=efo.leases.MemoryLeaseStore(),
                on_error=efo.FailurePolicy(attempts=3, then=then),
                observer=seen.append,
            )
    assert not [e for e in seen if isinstance(e, events.RecordSkipped | events.ShardIsolated)]


async def test_a_policy_function_that_returns_no_policy_stops_everything(autojump_clock):
    async def fail(_batch):
        raise ValueError("bad data")

    async with stream_of(b"1") as fake:
        with pytest.raises(efo.errors.HandlerError, match="on_error returned None for ValueError"):
            await efo.consume(
                fake.kinesis(STREAM),
                fail,
                application="billing",
                leases=efo.leases.MemoryLeaseStore(),
                on_error=lambda _error: None,
            )


async def test_a_policy_function_that_raises_stops_everything(autojump_clock):
    def policy(error):
        raise KeyError(error)

    async def fail(_batch):
        raise ValueError("bad data")

    async with stream_of(b"1") as fake:
        with pytest.raises(efo.errors.HandlerError, match="on_error raised KeyError for ValueError"):
            await efo.consume(
                fake.kinesis(STREAM), fail, application="billing", leases=efo.leases.MemoryLeaseStore(), on_error=policy
            )


@pytest.mark.parametrize("stream", [None, "", 5, b"orders"])
async def test_a_stream_is_a_name_an_arn_or_a_client(stream):
    with pytest.raises(efo.errors.ConfigurationError, match="stream"):
        await efo.consume(stream, ignore, application="billing", leases="memory:")


# --- what an application hears without an observer ---------------------------------------------------------


async def test_a_skipped_record_reaches_the_logger_efo_without_an_observer(autojump_clock, caplog):
    async def fail(_record, _batch):
        raise ValueError("the data")

    async with stream_of(b"the data") as fake:
        with caplog.at_level(logging.WARNING, logger="efo"):
            await run_for(10, fake, record_handler=fail, on_error=efo.FailurePolicy(then="skip"))
    assert any("was skipped: ValueError" in record.getMessage() for record in caplog.records)
    assert all("the data" not in record.getMessage() for record in caplog.records)


async def test_silence_is_a_choice(autojump_clock, caplog):
    async def fail(_record, _batch):
        raise ValueError("bad")

    async with stream_of(b"1") as fake:
        with caplog.at_level(logging.DEBUG, logger="efo"):
            policy = efo.FailurePolicy(then="skip")
            await run_for(10, fake, record_handler=fail, on_error=policy, observer=efo.events.ignore_events)
    assert caplog.records == []


async def test_batches_that_are_never_acked_are_reported_and_again_when_they_have_doubled(autojump_clock):
    seen: list[events.Event] = []

    async def forget(shard: efo.ShardStream) -> None:
        async for _ in shard:
            pass

    async with stream_of() as fake, trio.open_nursery() as nursery:
        opening = efo.open_consumer(fake.kinesis(STREAM), application="billing", leases="memory:", observer=seen.append)
        async with opening as consumer:
            nursery.start_soon(consumer.run, forget)
            for number in range(450):
                fake.put(STREAM, "key", b"%d" % number)
                await trio.sleep(0.2)
            consumer.drain()
    overdue = [event for event in seen if isinstance(event, events.AcksOverdue)]
    assert [event.batches for event in overdue] == [100, 200, 400]
    assert overdue[0].records == 100
    assert overdue[0].oldest == pytest.approx(20, abs=3)


async def test_a_reader_that_catches_up_and_forgets_again_is_reported_again_at_the_first_hundred(autojump_clock):
    seen: list[events.Event] = []

    async def forget_and_remember(shard: efo.ShardStream) -> None:
        batches = []
        async for batch in shard:
            batches.append(batch)
            if len(batches) == 150:
                for forgotten in batches:
                    shard.ack(forgotten)

    async with stream_of() as fake, trio.open_nursery() as nursery:
        opening = efo.open_consumer(fake.kinesis(STREAM), application="billing", leases="memory:", observer=seen.append)
        async with opening as consumer:
            nursery.start_soon(consumer.run, forget_and_remember)
            for number in range(300):
                fake.put(STREAM, "key", b"%d" % number)
                await trio.sleep(0.2)
            consumer.drain()
    assert [event.batches for event in seen if isinstance(event, events.AcksOverdue)] == [100, 100]


async def test_a_burst_that_is_not_acked_yet_is_not_reported(autojump_clock):
    seen: list[events.Event] = []

    async def slow(_batch: efo.Batch) -> None:
        await trio.sleep(5)

    async with stream_of(*(b"%d" % n for n in range(300))) as fake:
        await run_for(4, fake, slow, key_concurrency=8, observer=seen.append)
    assert not [event for event in seen if isinstance(event, events.AcksOverdue)]


async def test_a_reader_that_keeps_up_is_never_reported(autojump_clock):
    seen: list[events.Event] = []
    async with stream_of(*(b"%d" % n for n in range(500))) as fake:
        await run_for(30, fake, ignore, observer=seen.append)
    assert not [event for event in seen if isinstance(event, events.AcksOverdue)]


async def test_each_line_of_the_default_log_names_the_worker(autojump_clock, caplog):
    async def ignore(batch: efo.Batch) -> None: ...

    with caplog.at_level(logging.INFO, logger="efo"):
        async with stream_of(b"1") as fake, trio.open_nursery() as nursery:
            consumer = await nursery.start(
                partial(
                    efo.consume, fake.kinesis(STREAM), ignore, application="billing", leases="memory:", worker_id="ann"
                )
            )
            await trio.sleep(10)
            consumer.drain()
    assert len(caplog.records) >= 3
    assert all(record.getMessage().startswith("worker ann: ") for record in caplog.records)


# --- status ------------------------------------------------------------------------------------------------


async def test_the_status_shows_subscription_pause_and_the_age_of_the_last_event(autojump_clock):
    async def read(shard: efo.ShardStream) -> None:
        async for batch in shard:
            shard.ack(batch)

    async with stream_of(b"1") as fake, trio.open_nursery() as nursery:
        (shard_id,) = fake.open_shards(STREAM)
        settings = efo.ConsumerSettings(unsubscribe_idle_seconds=10)
        opening = efo.open_consumer(
            fake.kinesis(STREAM), application="billing", leases="memory:", worker_id="ann", settings=settings
        )
        async with opening as consumer:
            nursery.start_soon(consumer.run, read)
            await trio.sleep(7)
            status = consumer.status()
            (shard,) = status.shards
            assert status.counts == {"waiting_parent": 0, "ready": 0, "consuming": 1, "finished": 0}
            assert (status.worker_id, status.is_draining, status.isolated) == ("ann", False, ())
            assert (shard.shard_id, shard.state, shard.is_paused) == (shard_id, "live", False)
            assert shard.last_event_age is not None
            assert 0 <= shard.last_event_age <= 5.1
            consumer.pause(shard_id)
            await trio.sleep(30)
            (shard,) = consumer.status().shards
            assert (shard.state, shard.is_paused) == ("unsubscribed", True)
            assert shard.last_event_age > 25
            consumer.resume(shard_id)
            await trio.sleep(7)
            (shard,) = consumer.status().shards
            assert (shard.state, shard.is_paused) == ("live", False)
            consumer.drain()
            assert consumer.status().is_draining


async def test_the_lineage_is_what_was_listed_and_the_leases_of_all_workers(autojump_clock):
    async def read(shard: efo.ShardStream) -> None:
        async for batch in shard:
            shard.ack(batch)

    async with stream_of(b"1") as fake, trio.open_nursery() as nursery:
        (shard_id,) = fake.open_shards(STREAM)
        opening = efo.open_consumer(
            fake.kinesis(STREAM),
            application="billing",
            leases="memory:",
            worker_id="ann",
            settings=efo.ConsumerSettings(),
        )
        async with opening as consumer:
            assert consumer.lineage() == ((), {})
            nursery.start_soon(consumer.run, read)
            await trio.sleep(7)
            children = fake.split(STREAM, shard_id)
            await trio.sleep(70)  # a shard sync, and some lease scans
            listed, leases = consumer.lineage()
            assert {shard.shard_id: shard.parents for shard in listed} == {
                shard_id: (),
                **dict.fromkeys(children, (shard_id,)),
            }
            assert {key: lease.owner for key, lease in leases.items()} == dict.fromkeys((shard_id, *children), "ann")
            assert leases[shard_id].is_finished
            consumer.drain()


async def test_an_isolated_shard_is_shown_with_its_reason_until_it_is_read_again(autojump_clock):
    async def fail(_batch):
        raise efo.errors.IsolateShardError("the table is locked", cooldown=30)

    async with stream_of(b"1") as fake, trio.open_nursery() as nursery:
        (shard_id,) = fake.open_shards(STREAM)
        consumer = await nursery.start(start_consume, fake, fail)
        await trio.sleep(5)
        (isolated,) = consumer.status().isolated
        assert (isolated.shard_id, isolated.error_type) == (shard_id, "isolate_shard")
        assert 20 < isolated.seconds_left <= 30
        consumer.drain()


# --- acks --------------------------------------------------------------------------------------------------


async def test_an_ack_of_a_batch_does_not_ack_the_batches_before_it(autojump_clock):
    store = efo.leases.MemoryLeaseStore()
    batches: list[efo.Batch] = []

    async def read(shard: efo.ShardStream) -> None:
        async for batch in shard:
            batches.append(batch)
            if len(batches) == 3:
                shard.ack(batches[2])
                await trio.sleep(10)
                assert [lease.checkpoint for lease in await store.list()] == [efo.Checkpoint("TRIM_HORIZON")]
                shard.ack_through(batches[2])

    async with (
        stream_of() as fake,
        trio.open_nursery() as nursery,
        efo.open_consumer(fake.kinesis(STREAM), application="billing", leases=store) as consumer,
    ):
        nursery.start_soon(consumer.run, read)
        for number in range(3):
            fake.put(STREAM, "key", b"%d" % number)
            await trio.sleep(1)
        await trio.sleep(30)
        (lease,) = await store.list()
        assert int(lease.checkpoint.sequence_number) >= int(batches[2].records[0].sequence_number)
        consumer.drain()


ACKS = [
    (lambda shard, batch: shard.ack(replace(batch, shard_id="shardId-000000000009")), "which it did not deliver"),
    (lambda shard, batch: shard.ack_through(replace(batch, number=999)), "which it did not deliver"),
    (lambda shard, batch: shard.ack_through(batch, 99), "ack of a record of a batch by its index: expected 0 to 0"),
    (lambda shard, batch: shard.ack_through(batch, True), "by its index: expected 0 to 0"),
    (lambda shard, batch: shard.ack_through(batch, -1), "by its index: expected 0 to 0"),
    (lambda shard, batch: shard.ack_records(batch, [0, 1]), "by its index: expected 0 to 0"),
    (lambda shard, batch: shard.ack_records(batch, batch.records), "by its index: expected 0 to 0"),
    (lambda shard, batch: shard.ack_record(batch, 0), "record=0: expected a Record of the batch"),
    (lambda shard, batch: shard.ack_record(batch, efo.Record("7", 0.0, b"", "k")), "not one of its batch"),
]


@pytest.mark.parametrize(("ack", "message"), ACKS)
async def test_an_ack_of_what_the_shard_did_not_deliver_is_rejected(autojump_clock, ack, message):
    async def read(shard: efo.ShardStream) -> None:
        async for batch in shard:
            ack(shard, batch)

    async with stream_of(b"1") as fake:
        opening = efo.open_consumer(fake.kinesis(STREAM), application="billing", leases="memory:")
        with pytest.raises(efo.errors.ConfigurationError, match=message):
            async with opening as consumer:
                await consumer.run(read)


async def test_a_reader_that_returns_early_is_rejected(autojump_clock):
    async def read(_shard: efo.ShardStream) -> None: ...

    async with stream_of(b"1") as fake:
        opening = efo.open_consumer(fake.kinesis(STREAM), application="billing", leases="memory:")
        with pytest.raises(
            efo.errors.HandlerError, match="the reader returned before its iteration over the shard ended"
        ):
            async with opening as consumer:
                await consumer.run(read)


async def test_no_text_of_an_application_reaches_the_log(autojump_clock, caplog):
    async def handle(batch: efo.Batch) -> None:
        efo.ConsumerSettings(consumer_name=batch.records[0].data)

    async with stream_of(b"card 4111") as fake:
        with pytest.raises(efo.errors.HandlerError, match="consumer_name=<bytes>"):
            await efo.consume(fake.kinesis(STREAM), handle, application="billing", leases="memory:")
    assert "does not fit efo: ConfigurationError" in caplog.text
    assert "4111" not in caplog.text


async def test_an_ack_of_something_else_is_rejected(autojump_clock):
    async def read(shard: efo.ShardStream) -> None:
        async for batch in shard:
            shard.ack(batch.records[0])

    async with stream_of(b"1") as fake:
        opening = efo.open_consumer(fake.kinesis(STREAM), application="billing", leases="memory:")
        with pytest.raises(efo.errors.ConfigurationError, match="batch=<Record>: expected the Batch"):
            async with opening as consumer:
                await consumer.run(read)


class SlowStore(efo.leases.MemoryLeaseStore):
    """A lease store that opens after three seconds."""

    is_open = False

    async def __aenter__(self) -> Self:
        await trio.sleep(3)
        return self

    async def __aexit__(self, *_exception: object) -> None:
        """Close nothing."""


async def test_the_lease_store_opens_while_the_fan_out_consumer_becomes_active(autojump_clock):
    async with FakeKinesis(settings=FakeSettings(consumer_creating=4.0)) as fake:
        fake.create_stream(STREAM)
        async with efo.open_consumer(fake.kinesis(STREAM), application="billing", leases=SlowStore()) as consumer:
            assert consumer.status().consumer_active
            assert trio.current_time() == pytest.approx(4.0, abs=1.0)


async def test_a_consumer_that_cannot_be_registered_is_the_error_of_opening(autojump_clock):
    async with FakeKinesis() as fake:
        with pytest.raises(efo.errors.ResourceNotFoundError):
            async with efo.open_consumer(fake.kinesis("nothing"), application="billing", leases=SlowStore()):
                pytest.fail("it is open")
    assert trio.current_time() < 3
