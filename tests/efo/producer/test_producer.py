"""A producer on the fake, under virtual time: what is put arrives, whatever the service does meanwhile."""

from __future__ import annotations

import logging
import math
import random

import msgspec
import pytest
import trio
import trio.testing

import efo
from efo.errors import AccessDeniedError, ResourceNotFoundError, SilenceError, ThrottledError
from efo.events import PutRecordsCalled, RecordsDelivered, RecordsNotDelivered, ShardMapChanged
from efo.producer.dispatcher import LIST_INTERVAL
from efo.protocol.deaggregation import deaggregate
from efo.protocol.denials import DOUBTS
from efo.testing import FakeKinesis, FakeSettings, When
from efo.testing.faults.kinds import NoResponse, Refuse, StaleListing

THROTTLE = Refuse("ProvisionedThroughputExceededException")


@pytest.fixture
async def fake(autojump_clock):
    async with FakeKinesis(settings=FakeSettings(throttle_writes=True)) as fake:
        fake.create_stream("orders", 2)
        yield fake


def opened(fake, *, observer=efo.events.ignore_events, serializer=None, **settings):
    arguments = {} if serializer is None else {"serializer": serializer}
    return efo.open_producer(
        fake.kinesis("orders"),
        settings=efo.ProducerSettings(**settings),
        observer=observer,
        rng=random.Random(1),
        **arguments,
    )


def put(fake) -> list[bytes]:
    return sorted(record.data for records in fake.records("orders").values() for record in records)


def read(fake) -> list[bytes]:
    """Return the user records as readers have them that leave out what belongs to another shard."""
    shards = fake._core.stream("orders").shards
    return [
        user.data
        for shard in shards.values()
        for record in shard.records
        for user in deaggregate(record.as_record(), shard.hash_key_range()).records
    ]


async def test_a_delivery_tells_where_the_record_is(fake, autojump_clock):
    async with opened(fake) as producer:
        delivery = await producer.put(b"data", partition_key="key")
        assert not delivery.is_done
        result = await delivery
        assert delivery.is_done
        assert delivery.result() == result == await delivery
    [(shard_id, [record])] = [(shard, found) for shard, found in fake.records("orders").items() if found]
    assert (result.shard_id, result.sequence_number) == (shard_id, record.sequence_number)
    assert (result.sub_sequence_number, result.attempts) == (0, 1)
    assert result.latency == pytest.approx(0.1)
    assert (record.partition_key, record.data) == ("key", b"data")


async def test_records_linger_for_others_and_share_a_request(fake, autojump_clock):
    events = []
    async with opened(fake, observer=events.append, linger_seconds=3.0) as producer:
        await producer.put(b"1", "a")
        await trio.sleep(2.9)
        await producer.put(b"2", "b")
        assert put(fake) == []
        await trio.sleep(0.2)
        assert put(fake) == [b"1", b"2"]
    assert [event.records for event in events if isinstance(event, PutRecordsCalled)] == [2]


async def test_a_full_request_is_sent_at_once_and_none_has_more_than_500_records(fake, autojump_clock):
    events = []
    async with opened(fake, observer=events.append, linger_seconds=1000.0, delivery_timeout_seconds=9999.0) as producer:
        for number in range(1200):
            await producer.put(b"x", f"key-{number}")
        await trio.sleep(10)
        assert len(put(fake)) == 1000
        assert producer.buffered_records == 200
    assert [event.records for event in events if isinstance(event, PutRecordsCalled)] == [500, 500, 200]


async def test_requests_stay_below_their_size_but_a_larger_record_is_sent_alone(fake, autojump_clock):
    events = []
    async with opened(fake, observer=events.append, max_request_bytes=1000) as producer:
        for size in (400, 400, 400, 5000, 400):
            await producer.put(b"x" * size, "k")
    sizes = [event.data_bytes for event in events if isinstance(event, PutRecordsCalled)]
    assert sorted(sizes) == [401, 401, 802, 5001]


