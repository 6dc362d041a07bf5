"""Whether fan-out is possible: the quota of consumers, permissions, and the way back."""

import pytest
import trio

from efo.errors import ConfigurationError, InternalFailureError, ResourceNotFoundError
from efo.events import ConsumerReady, ReadModeChanged
from efo.kinesis.polling.fan_out import FanOut
from efo.kinesis.registration import Registration
from efo.model import Position
from efo.testing.faults.kinds import Refuse
from efo.testing.faults.script import ALWAYS, When
from tests.efo.kinesis.sources import STREAM, open_sources, read

START = Position.trim_horizon()


def changes(sources):
    return [event for event in sources.seen if isinstance(event, ReadModeChanged)]


def use_up_the_quota(sources, count=20):
    return [sources.fake.register(STREAM, f"other-{n}").arn for n in range(count)]


async def test_a_full_quota_is_a_reason_to_poll_until_a_consumer_is_deregistered(autojump_clock):
    async with open_sources(consumers_creating=50) as sources:
        sources.fake.deregister(sources.registration.arn)
        await trio.sleep(2)
        arns = use_up_the_quota(sources)
        fan_out = FanOut(
            Registration(sources.fake.kinesis(STREAM).control_plane, "reader", sources.seen.append),
            retry_interval=60.0,
            observer=sources.seen.append,
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(fan_out.keep_registered)
            (change,) = changes(sources)
            assert (change.mode, change.error_type, change.retry_after) == ("polling", "consumer_limit", 60.0)
            assert "deregister one" in change.detail
            assert not fan_out.may_subscribe(None)
            await trio.sleep(130)
            assert not fan_out.may_subscribe(None)
            sources.fake.deregister(arns[0])
            await trio.sleep(60)
            assert fan_out.may_subscribe(None)
            assert not fan_out.may_subscribe(None)  # one shard tries
            fan_out.works()
            assert fan_out.may_subscribe(None)
            assert [change.mode for change in changes(sources)] == ["polling", "fanout"]
            nursery.cancel_scope.cancel()


async def test_a_consumer_that_disappears_and_cannot_be_registered_again_is_a_reason_to_poll(autojump_clock):
    async with open_sources(consumers_creating=50, subscription_life=20.0) as sources:
        source = sources.auto(START)
        sources.put(1)
        assert await read(source, 1) == [1]
        sources.fake.deregister(sources.registration.arn)
        sources.put(2)
        await trio.sleep(2)
        arns = use_up_the_quota(sources)
        with trio.fail_after(30):
            assert await read(source, 1) == [2]
        assert [change.error_type for change in changes(sources)] == ["consumer_limit"]
        sources.fake.deregister(arns[0])
        await trio.sleep(70)
        sources.put(3)
        assert await read(source, 1) == [3]
        assert changes(sources)[-1].mode == "fanout"
        assert sum(isinstance(event, ConsumerReady) and event.registered for event in sources.seen) == 2


@pytest.mark.parametrize("operation", ["DescribeStreamConsumer", "RegisterStreamConsumer"])
async def test_a_registration_that_is_denied_is_a_reason_to_poll(autojump_clock, operation):
    async with open_sources() as sources:
        sources.fake.deregister(sources.registration.arn)
        await trio.sleep(2)
        sources.fake.faults.add(Refuse("AccessDeniedException"), When(operation=operation, times=ALWAYS))
        registration = Registration(sources.fake.kinesis(STREAM).control_plane, "reader")
        fan_out = FanOut(registration, retry_interval=60.0, observer=sources.seen.append)
        async with trio.open_nursery() as nursery:
            await nursery.start(fan_out.keep_registered)
            assert not fan_out.is_used
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [("InternalFailure", 500, InternalFailureError), ("ResourceNotFoundException", 400, ResourceNotFoundError)],
)
async def test_another_failure_of_the_first_registration_is_raised(autojump_clock, code, status, error):
    async with open_sources() as sources:
        sources.fake.faults.add(Refuse(code, status=status), When(operation="DescribeStreamSummary"))
        registration = Registration(sources.fake.kinesis(STREAM).control_plane, "reader")
        with pytest.raises(error):
            await FanOut(registration, retry_interval=60.0, observer=sources.seen.append).keep_registered()


async def test_a_given_consumer_that_does_not_exist_is_a_mistake_and_no_reason_to_poll(autojump_clock):
    async with open_sources() as sources:
        arn = sources.registration.arn
        sources.fake.deregister(arn)
        await trio.sleep(2)
        registration = Registration(sources.fake.kinesis(STREAM).control_plane, "reader", given=arn)
        with pytest.raises(ConfigurationError, match="does not exist"):
            await FanOut(registration, retry_interval=60.0, observer=sources.seen.append).keep_registered()


@pytest.mark.parametrize("replaced", [False, True])
async def test_a_given_consumer_that_is_deleted_while_it_is_read_is_a_reason_to_poll(autojump_clock, replaced):
    """It cannot be registered again: its owner makes another one, with another ARN."""
    async with open_sources(given=True, subscription_life=20.0) as sources:
        source = sources.auto(START)
        sources.put(1)
        assert await read(source, 1) == [1]
        sources.fake.deregister(sources.registration.arn)
        await trio.sleep(2)
        if replaced:
            sources.fake.register(STREAM, "reader")
        sources.put(2)
        with trio.fail_after(30):
            assert await read(source, 1) == [2]
        (change,) = changes(sources)
        assert (change.mode, change.error_type) == ("polling", "consumer_not_found")
        assert "ask its owner for the ARN of the present one" in change.detail
        await trio.sleep(130)
        sources.put(3)
        assert await read(source, 1) == [3]
        assert changes(sources) == [change]


async def test_a_consumer_that_does_not_become_active_again_is_a_reason_to_poll(autojump_clock):
    async with open_sources(subscription_life=20.0, consumer_creating=1e6) as sources:
        source = sources.auto(START)
        sources.put(1)
        assert await read(source, 1) == [1]
        assert [change.error_type for change in changes(sources)] == ["consumer_not_active"]


async def test_a_deleted_stream_is_no_reason_to_poll(autojump_clock):
    """It takes its fan-out consumers along, so that a given consumer is not found either."""
    async with open_sources(given=True, subscription_life=20.0) as sources:
        source = sources.auto(START)
        sources.put(1)
        assert await read(source, 1) == [1]
        sources.fake.delete_stream(STREAM)
        await trio.sleep(2)
        with pytest.raises(ResourceNotFoundError, match=r"(?i)stream orders"):
            await read(source, 1)
        assert changes(sources) == []
