"""Fan-out while it is possible, polling while it is not: when each shard changes, and that nothing is lost."""

from __future__ import annotations

import pytest
import trio

from efo.errors import AccessDeniedError, ConfigurationError, InternalFailureError, ResourceNotFoundError
from efo.events import ConsumerReady, EventReceived, PollAttempted, ReadModeChanged, SubscribeAttempted
from efo.kinesis.polling.auto_source import TRIAL_TIMEOUT, FanOut
from efo.kinesis.registration import Registration
from efo.model import Position
from efo.testing.faults.kinds import EmptyResponse, Refuse
from efo.testing.faults.script import ALWAYS, When
from tests.efo.kinesis.sources import DENIED, STREAM, open_sources, read

START = Position.trim_horizon()


def modes(sources):
    return [(event.mode, event.error_type) for event in sources.seen if isinstance(event, ReadModeChanged)]


def subscribes(sources):
    return sum(isinstance(event, SubscribeAttempted) for event in sources.seen)


async def test_a_denied_subscription_is_replaced_by_polling_and_tried_again_at_the_interval(autojump_clock):
    async with open_sources() as sources, trio.open_nursery() as nursery:
        sources.deny(start=0.0, stop=150.0)
        nursery.start_soon(sources.put_for, 600, 0.5)
        assert await read(sources.auto(START), 600) == list(range(600))
        assert modes(sources) == [("polling", "AccessDeniedException"), ("fanout", None)]
        assert subscribes(sources) == 4  # at 0, 60, 120 and 180 s
        assert not any(isinstance(event, PollAttempted) for event in sources.seen[-20:])


async def test_a_subscription_that_is_denied_later_is_replaced_by_polling(autojump_clock):
    async with open_sources(subscription_life=20.0) as sources, trio.open_nursery() as nursery:
        sources.deny(start=5.0)
        nursery.start_soon(sources.put_for, 200, 0.5)
        assert await read(sources.auto(START), 200) == list(range(200))
        assert modes(sources) == [("polling", "AccessDeniedException")]


async def test_one_shard_tries_and_all_follow(autojump_clock):
    async with open_sources() as sources:
        sources.fake.split(STREAM, "shardId-000000000000")
        shards = sources.fake.open_shards(STREAM)
        rule = sources.fake.faults.add(DENIED, When(operation="SubscribeToShard", times=ALWAYS))
        async with trio.open_nursery() as nursery:
            for shard in shards:
                nursery.start_soon(read, sources.auto(START, shard))
            await trio.sleep(50)
            before = subscribes(sources)
            await trio.sleep(300)
            assert subscribes(sources) - before == 5  # one of the two shards, each minute
            sources.fake.faults.remove(rule)
            await trio.sleep(62)
            assert modes(sources)[-1] == ("fanout", None)
            await trio.sleep(3)
            assert [sources.fake.subscriptions(STREAM, shard).live for shard in shards] == [1, 1]
            nursery.cancel_scope.cancel()


async def test_trials_do_not_overlap_however_short_the_interval_is(autojump_clock):
    """A shard that tries is not read meanwhile: it must be one of them, not all."""
    async with open_sources(retry_interval=1.0) as sources:
        sources.fake.split(STREAM, "shardId-000000000000")
        shards = sources.fake.open_shards(STREAM)
        rule = sources.fake.faults.add(DENIED, When(operation="SubscribeToShard", times=ALWAYS))
        async with trio.open_nursery() as nursery:
            for shard in shards:
                nursery.start_soon(read, sources.auto(START, shard))
            await trio.sleep(0.5)
            sources.fake.faults.remove(rule)
            sources.fake.faults.add(EmptyResponse(), When(times=ALWAYS))
            await trio.sleep(10)
            before = len(sources.seen)
            await trio.sleep(10 * TRIAL_TIMEOUT)
            tried = [event.shard_id for event in sources.seen[before:] if isinstance(event, SubscribeAttempted)]
            pages = [event.shard_id for event in sources.seen[before:] if isinstance(event, EventReceived)]
            nursery.cancel_scope.cancel()
    assert tried
    # Each second belongs to one trial at most: so the two shards are read half of the time, once a second.
    assert len(pages) > 10 * TRIAL_TIMEOUT * 0.9