async def test_user_records_share_an_aggregate_per_shard(fake, autojump_clock):
    async with opened(fake, aggregate=True) as producer:
        deliveries = [await producer.put(b"%d" % n, f"key-{n % 10}") for n in range(100)]
    results = [await delivery for delivery in deliveries]
    records = fake.records("orders")
    assert [len(found) for found in records.values()] == [1, 1]
    assert sorted(read(fake)) == sorted(b"%d" % n for n in range(100))
    assert len({(r.sequence_number, r.sub_sequence_number) for r in results}) == 100


async def test_an_aggregate_of_one_record_is_put_as_it_is(fake, autojump_clock):
    async with opened(fake, aggregate=True) as producer:
        result = await (await producer.put(b"data", "key", explicit_hash_key="007"))
    assert put(fake) == [b"data"]
    assert result.shard_id == fake.open_shards("orders")[0]


async def test_an_explicit_hash_key_selects_the_shard(fake, autojump_clock):
    first, last = fake.open_shards("orders")
    for aggregate in (False, True):
        async with opened(fake, aggregate=aggregate) as producer:
            low = [await producer.put(b"low", "key", explicit_hash_key="0") for _ in range(2)]
            high = [await producer.put(b"high", "key", explicit_hash_key=str(2**128 - 1)) for _ in range(2)]
        assert {(await delivery).shard_id for delivery in low} == {first}
        assert {(await delivery).shard_id for delivery in high} == {last}
    assert sorted(read(fake)) == [b"high"] * 4 + [b"low"] * 4


async def test_a_serializer_makes_the_data(fake, autojump_clock):
    async with opened(fake, serializer=msgspec.json.encode) as producer:
        await producer.put({"id": 7}, "key")
    assert put(fake) == [b'{"id":7}']


async def test_put_many_takes_all_or_none(fake, autojump_clock):
    async with opened(fake) as producer:
        records = [efo.ProducerRecord(b"1", "a"), efo.ProducerRecord(b"2", "b", "0")]
        deliveries = await producer.put_many(records)
        assert len(deliveries) == 2
        with pytest.raises(efo.errors.ConfigurationError, match="partition_key has 0 characters"):
            await producer.put_many([efo.ProducerRecord(b"3", "c"), efo.ProducerRecord(b"4", "")])
    assert put(fake) == [b"1", b"2"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((b"x", ""), "partition_key has 0 characters: expected 1 to 256"),
        ((b"x", "k" * 257), "partition_key has 257 characters: expected 1 to 256"),
        ((b"x", 7), "partition_key is of type int: expected a text"),
        ((b"x", "\ud800"), "partition_key has a surrogate"),
        (("text", "k"), "data is of type str: expected bytes, or pass a serializer"),
        ((b"x", "k", "-1"), "explicit_hash_key: expected a text of decimal digits"),
        ((b"x", "k", str(2**128)), "explicit_hash_key: expected"),
        ((b"x", "k", 7), "explicit_hash_key: expected a text of decimal digits"),
        (
            (b"x" * 1024 * 1024, "k"),
            "the record has 1048577 bytes with its partition key: stream orders accepts at most",
        ),
    ],
)
async def test_a_record_that_the_service_would_refuse_is_refused_at_the_call(fake, autojump_clock, arguments, message):
    async with opened(fake) as producer:
        with pytest.raises(efo.errors.ConfigurationError, match=message):
            await producer.put(*arguments)
        await producer.put(b"good", "k")
    assert put(fake) == [b"good"]


async def test_a_serializer_that_returns_no_bytes_is_named(fake, autojump_clock):
    async with opened(fake, serializer=str) as producer:
        with pytest.raises(efo.errors.ConfigurationError, match="the serializer returned str: expected bytes"):
            await producer.put(7, "k")


# --- back-pressure, flush, close ---------------------------------------------------------------------------


async def test_put_waits_while_the_buffer_is_full(fake, autojump_clock):
    fake.faults.add(NoResponse(5.0), When(operation="PutRecords"))
    async with opened(fake, max_buffered_bytes=1000) as producer:
        began = trio.current_time()
        for _ in range(2):
            await producer.put(b"x" * 100, "k")
        assert trio.current_time() == began
        assert producer.buffered_bytes == 2 * (100 + 1 + 256)
        await producer.put(b"x" * 100, "k")
        assert trio.current_time() - began >= 5.0


