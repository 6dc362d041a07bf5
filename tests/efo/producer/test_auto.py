"""A producer on a stream with the record distribution strategy AUTO, and on one that is switched to it and back."""

from __future__ import annotations

import math
import random

import pytest
import trio

import efo
from efo.events import DistributionChanged, PutRecordsCalled, RecordsDelivered, RecordsNotDelivered
from efo.producer.dispatcher import AUTO_INTERVAL
from efo.testing import FakeKinesis, FakeSettings, When
from efo.testing.faults.kinds import Refuse


@pytest.fixture
async def fake(autojump_clock):
    async with FakeKinesis(settings=FakeSettings(throttle_writes=True)) as fake:
        fake.create_stream("orders", 4, distribution="AUTO")
        yield fake


def opened(fake, events=None, **settings):
    return efo.open_producer(
        fake.kinesis("orders"),
        settings=efo.ProducerSettings(**settings),
        observer=efo.events.ignore_events if events is None else events.append,
        rng=random.Random(1),
    )


def of(events, kind):
    return [event for event in events if isinstance(event, kind)]


def found(fake):
    return sorted(
        (record.data, record.partition_key) for records in fake.records("orders").values() for record in records
    )


async def test_records_need_no_partition_key(fake, autojump_clock):
    events = []
    async with opened(fake, events) as producer:
        deliveries = [
            await producer.put(b"1"),
            await producer.put(b"2", "key"),
            await producer.put(b"3", explicit_hash_key="0"),
            *await producer.put_many([efo.ProducerRecord(b"4"), efo.ProducerRecord(b"5", "key", "7")]),
        ]
    assert found(fake) == [(b"1", None), (b"2", "key"), (b"3", None), (b"4", None), (b"5", "key")]
    shards = {(await delivery).shard_id for delivery in deliveries}
    assert shards == set(fake.open_shards("orders"))
    delivered = of(events, RecordsDelivered)
    assert {event.shard_id for event in delivered} == shards
    assert sum(event.records for event in delivered) == 5


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"aggregate": True}, "aggregate=True"),
        ({"ordered": True}, "ordered=True"),
        ({"aggregate": True, "ordered": True}, "aggregate=True and ordered=True"),
    ],
)
async def test_aggregates_and_order_are_refused_at_the_opening(fake, autojump_clock, settings, names):
    with pytest.raises(
        efo.errors.ConfigurationError, match=f"^{names}: stream orders has the record distribution strategy AUTO"
    ):
        async with opened(fake, **settings):
            pass


async def test_the_rate_is_that_of_all_shards_together_and_nothing_is_throttled(fake, autojump_clock):
    """Four shards take 4,000 records/s; by the shards of the keys, they would take 1,000."""
    events = []
    began = trio.current_time()
    async with opened(fake, events) as producer:
        for _ in range(20_000):
            await producer.put(b"x", "one key")
    assert len(found(fake)) == 20_000
    assert [event for event in of(events, PutRecordsCalled) if event.error_type] == []
    assert 4 <= trio.current_time() - began <= 6
    assert of(events, DistributionChanged) == []


async def test_a_reshard_changes_the_rate(fake, autojump_clock):
    async with opened(fake) as producer:
        await producer.put(b"x")
        for shard_id in tuple(fake.open_shards("orders")):
            fake.split("orders", shard_id)
        for _ in range(20):
            await producer.put(b"x")
        await trio.sleep(3)
        began = trio.current_time()
        for _ in range(16_000):
            await producer.put(b"x")
        await producer.flush()
    assert trio.current_time() - began <= 3.5


async def test_a_missing_key_is_an_error_at_the_call_of_any_other_stream(fake, autojump_clock):
    fake.distribute("orders", "USER_PARTITION_KEY")
    async with opened(fake) as producer:
        for put in (
            producer.put(b"x"),
            producer.put(b"x", explicit_hash_key="0"),
            producer.put_many([efo.ProducerRecord(b"good", "key"), efo.ProducerRecord(b"x")]),
        ):
            with pytest.raises(
                efo.errors.ConfigurationError, match=r"partition_key is missing: stream orders has .* USER_PARTITION"
            ):
                await put
        await producer.put(b"good", "key")
    assert found(fake) == [(b"good", "key")]


async def test_the_service_is_asked_once_a_second_at_most(fake, autojump_clock):
    fake.distribute("orders", "USER_PARTITION_KEY")
    async with opened(fake) as producer:
        control = producer._dispatcher._control_plane
        calls, describe = [], control.describe_stream

        async def counted():
            calls.append(trio.current_time())
            return await describe()

        control.describe_stream = counted
        for _ in range(100):
            with pytest.raises(efo.errors.ConfigurationError):
                await producer.put(b"x")
            await trio.sleep(0.05)
    assert 4 <= len(calls) <= 6


async def test_many_tasks_wait_for_the_same_answer_and_a_failed_one_is_no_answer(fake, autojump_clock):
    fake.distribute("orders", "USER_PARTITION_KEY")
    async with opened(fake) as producer:
        fake.distribute("orders", "AUTO")
        fake.faults.add(Refuse("InternalFailure"), When(operation="DescribeStreamSummary", times=1))
        with pytest.raises(efo.errors.InternalFailureError):
            await producer.put(b"x")
        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(producer.put, b"%d" % number)
    assert found(fake) == [(b"%d" % number, None) for number in range(10)]


