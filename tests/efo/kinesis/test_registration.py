"""The fan-out consumer: found, registered, waited for, and registered again when it disappears (rule R13)."""

from dataclasses import replace

import pytest
import trio

from efo.errors import (
    AccessDeniedError,
    ConsumerNotActiveError,
    ConsumerReplacedError,
    EfoError,
    NotVisibleError,
    ResourceInUseError,
    ResourceNotFoundError,
    ShardGoneError,
    ThrottledError,
)
from efo.events import ConsumerReady
from efo.kinesis.registration import ACTIVE_TIMEOUT, POLL_INTERVAL, Registration
from efo.model import FanOutConsumer, HashKeyRange, Shard, StreamDescription

STREAM_ARN = "arn:aws:kinesis:eu-central-1:123456789012:stream/s"
NOT_FOUND = ResourceNotFoundError("ResourceNotFoundException", "nobody knows it")
SHARD = Shard("shardId-0", HashKeyRange("0", "1"), "0")


class Control:
    """A control plane that knows one consumer; `delay` seconds from registration to ACTIVE, and to visible."""

    def __init__(self, status=None, *, delay=0.0, visible_after=0.0):
        self.consumer = FanOutConsumer("app", f"{STREAM_ARN}/consumer/app:0", status) if status else None
        self.delay = delay
        self.visible_after = visible_after
        self.registered_at = None
        self.gone_at = float("inf")
        self.calls = []
        self.shards = [SHARD]
        self.refusal = None

    async def _called(self, name):
        await trio.lowlevel.checkpoint()
        self.calls.append(name)
        assert len(self.calls) < 1000, "it hammers the service"
        if self.refusal is not None:
            raise self.refusal
        if trio.current_time() >= self.gone_at:
            self.consumer, self.gone_at = None, float("inf")

    async def describe_stream(self):
        await self._called("describe_stream")
        return StreamDescription("s", STREAM_ARN, "ACTIVE", 24)

    async def list_shards(self):
        await self._called("list_shards")
        return self.shards

    async def describe_consumer(self, stream_arn, name):
        await self._called("describe_consumer")
        assert (stream_arn, name) == (STREAM_ARN, "app")
        age = trio.current_time() - (self.registered_at if self.registered_at is not None else float("-inf"))
        if self.consumer is None or age < self.visible_after:
            raise NOT_FOUND
        if self.consumer.status == "CREATING" and age >= self.delay:
            self.consumer = FanOutConsumer("app", self.consumer.arn, "ACTIVE")
        return self.consumer

    async def register_consumer(self, stream_arn, name):
        await self._called("register_consumer")
        if self.consumer is not None:
            raise ResourceInUseError("ResourceInUseException", "it exists")
        self.registered_at = trio.current_time()
        self.consumer = FanOutConsumer(name, f"{stream_arn}/consumer/{name}:{len(self.calls)}", "CREATING")
        return self.consumer

    async def deregister_consumer(self, consumer_arn):
        raise AssertionError("never by ourselves")


@pytest.fixture
def told():
    return []


def registration(control, told):
    return Registration(control, "app", told.append)


class TestEnsure:
    async def test_one_that_is_active(self, told, autojump_clock):
        control = Control("ACTIVE")
        consumer = registration(control, told)
        assert not consumer.is_active
        assert await consumer.ensure() == control.consumer
        assert consumer.arn == control.consumer.arn
        assert consumer.is_active
        assert told == [ConsumerReady("app", control.consumer.arn, registered=False)]
        assert "register_consumer" not in control.calls

    @pytest.mark.scenario("G62")
    async def test_one_that_is_being_created_by_somebody_else(self, told, autojump_clock):
        control = Control("CREATING")
        control.registered_at, control.delay = 0.0, 7.5
        await registration(control, told).ensure()
        assert trio.current_time() == pytest.approx(8 * POLL_INTERVAL)
        assert not told[0].registered

    async def test_none(self, told, autojump_clock):
        control = Control(delay=3.0)
        found = await registration(control, told).ensure()
        assert control.calls.count("register_consumer") == 1
        assert told == [ConsumerReady("app", found.arn, registered=True)]

    @pytest.mark.scenario("G62")
    async def test_one_that_is_being_deleted_is_waited_for_and_registered_again(self, told, autojump_clock):
        control = Control("DELETING", delay=2.0)
        control.gone_at = 10.0
        old = control.consumer
        found = await registration(control, told).ensure()
        assert found.arn != old.arn
        assert control.calls.count("register_consumer") == 1
        assert told[0].registered

    async def test_another_worker_is_quicker(self, told, autojump_clock):
        control = Control()
        register = control.register_consumer

        async def too_late(stream_arn, name):
            if control.consumer is None:
                await register(stream_arn, name)  # the other worker's
            return await register(stream_arn, name)

        control.register_consumer = too_late
        await registration(control, told).ensure()
        assert [event.registered for event in told] == [False]

    async def test_one_that_is_not_visible_at_once_is_still_ours(self, told, autojump_clock):
        control = Control(visible_after=4.5, delay=6.0)
        await registration(control, told).ensure()
        assert [event.registered for event in told] == [True]
        assert len(control.calls) < 20

    @pytest.mark.parametrize("status", ["CREATING", "DELETING"])
    @pytest.mark.scenario("G62")
    async def test_one_that_is_stuck_is_an_error_in_the_end(self, told, autojump_clock, status):
        control = Control(status, delay=float("inf"))
        control.registered_at = 0.0
        consumer = registration(control, told)
        with pytest.raises(ConsumerNotActiveError, match=r"'app'.*was not ACTIVE within 300 s"):
            await consumer.ensure()
        assert trio.current_time() == pytest.approx(ACTIVE_TIMEOUT)
        assert not consumer.is_active
        assert told == []

    async def test_one_that_is_never_found_is_not_registered_without_pause(self, told, autojump_clock):
        control = Control()

        async def forgetful(_stream_arn, _name):
            await control._called("register_consumer")

        control.register_consumer = forgetful
        with pytest.raises(ConsumerNotActiveError):
            await registration(control, told).ensure()

    @pytest.mark.parametrize("error", [AccessDeniedError("AccessDeniedException", "no"), ThrottledError("Limit", "")])
    @pytest.mark.scenario("G62")
    async def test_refusals_are_handed_out(self, told, autojump_clock, error):
        control = Control()
        control.refusal = error
        with pytest.raises(type(error)):
            await registration(control, told).ensure()

    async def test_a_stream_that_does_not_exist(self, told, autojump_clock):
        control = Control()
        control.refusal = NOT_FOUND
        with pytest.raises(ResourceNotFoundError):
            await registration(control, told).ensure()
        assert control.calls == ["describe_stream"]

    def test_its_arn_is_not_known_before(self, told):
        with pytest.raises(RuntimeError, match="after ensure"):
            _ = registration(Control(), told).arn