async def test_a_record_larger_than_the_buffer_is_taken_when_it_is_empty(fake, autojump_clock):
    async with opened(fake, max_buffered_bytes=1) as producer:
        for _ in range(3):
            await producer.put(b"x" * 100, "k")
    assert len(put(fake)) == 3


async def test_a_cancelled_put_takes_nothing(fake, autojump_clock):
    fake.faults.add(NoResponse(5.0), When(operation="PutRecords"))
    async with opened(fake, max_buffered_bytes=1) as producer:
        await producer.put(b"1", "k")
        with trio.move_on_after(1) as scope:
            await producer.put(b"2", "k")
        assert scope.cancelled_caught
    assert put(fake) == [b"1"]


async def test_flush_waits_for_what_was_put_before_and_not_for_more(fake, autojump_clock):
    async with opened(fake, linger_seconds=50.0) as producer:
        await producer.put(b"1", "k")
        began = trio.current_time()
        await producer.flush()
        assert trio.current_time() - began < 1
        assert put(fake) == [b"1"]
        await producer.put(b"2", "k")
        await trio.sleep(1)
        assert put(fake) == [b"1"]
        await producer.flush()
        await producer.flush()
        assert put(fake) == [b"1", b"2"]


async def test_a_flush_is_not_held_up_by_later_records(fake, autojump_clock):
    async with opened(fake) as producer, trio.open_nursery() as nursery:

        async def put_forever():
            while True:
                await producer.put(b"x", "k")
                await trio.sleep(0.01)

        nursery.start_soon(put_forever)
        await trio.sleep(1)
        with trio.fail_after(1):
            await producer.flush()
        nursery.cancel_scope.cancel()


async def test_leaving_the_block_waits_for_every_record(fake, autojump_clock):
    fake.faults.add(THROTTLE, When(operation="PutRecords", times=5))
    async with opened(fake, linger_seconds=30.0) as producer:
        for number in range(10):
            await producer.put(b"%d" % number, "k")
    assert len(put(fake)) == 10


async def test_a_blocked_put_ends_with_an_error_when_the_producer_is_closed(fake, autojump_clock):
    fake.faults.add(NoResponse(5.0), When(operation="PutRecords"))
    errors = []
    async with opened(fake, max_buffered_bytes=1) as producer, trio.open_nursery() as nursery:
        await producer.put(b"1", "k")

        async def blocked():
            with pytest.raises(efo.errors.ProducerClosedError, match="the producer for orders is closed") as caught:
                await producer.put(b"2", "k")
            errors.append(caught.value)

        nursery.start_soon(blocked)
        await trio.sleep(1)
        producer.close()
        with pytest.raises(efo.errors.ProducerClosedError):
            await producer.put(b"3", "k")
    assert len(errors) == 1
    assert put(fake) == [b"1"]


async def test_what_a_cancelled_block_has_put_is_sent_within_the_close_timeout(fake, autojump_clock):
    with trio.move_on_after(1):
        async with opened(fake, linger_seconds=30.0) as producer:
            delivery = await producer.put(b"1", "k")
            await trio.sleep_forever()
    assert put(fake) == [b"1"]
    assert delivery.is_done


async def test_what_cannot_be_sent_then_fails_and_says_so(fake, autojump_clock):
    fake.faults.add(NoResponse(), When(operation="PutRecords", times=math.inf))
    began = trio.current_time()
    with pytest.raises(RuntimeError, match="mine"):  # noqa: PT012 - the block is what raises
        async with opened(fake, close_timeout_seconds=3.0) as producer:
            delivery = await producer.put(b"1", "k")
            await trio.sleep(1)
            raise RuntimeError("mine")
    assert trio.current_time() - began == pytest.approx(4.0, abs=0.1)
    with pytest.raises(efo.errors.DeliveryError, match="the producer was closed") as caught:
        delivery.result()
    assert caught.value.maybe_stored


# --- faults ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [
        THROTTLE,
        Refuse("InternalFailure", status=500),
        Refuse("KMSThrottlingException"),
        Refuse("ExpiredTokenException"),
    ],
)
async def test_a_refused_request_is_sent_again(fake, autojump_clock, fault):
    fake.faults.add(fault, When(operation="PutRecords", times=3))
    async with opened(fake) as producer:
        result = await (await producer.put(b"1", "k"))
    assert result.attempts == 4
    assert put(fake) == [b"1"]


