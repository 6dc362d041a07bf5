"""A consumer or producer that starts while Kinesis throttles, fails or answers oddly waits, and then works (R16)."""

from contextlib import asynccontextmanager

import pytest
import trio

import efo
from efo.consumer import opening
from efo.events import StartDelayed
from efo.testing import FakeKinesis
from efo.testing.faults.kinds import Refuse
from efo.testing.faults.script import ALWAYS, FaultScript, When

THROTTLED = Refuse("ThrottlingException", "Rate exceeded")
FAILED = Refuse("InternalFailure", "", 500)
ODD = Refuse("BadRequest", "who are you", 400)
STARTS = {
    "fanout": ("DescribeStreamSummary", "DescribeStreamConsumer", "RegisterStreamConsumer", "ListShards"),
    "polling": ("ListShards",),
    "auto": ("DescribeStreamSummary", "DescribeStreamConsumer", "RegisterStreamConsumer", "ListShards"),
}


async def read(script, mode, *, seconds=900.0, **settings):
    """Read two records; return when they had arrived, and the delays of the start."""
    seen, got = [], []
    async with FakeKinesis(faults=script) as fake:
        fake.create_stream("orders")
        fake.put_many("orders", [("a", b"1"), ("b", b"2")])

        async def handle(record, _batch):
            await trio.lowlevel.checkpoint()
            got.append((record.data, trio.current_time() - began))
            if len(got) == 2:
                scope.cancel()

        began = trio.current_time()
        with trio.move_on_after(seconds) as scope:
            await efo.consume(
                fake.kinesis("orders"),
                record_handler=handle,
                application="billing",
                leases=efo.leases.MemoryLeaseStore(),
                settings=efo.ConsumerSettings(read_mode=mode, **settings),
                observer=seen.append,
            )
    return got, [event for event in seen if isinstance(event, StartDelayed)]


@pytest.mark.parametrize("mode", STARTS)
@pytest.mark.parametrize(("fault", "times"), [(THROTTLED, 12), (FAILED, 12), (ODD, 3)], ids=["throttle", "500", "odd"])
async def test_each_call_of_a_start_may_fail_for_a_while(mode, fault, times, autojump_clock):
    for operation in STARTS[mode]:
        got, delays = await read(FaultScript([(fault, When(operation=operation, times=times))]), mode)
        assert sorted(data for data, _ in got) == [b"1", b"2"], operation
        assert {event.call for event in delays} == {operation}
        assert len(delays) == times or mode == "auto"  # which polls after a minute


async def test_a_start_with_auto_polls_while_fan_out_cannot_be_registered(autojump_clock):
    script = FaultScript([(THROTTLED, When(operation="RegisterStreamConsumer", times=ALWAYS))])
    got, _ = await read(script, "auto", seconds=200)
    assert sorted(data for data, _ in got) == [b"1", b"2"]
    assert max(at for _, at in got) < 70


async def test_the_limit_of_consumers_is_waited_for_as_that_of_creations_and_then_reported(autojump_clock):
    limit = Refuse("LimitExceededException", "too many consumers", 400)
    got, delays = await read(FaultScript([(limit, When(operation="RegisterStreamConsumer", times=3))]), "fanout")
    assert len(got) == 2
    assert [event.call for event in delays] == ["RegisterStreamConsumer"] * 3
    with pytest.raises(efo.errors.EfoError, match="deregister one"):
        await read(FaultScript([(limit, When(operation="RegisterStreamConsumer", times=ALWAYS))]), "fanout")


@pytest.mark.parametrize("mode", ["fanout", "polling"])
async def test_an_odd_answer_to_a_call_of_a_shard_ends_nothing(mode, autojump_clock):
    for operation in ("SubscribeToShard",) if mode == "fanout" else ("GetShardIterator", "GetRecords"):
        got, _ = await read(FaultScript([(ODD, When(operation=operation, times=4))]), mode)
        assert sorted(data for data, _ in got) == [b"1", b"2"], operation
        with pytest.raises(efo.errors.EfoError, match="BadRequest"):
            await read(FaultScript([(ODD, When(operation=operation, times=ALWAYS))]), mode)


async def test_a_producer_that_starts_is_as_patient(autojump_clock):
    for operation in ("DescribeStreamSummary", "ListShards"):
        script = FaultScript([(THROTTLED, When(operation=operation, times=12))])
        async with FakeKinesis(faults=script) as fake:
            fake.create_stream("orders")
            async with efo.open_producer(fake.kinesis("orders"), observer=efo.events.ignore_events) as producer:
                await (await producer.put(b"1", partition_key="a"))


async def test_a_lease_store_that_is_away_when_it_is_opened_is_waited_for(monkeypatch, autojump_clock):
    opened = []

    @asynccontextmanager
    async def open_store(*_):
        opened.append(trio.current_time())
        if len(opened) <= failures:
            raise efo.errors.LeaseStoreUnavailableError("throttled")
        yield efo.leases.MemoryLeaseStore()

    monkeypatch.setattr(opening, "open_lease_store", open_store)
    failures = 3
    got, delays = await read(FaultScript([]), "polling")
    assert len(got) == 2
    assert [event.call for event in delays] == ["leases"] * 3
    failures = 10_000
    with pytest.raises(efo.errors.LeaseStoreUnavailableError, match="throttled"):
        await read(FaultScript([]), "polling")