async def test_a_trial_that_is_closed_lets_another_shard_try(autojump_clock):
    async with open_sources(retry_interval=5.0) as sources:
        rule = sources.fake.faults.add(DENIED, When(operation="SubscribeToShard", times=ALWAYS))
        sources.fake.split(STREAM, "shardId-000000000000")
        first, second = (sources.auto(START, shard) for shard in sources.fake.open_shards(STREAM))
        await first.receive()
        await second.receive()
        sources.fake.faults.remove(rule)
        rule = sources.fake.faults.add(EmptyResponse(), When(times=ALWAYS))
        await trio.sleep(6)
        with trio.move_on_after(6):
            await first.receive()
        first.close("lease_lost")
        sources.fake.faults.remove(rule)
        with trio.fail_after(TRIAL_TIMEOUT / 2):
            while modes(sources)[-1][0] != "fanout":
                await second.receive()


async def test_a_reader_that_is_paused_in_its_trial_does_not_keep_others_from_trying(autojump_clock):
    async with open_sources(retry_interval=5.0) as sources:
        rule = sources.fake.faults.add(DENIED, When(operation="SubscribeToShard", times=ALWAYS))
        sources.fake.split(STREAM, "shardId-000000000000")
        paused, other = (sources.auto(START, shard) for shard in sources.fake.open_shards(STREAM))
        await paused.receive()
        await other.receive()
        sources.fake.faults.remove(rule)
        await trio.sleep(6)
        with trio.move_on_after(0):
            await paused.receive()
        with trio.move_on_after(TRIAL_TIMEOUT - 1):
            while True:
                await other.receive()
        assert modes(sources) == [("polling", "AccessDeniedException")]
        with trio.fail_after(10):
            while modes(sources)[-1][0] != "fanout":
                await other.receive()


async def test_a_live_subscription_of_another_shard_does_not_end_the_polling(autojump_clock):
    """Only a trial shows that fan-out is possible again: subscriptions that were opened before go on."""
    async with open_sources() as sources:
        live = sources.auto(START)
        await live.receive()
        sources.deny()
        sources.fan_out.refused(AccessDeniedError("AccessDeniedException", ""))
        denied = sources.auto(START)
        await live.receive()
        await denied.receive()
        assert modes(sources) == [("polling", "AccessDeniedException")]
        assert subscribes(sources) == 1


async def test_a_trial_without_an_event_is_given_up_and_the_shard_is_polled_on(autojump_clock):
    async with open_sources() as sources:
        rule = sources.fake.faults.add(DENIED, When(operation="SubscribeToShard", times=ALWAYS))
        source = sources.auto(START)
        sources.put(1)
        assert await read(source, 1) == [1]
        sources.fake.faults.remove(rule)
        sources.fake.faults.add(EmptyResponse(), When(times=ALWAYS))
        await trio.sleep(60)
        sources.put(2)
        with trio.fail_after(TRIAL_TIMEOUT + 1):
            assert await read(source, 1) == [2]
        assert modes(sources) == [("polling", "AccessDeniedException")]
        sources.put(3)
        with trio.fail_after(2):
            assert await read(source, 1) == [3]


async def test_a_failure_that_passes_is_no_reason_to_poll(autojump_clock):
    async with open_sources() as sources:
        sources.fake.faults.add(Refuse("LimitExceededException"), When(times=5))
        sources.put(1)
        assert await read(sources.auto(START), 1) == [1]
        assert modes(sources) == []


async def test_a_denial_of_both_is_an_error(autojump_clock):
    async with open_sources() as sources:
        sources.fake.faults.add(Refuse("AccessDeniedException"), When(operation="*", times=ALWAYS))
        with pytest.raises(AccessDeniedError):
            await sources.auto(START).receive()


async def test_the_end_of_a_polled_shard_is_not_read_again_by_fan_out(autojump_clock):
    async with open_sources() as sources:
        rule = sources.fake.faults.add(DENIED, When(operation="SubscribeToShard", times=ALWAYS))
        source = sources.auto(START)
        sources.put(1)
        sources.fake.split(STREAM, "shardId-000000000000")
        event = await source.receive()
        assert event.is_shard_end
        sources.fake.faults.remove(rule)
        await trio.sleep(100)
        assert await read(source) == []
        assert subscribes(sources) == 1


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