async def test_only_records_that_failed_are_sent_again(fake, autojump_clock):
    events = []
    async with opened(fake, observer=events.append, shard_share=math.inf) as producer:
        deliveries = [await producer.put(b"%d" % n, "k") for n in range(1200)]
    attempts = {(await delivery).attempts for delivery in deliveries}
    assert len(put(fake)) == 1200
    assert max(attempts) > 1
    assert sum(event.again for event in events if isinstance(event, PutRecordsCalled)) > 0


async def test_a_request_whose_response_is_lost_is_repeated_and_may_be_stored_twice(fake, autojump_clock):
    fake.faults.add(NoResponse(1000.0), When(operation="PutRecords"))
    async with opened(fake) as producer:
        result = await (await producer.put(b"1", "k"))
    assert result.attempts == 2
    assert put(fake) == [b"1", b"1"]


async def test_a_deleted_stream_is_an_answer_for_each_record(fake, autojump_clock):
    events = []
    async with opened(fake, observer=events.append) as producer:
        fake.delete_stream("orders")
        deliveries = [await producer.put(b"x", "k") for _ in range(3)]
        for delivery in deliveries:
            with pytest.raises(efo.errors.DeliveryError, match="ResourceNotFoundException") as caught:
                await delivery
            assert isinstance(caught.value.__cause__, ResourceNotFoundError)
            assert not caught.value.maybe_stored
            assert caught.value.attempts == 1
    [lost] = [event for event in events if isinstance(event, RecordsNotDelivered)]
    assert (lost.records, lost.error_type) == (3, "ResourceNotFoundException")


@pytest.mark.parametrize(("times", "is_stored"), [(1, True), (math.inf, False)])
async def test_an_odd_answer_is_believed_when_it_has_repeated(fake, autojump_clock, times, is_stored):
    fake.faults.add(Refuse("BadRequest", "<html>", 400), When(operation="PutRecords", times=times))
    async with opened(fake) as producer:
        delivery = await producer.put(b"1", "k")
        if is_stored:
            assert (await delivery).attempts == 2
        else:
            with pytest.raises(efo.errors.DeliveryError, match="BadRequest") as caught:
                await delivery
            assert caught.value.attempts == DOUBTS + 1


async def test_failures_that_nobody_looked_at_are_raised_at_the_end(fake, autojump_clock):
    with pytest.raises(efo.errors.DeliveryError, match="not delivered: 2; await"):  # noqa: PT012 - leaving the block raises
        async with opened(fake) as producer:
            fake.faults.add(Refuse("AccessDeniedException"), When(operation="PutRecords", times=math.inf))
            looked_at, _, _ = [await producer.put(b"x", "k") for _ in range(3)]
            with pytest.raises(efo.errors.DeliveryError) as caught:
                await looked_at
            assert isinstance(caught.value.__cause__, AccessDeniedError)


async def test_a_throttled_record_is_given_up_after_its_timeout(fake, autojump_clock):
    fake.faults.add(THROTTLE, When(operation="PutRecords", times=math.inf))
    async with opened(fake, delivery_timeout_seconds=60.0) as producer:
        delivery = await producer.put(b"1", "k")
        began = trio.current_time()
        with pytest.raises(
            efo.errors.DeliveryError, match=r"not delivered within 60\.\d s and \d+ attempts: ThrottledError"
        ):
            await delivery
        assert trio.current_time() - began == pytest.approx(60.0)


@pytest.mark.parametrize("aggregate", [False, True])
async def test_a_record_that_waits_for_its_turn_is_given_up_after_its_timeout(fake, autojump_clock, aggregate):
    """No request may be sent, since as many are in flight as may be: the time of what waits is over nevertheless."""
    fake.faults.add(NoResponse(), When(operation="PutRecords", times=math.inf))
    async with opened(fake, delivery_timeout_seconds=10.0, max_in_flight=1, aggregate=aggregate) as producer:
        first = await producer.put(b"1", "k")
        await trio.sleep(1)
        began = trio.current_time()
        with pytest.raises(efo.errors.DeliveryError, match=r"within 10\.0 s and 0 attempts: it was not sent") as caught:
            await (await producer.put(b"2", "k"))
        assert trio.current_time() - began == pytest.approx(10.0)
        assert not caught.value.maybe_stored
        assert not first.is_done
        with pytest.raises(efo.errors.DeliveryError):
            await first