class TestDiagnose:
    @pytest.fixture
    async def control(self):
        return Control("ACTIVE")

    @pytest.fixture
    async def consumer(self, control, told):
        made = registration(control, told)
        await made.ensure()
        return made

    @pytest.mark.scenario("G62")
    async def test_the_consumer_is_gone(self, control, consumer, autojump_clock):
        before = consumer.arn
        control.consumer = None
        error = await consumer.diagnose("shardId-0", NOT_FOUND)
        assert isinstance(error, ConsumerReplacedError)
        assert error.retryable
        assert consumer.arn == control.consumer.arn != before

    async def test_somebody_else_has_replaced_it(self, control, consumer, autojump_clock):
        control.consumer = FanOutConsumer("app", f"{STREAM_ARN}/consumer/app:99", "ACTIVE")
        assert isinstance(await consumer.diagnose("shardId-0", NOT_FOUND), ConsumerReplacedError)
        assert consumer.arn.endswith(":99")

    async def test_the_shard_is_gone(self, control, consumer, autojump_clock):
        control.shards = [replace(SHARD, shard_id="shardId-1")]
        error = await consumer.diagnose("shardId-0", NOT_FOUND)
        assert isinstance(error, ShardGoneError)
        assert "shardId-0" in str(error)

    async def test_a_listing_that_may_be_older_than_the_shard_does_not_say_that_it_is_gone(self, control, consumer):
        """To finish it by that would lose its records, if the consumer was replaced at the same time."""
        for listed in ["shardId-1"], []:
            control.shards = [replace(SHARD, shard_id=name) for name in listed]
            error = await consumer.diagnose("shardId-2", NOT_FOUND)
            assert isinstance(error, NotVisibleError)
            assert error.retryable
            assert "does not find shardId-2" in str(error)

    async def test_all_shards_learn_that_the_consumer_was_replaced(self, control, consumer, autojump_clock):
        control.consumer, control.delay = None, 5.0
        errors = []

        async def diagnose():
            errors.append(await consumer.diagnose("shardId-0", NOT_FOUND))

        async with trio.open_nursery() as shards:
            for _ in range(5):
                shards.start_soon(diagnose)
        assert [type(error) for error in errors] == [ConsumerReplacedError] * 5
        assert control.calls.count("register_consumer") == 1

    async def test_one_that_comes_late_is_told_to_try_again(self, control, consumer, autojump_clock):
        """Its stream was opened before the consumer was replaced, and its reader was busy meanwhile."""
        control.consumer = None
        await consumer.diagnose("shardId-0", NOT_FOUND)
        error = await consumer.diagnose("shardId-0", NOT_FOUND)
        assert isinstance(error, EfoError)
        assert error.retryable
        assert "nobody knows it" in str(error)

    @pytest.mark.parametrize("failure", [ThrottledError("Limit", ""), AccessDeniedError("AccessDenied", "no")])
    async def test_a_diagnosis_that_fails_is_the_error(self, control, consumer, autojump_clock, failure):
        control.refusal = failure
        assert await consumer.diagnose("shardId-0", NOT_FOUND) is failure

    async def test_being_cancelled_leaves_the_next_one_free(self, control, consumer, autojump_clock):
        control.consumer, control.delay = None, 50.0
        with trio.move_on_after(2) as scope:
            await consumer.diagnose("shardId-0", NOT_FOUND)
        assert scope.cancelled_caught
        control.shards = []
        control.delay = 0.0
        assert isinstance(await consumer.diagnose("shardId-0", NOT_FOUND), ConsumerReplacedError)