class TestSwitched:
    """The stream's strategy is changed while the producer is open."""

    async def test_to_auto_keys_become_optional(self, fake, autojump_clock):
        fake.distribute("orders", "USER_PARTITION_KEY")
        events = []
        async with opened(fake, events) as producer:
            await producer.put(b"0", "key")
            await trio.sleep(2)
            fake.distribute("orders", "AUTO")
            deliveries = [await producer.put(b"%d" % number) for number in range(1, 20)]
            await trio.sleep(2)
        assert len({(await delivery).shard_id for delivery in deliveries}) == 4
        assert of(events, DistributionChanged) == [DistributionChanged("AUTO", ())]
        assert len(found(fake)) == 20

    @pytest.mark.parametrize("shards", [1, 4])
    async def test_to_auto_what_was_aggregated_is_put_alone_and_reported_once(self, fake, autojump_clock, shards):
        fake.create_stream("few", shards, distribution="USER_PARTITION_KEY")
        events = []
        settings = efo.ProducerSettings(aggregate=True, ordered=True, linger_seconds=0.05)
        async with efo.open_producer(fake.kinesis("few"), settings=settings, observer=events.append) as producer:
            for number in range(400):
                if number == 200:
                    fake.distribute("few", "AUTO")
                await producer.put(b"%d" % number, f"key-{number % 20}")
                await trio.sleep(0.05)
        records = [record for found in fake.records("few").values() for record in found]
        alone = {record.data for record in records if record.partition_key != "a"}
        reported = of(events, DistributionChanged)
        if shards == 1:  # every shard is that of the key: AUTO changes nothing, and nobody can see it
            assert reported == []
            return
        assert reported == [DistributionChanged("AUTO", ("aggregate", "ordered"))]
        assert {b"%d" % number for number in range(260, 400)} <= alone
        # KCL drops user records of a shard that is not that of their key: all of them are also alone, or in theirs.
        assert alone | kept_by_kcl(fake, "few") >= {b"%d" % number for number in range(400)}

    async def test_back_to_keys_a_record_without_one_fails_and_all_others_are_stored(self, fake, autojump_clock):
        events = []
        fake.faults.add(
            Refuse("ProvisionedThroughputExceededException"), When(operation="PutRecords", start=1.0, times=5)
        )
        async with opened(fake, events, linger_seconds=0.5) as producer:
            await trio.sleep(0.9)
            keyless = [await producer.put(b"none %d" % number) for number in range(5)]
            keyed = [await producer.put(b"%d" % number, f"key-{number}") for number in range(5)]
            fake.distribute("orders", "USER_PARTITION_KEY")
            await producer.flush()
            with pytest.raises(efo.errors.ConfigurationError, match="partition_key is missing"):
                await producer.put(b"x")
            for delivery in keyless:
                with pytest.raises(efo.errors.DeliveryError, match="strategy is USER_PARTITION_KEY: put it with a key"):
                    delivery.result()
        for delivery in keyed:
            await delivery
        assert found(fake) == [(b"%d" % number, f"key-{number}") for number in range(5)]
        assert of(events, DistributionChanged) == [DistributionChanged("USER_PARTITION_KEY", ())]
        assert sum(event.records for event in of(events, RecordsNotDelivered)) == 5
        assert trio.current_time() < 30

    async def test_back_to_keys_is_noticed_without_any_error(self, fake, autojump_clock):
        """Records with keys are accepted all the same, so that only a look at the stream shows it."""
        fake.distribute("orders", "USER_PARTITION_KEY")
        events = []
        async with opened(fake, events, ordered=True) as producer:

            async def put(count):
                for number in range(count):
                    await producer.put(b"%d" % number, f"key-{number % 3}")
                    await trio.sleep(0.5)

            await put(4)
            fake.distribute("orders", "AUTO")
            await put(20)
            fake.distribute("orders", "USER_PARTITION_KEY")
            await put(int(2 * AUTO_INTERVAL + 20))
        assert [event.strategy for event in of(events, DistributionChanged)] == ["AUTO", "USER_PARTITION_KEY"]

    async def test_no_rate_of_a_shard_is_taken_over(self, fake, autojump_clock):
        fake.distribute("orders", "USER_PARTITION_KEY")
        async with opened(fake, shard_share=math.inf) as producer:
            fake.distribute("orders", "AUTO")
            deliveries = [await producer.put(b"x" * 1000, "key") for _ in range(3000)]
        assert len([await delivery for delivery in deliveries]) == 3000


def kept_by_kcl(fake, stream):
    """Return the data of user records in aggregates whose user records all belong to the shard of the aggregate."""
    from efo.protocol.aggregation import AggregateMode  # noqa: PLC0415
    from efo.protocol.deaggregation import deaggregate  # noqa: PLC0415

    return {
        user.data
        for shard in fake._core.stream(stream).shards.values()
        for record in shard.records
        if record.partition_key == "a"
        for user in deaggregate(record.as_record(), shard.hash_key_range(), AggregateMode.DROP).records
    }