async def test_a_record_expires_while_another_list_of_the_shards_waits_for_a_request(fake, autojump_clock):
    """A list is applied when nothing is in flight. A request without a response is in flight for 30 s."""
    async with opened(fake, delivery_timeout_seconds=10.0, max_in_flight=2) as producer:
        fake.faults.add(NoResponse(), When(operation="PutRecords", times=1))
        hanging = await producer.put(b"1", "k")
        await trio.sleep(1)
        fake.split("orders", fake.open_shards("orders")[0])
        await (await producer.put(b"0", "a", explicit_hash_key="0"))  # the response shows that the shards have changed
        await trio.sleep(1)
        began = trio.current_time()
        waiting = await producer.put(b"2", "k")
        with pytest.raises(efo.errors.DeliveryError, match="0 attempts"):
            await waiting
        assert trio.current_time() - began == pytest.approx(10.0)
        with pytest.raises(efo.errors.DeliveryError):
            await hanging


async def test_one_record_that_the_service_refuses_does_not_take_others_along(fake, autojump_clock):
    async with opened(fake) as producer:
        fake._core.stream("orders").max_record_bytes = 100
        deliveries = [await producer.put(b"x" * size, "k") for size in (1, 2, 200, 3)]
        with pytest.raises(efo.errors.DeliveryError, match="InvalidArgumentException"):
            await deliveries[2]
    assert put(fake) == [b"x", b"xx", b"xxx"]


async def test_silence_is_an_error_of_the_connection(fake, autojump_clock):
    fake.faults.add(NoResponse(), When(operation="PutRecords", times=math.inf))
    async with opened(fake, delivery_timeout_seconds=10.0) as producer:
        with pytest.raises(efo.errors.DeliveryError) as caught:
            await (await producer.put(b"1", "k"))
    assert isinstance(caught.value.__cause__, SilenceError)
    assert caught.value.maybe_stored


# --- rates and shards ---------------------------------------------------------------------------------------


async def test_a_producer_alone_is_never_throttled_and_uses_the_shards(fake, autojump_clock):
    events = []
    began = trio.current_time()
    async with opened(fake, observer=events.append) as producer:
        for number in range(10_000):
            await producer.put(b"x" * 100, f"key-{number}")
    assert not any(event.again for event in events if isinstance(event, PutRecordsCalled))
    assert trio.current_time() - began < 10_000 / 2000 + 1.5


async def test_producers_that_share_a_shard_adapt_to_each_other(fake, autojump_clock):
    events = []

    async def produce():
        async with opened(fake, observer=events.append) as producer:
            for number in range(5000):
                await producer.put(b"x", f"key-{number}")

    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(produce)
        nursery.start_soon(produce)
    assert len(put(fake)) == 10_000
    calls = [event for event in events if isinstance(event, PutRecordsCalled)]
    assert any(event.error_type == ThrottledError.error_type for event in calls)
    assert sum(event.again for event in calls) < 10_000  # not more than one repetition for a record
    assert trio.current_time() - began < 20


@pytest.mark.parametrize("aggregate", [False, True])
async def test_a_split_while_putting_loses_nothing_and_the_map_follows(fake, autojump_clock, aggregate):
    events = []
    async with opened(fake, aggregate=aggregate, observer=events.append) as producer:
        deliveries = []
        for number in range(300):
            if number == 100:
                fake.split("orders", fake.open_shards("orders")[0])
            if number == 200:
                fake.merge("orders", *fake.open_shards("orders")[1:])
            deliveries.append(await producer.put(b"%d" % number, f"key-{number}"))
            await trio.sleep(0.05)
    for delivery in deliveries:
        assert (await delivery).shard_id
    assert set(read(fake)) == {b"%d" % number for number in range(300)}
    assert [event.shards for event in events if isinstance(event, ShardMapChanged)] == [3, 2]


async def test_a_waiting_delivery_follows_its_record_into_another_aggregate(fake, autojump_clock):
    async with opened(fake, aggregate=True) as producer, trio.open_nursery() as nursery:
        fake.split("orders", fake.open_shards("orders")[0])
        results = []

        async def wait_for(delivery):
            results.append(await delivery)

        for number in range(40):
            nursery.start_soon(wait_for, await producer.put(b"%d" % number, f"key-{number}"))
    assert len(results) == 40
    assert any(result.attempts > 1 for result in results)


async def test_a_listing_that_lags_is_asked_again(fake, autojump_clock):
    events = []
    fake.faults.add(StaleListing(seconds=1000.0), When(times=3, start=0.5))
    async with opened(fake, aggregate=True, observer=events.append) as producer:
        await trio.sleep(1)
        fake.split("orders", fake.open_shards("orders")[0])
        began = trio.current_time()
        deliveries = [await producer.put(b"%d" % number, f"key-{number}") for number in range(40)]
        for delivery in deliveries:
            await delivery
    assert trio.current_time() - began > 2 * LIST_INTERVAL
    assert set(read(fake)) == {b"%d" % number for number in range(40)}


async def test_an_ordered_producer_keeps_the_order_of_each_key_under_faults(fake, autojump_clock):
    fake.faults.add(THROTTLE, When(operation="PutRecords", probability=0.2))
    fake.faults.add(NoResponse(1000.0), When(operation="PutRecords", probability=0.1, times=3))
    for aggregate in (False, True):
        before = len(read(fake))
        async with opened(fake, ordered=True, aggregate=aggregate, aggregate_bytes=300) as producer:
            for number in range(200):
                await producer.put(b"%d" % number, f"key-{number % 5}")
                await trio.sleep(0.01)
        found = [int(data) for data in read(fake)][before:] if not aggregate else [int(d) for d in read(fake)]
        for key in range(5):
            firsts = list(dict.fromkeys(number for number in found if number % 5 == key))
            assert firsts == sorted(firsts)


async def test_events_tell_of_deliveries(fake, autojump_clock):
    events = []
    async with opened(fake, observer=events.append, aggregate=True) as producer:
        for number in range(20):
            await producer.put(b"x", f"key-{number}")
        await trio.sleep(1)
    delivered = [event for event in events if isinstance(event, RecordsDelivered)]
    assert {event.shard_id for event in delivered} == set(fake.open_shards("orders"))
    assert sum(event.records for event in delivered) == 20
    assert sum(event.kinesis_records for event in delivered) == 2
    assert [(event.latency, event.attempts) for event in delivered] == [(pytest.approx(0.1), 1)] * 2


async def test_no_key_and_no_data_reach_the_log(fake, autojump_clock, caplog):
    caplog.set_level(logging.DEBUG)
    fake._core.stream("orders").max_record_bytes = 10
    with pytest.raises(efo.errors.DeliveryError):  # noqa: PT012 - leaving the block raises
        async with efo.open_producer(fake.kinesis("orders")) as producer:
            producer._max_record_bytes = 1000
            await producer.put(b"secret-data", "secret-key")
    assert "1 records were not delivered" in caplog.text
    assert "secret" not in caplog.text


# --- opening -----------------------------------------------------------------------------------------------


async def test_a_stream_that_does_not_exist_is_an_error_at_once(fake, autojump_clock):
    with pytest.raises(ResourceNotFoundError):
        async with efo.open_producer(fake.kinesis("absent"), observer=efo.events.ignore_events):
            raise AssertionError


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"stream": ""}, "stream is empty"),
        ({"settings": 7}, "settings=7: expected a ProducerSettings"),
        ({"serializer": 7}, "serializer=7: expected a function of a value"),
        ({"serializer": trio.sleep}, "serializer is an async function"),
        ({"observer": 7}, "observer=7"),
        ({"region": "eu-west-1"}, "region has no effect on an open client"),
        ({"stream": "orders", "region": 7}, "region=7: expected a text, or None"),
    ],
)
async def test_a_wrong_argument_is_refused_at_the_call(fake, autojump_clock, arguments, message):
    arguments = {"stream": fake.kinesis("orders")} | arguments
    with pytest.raises(efo.errors.ConfigurationError, match=message):
        efo.open_producer(arguments.pop("stream"), **arguments)
