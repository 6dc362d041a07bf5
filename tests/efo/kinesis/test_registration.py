"""Registration: the fan-out consumer is found or registered, and registered again if it is deleted (rule R13)."""

from dataclasses import replace

import pytest
import trio

from efo.errors import (
    AccessDeniedError,
    ConsumerNotActiveError,
    ConsumerNotFoundError,
    ConsumerReplacedError,
    EfoError,
    NotVisibleError,
    ResourceInUseError,
    ResourceNotFoundError,
    ShardGoneError,
    ThrottledError,
)
from efo.events import ConsumerDeregistered, ConsumerReady
from efo.kinesis.registration import ACTIVE_TIMEOUT, DEREGISTER_TIMEOUT, POLL_INTERVAL, Registration
from efo.model import FanOutConsumer, HashKeyRange, Shard, StreamDescription

STREAM_ARN = "arn:aws:kinesis:eu-central-1:123456789012:stream/s"
NOT_FOUND = ResourceNotFoundError("ResourceNotFoundException", "not found")
SHARD = Shard("shardId-0", HashKeyRange("0", "1"), "0")


class FakeControlPlane:
    """A control plane with one consumer.

    `delay`, `visible_after`: seconds from registration until it is ACTIVE, and until it can be found. `gone_at`: the
    time at which it is deleted. `failure`: raised by each call, if set.
    """

    def __init__(self, status=None, *, delay=0.0, visible_after=0.0):
        self.consumer = FanOutConsumer("app", f"{STREAM_ARN}/consumer/app:0", status) if status else None
        self.delay = delay
        self.visible_after = visible_after
        self.registered_at = None
        self.gone_at = float("inf")
        self.calls = []
        self.shards = [SHARD]
        self.failure = None
        self.latency = 0.0

    async def _called(self, name):
        await trio.sleep(self.latency)
        self.calls.append(name)
        assert len(self.calls) < 1000, "too many calls"
        if self.failure is not None:
            raise self.failure
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

    async def register_consumer(self, stream_arn, name, tags):
        await self._called("register_consumer")
        self.tags = tags
        if self.consumer is not None:
            raise ResourceInUseError("ResourceInUseException", "it exists")
        self.registered_at = trio.current_time()
        self.consumer = FanOutConsumer(name, f"{stream_arn}/consumer/{name}:{len(self.calls)}", "CREATING")
        return self.consumer

    async def deregister_consumer(self, consumer_arn):
        raise AssertionError("efo must never deregister a consumer")


@pytest.fixture
def events():
    return []


def registration(control, events):
    return Registration(control, "app", events.append)


class TestEnsure:
    async def test_an_active_consumer_is_found(self, events, autojump_clock):
        control = FakeControlPlane("ACTIVE")
        consumer = registration(control, events)
        assert not consumer.is_active
        assert await consumer.ensure() == control.consumer
        assert consumer.arn == control.consumer.arn
        assert consumer.is_active
        assert events == [ConsumerReady("app", control.consumer.arn, registered=False)]
        assert "register_consumer" not in control.calls

    @pytest.mark.scenario("G62")
    async def test_a_consumer_that_another_worker_creates_is_waited_for(self, events, autojump_clock):
        control = FakeControlPlane("CREATING")
        control.registered_at, control.delay = 0.0, 7.5
        await registration(control, events).ensure()
        assert trio.current_time() == pytest.approx(8 * POLL_INTERVAL)
        assert not events[0].registered

    async def test_a_missing_consumer_is_registered(self, events, autojump_clock):
        control = FakeControlPlane(delay=3.0)
        found = await registration(control, events).ensure()
        assert control.calls.count("register_consumer") == 1
        assert events == [ConsumerReady("app", found.arn, registered=True)]

    async def test_a_consumer_in_an_unknown_state_can_read(self, events, autojump_clock):
        """AWS says of CREATING and DELETING alone that a consumer cannot read then."""
        control = FakeControlPlane("UPDATING")
        assert (await registration(control, events).ensure()).status == "UPDATING"

    async def test_a_consumer_gets_its_tags_when_it_is_registered(self, autojump_clock):
        control = FakeControlPlane()
        await Registration(control, "app", tags={"team": "billing"}).ensure()
        assert control.tags == {"team": "billing"}

    async def test_tags_that_may_not_be_given_are_named(self, autojump_clock):
        control = FakeControlPlane()

        async def refuse(*_arguments):
            raise AccessDeniedError("AccessDeniedException", "not authorized.")

        control.register_consumer = refuse
        with pytest.raises(AccessDeniedError, match=r"not authorized; .* kinesis:TagResource is needed beside"):
            await Registration(control, "app", tags={"team": "billing"}).ensure()
        with pytest.raises(AccessDeniedError, match=r"not authorized\.$"):
            await Registration(control, "app").ensure()

    @pytest.mark.scenario("G62")
    async def test_a_consumer_that_is_being_deleted_is_waited_for_and_registered_again(self, events, autojump_clock):
        control = FakeControlPlane("DELETING", delay=2.0)
        control.gone_at = 10.0
        old = control.consumer
        found = await registration(control, events).ensure()
        assert found.arn != old.arn
        assert control.calls.count("register_consumer") == 1
        assert events[0].registered

    async def test_a_consumer_that_another_worker_registers_first_is_used(self, events, autojump_clock):
        control = FakeControlPlane()
        register = control.register_consumer

        async def register_second(*arguments):
            if control.consumer is None:
                await register(*arguments)  # by the other worker
            return await register(*arguments)

        control.register_consumer = register_second
        await registration(control, events).ensure()
        assert [event.registered for event in events] == [False]

    async def test_a_registered_consumer_that_is_not_visible_yet_is_waited_for(self, events, autojump_clock):
        control = FakeControlPlane(visible_after=4.5, delay=6.0)
        await registration(control, events).ensure()
        assert [event.registered for event in events] == [True]
        assert len(control.calls) < 20

    @pytest.mark.parametrize("status", ["CREATING", "DELETING"])
    @pytest.mark.scenario("G62")
    async def test_a_consumer_that_does_not_become_active_is_an_error_after_the_timeout(
        self, events, autojump_clock, status
    ):
        control = FakeControlPlane(status, delay=float("inf"))
        control.registered_at = 0.0
        consumer = registration(control, events)
        with pytest.raises(ConsumerNotActiveError, match=r"'app'.*was not ACTIVE within 300 s"):
            await consumer.ensure()
        assert trio.current_time() == pytest.approx(ACTIVE_TIMEOUT)
        assert not consumer.is_active
        assert events == []

    async def test_a_consumer_that_is_never_visible_is_polled_with_pauses(self, events, autojump_clock):
        control = FakeControlPlane()

        async def register_nothing(*_arguments):
            await control._called("register_consumer")

        control.register_consumer = register_nothing
        with pytest.raises(ConsumerNotActiveError):
            await registration(control, events).ensure()

    @pytest.mark.parametrize("error", [AccessDeniedError("AccessDeniedException", "no"), ThrottledError("Limit", "")])
    @pytest.mark.scenario("G62")
    async def test_service_errors_are_raised(self, events, autojump_clock, error):
        control = FakeControlPlane()
        control.failure = error
        with pytest.raises(type(error)):
            await registration(control, events).ensure()

    async def test_a_missing_stream_is_an_error(self, events, autojump_clock):
        control = FakeControlPlane()
        control.failure = NOT_FOUND
        with pytest.raises(ResourceNotFoundError):
            await registration(control, events).ensure()
        assert control.calls == ["describe_stream"]

    def test_the_arn_cannot_be_read_before_ensure(self, events):
        with pytest.raises(RuntimeError, match="after ensure"):
            _ = registration(FakeControlPlane(), events).arn


class TestDiagnose:
    @pytest.fixture
    async def control(self):
        return FakeControlPlane("ACTIVE")

    @pytest.fixture
    async def consumer(self, control, events):
        consumer = registration(control, events)
        await consumer.ensure()
        return consumer

    @pytest.mark.scenario("G62")
    async def test_a_deleted_consumer_is_registered_again(self, control, consumer, autojump_clock):
        before = consumer.arn
        control.consumer = None
        error = await consumer.diagnose("shardId-0", NOT_FOUND)
        assert isinstance(error, ConsumerReplacedError)
        assert error.retryable
        assert consumer.arn == control.consumer.arn != before

    async def test_a_consumer_that_another_worker_has_replaced_is_used(self, control, consumer, autojump_clock):
        control.consumer = FanOutConsumer("app", f"{STREAM_ARN}/consumer/app:99", "ACTIVE")
        assert isinstance(await consumer.diagnose("shardId-0", NOT_FOUND), ConsumerReplacedError)
        assert consumer.arn.endswith(":99")

    async def test_a_shard_that_is_not_listed_is_gone(self, control, consumer, autojump_clock):
        control.shards = [replace(SHARD, shard_id="shardId-1")]
        error = await consumer.diagnose("shardId-0", NOT_FOUND)
        assert isinstance(error, ShardGoneError)
        assert "shardId-0" in str(error)

    async def test_a_shard_that_is_newer_than_the_listing_is_not_gone(self, control, consumer):
        """To finish the shard would lose its records: the error may come from the replacement of the consumer."""
        for listed in ["shardId-1"], []:
            control.shards = [replace(SHARD, shard_id=name) for name in listed]
            error = await consumer.diagnose("shardId-2", NOT_FOUND)
            assert isinstance(error, NotVisibleError)
            assert error.retryable
            assert "does not find shardId-2" in str(error)

    async def test_all_shards_get_consumer_replaced_and_one_registers_it(self, control, consumer, autojump_clock):
        control.consumer, control.delay = None, 5.0
        errors = []

        async def diagnose():
            errors.append(await consumer.diagnose("shardId-0", NOT_FOUND))

        async with trio.open_nursery() as shards:
            for _ in range(5):
                shards.start_soon(diagnose)
        assert [type(error) for error in errors] == [ConsumerReplacedError] * 5
        assert control.calls.count("register_consumer") == 1

    async def test_diagnoses_that_wait_share_checks_and_listings(self, control, consumer, autojump_clock):
        """Leases of thousands of shards that do not exist ask at once; each listing takes a moment."""
        control.shards = [replace(SHARD, shard_id="shardId-5")]
        control.latency, control.calls[:] = 0.1, []
        errors = {}

        async def diagnose(number):
            await trio.sleep(number / 1000)
            shard_id = f"shardId-{number}"
            errors[shard_id] = type(await consumer.diagnose(shard_id, NOT_FOUND))

        async with trio.open_nursery() as shards:
            for number in range(10):
                shards.start_soon(diagnose, number)
        # The first check began before the other nine were asked for; the listing after it began later.
        assert control.calls.count("describe_consumer") == 2
        assert control.calls.count("list_shards") == 1
        gone, not_visible = [ShardGoneError] * 5, [NotVisibleError] * 5
        assert [errors[f"shardId-{number}"] for number in range(10)] == gone + not_visible

    async def test_a_late_diagnosis_of_an_earlier_replacement_is_retryable(self, control, consumer, autojump_clock):
        """The subscription was opened before the consumer was replaced, and its reader took the error later."""
        control.consumer = None
        await consumer.diagnose("shardId-0", NOT_FOUND)
        error = await consumer.diagnose("shardId-0", NOT_FOUND)
        assert isinstance(error, EfoError)
        assert error.retryable
        assert "not found" in str(error)

    @pytest.mark.parametrize("failure", [ThrottledError("Limit", ""), AccessDeniedError("AccessDenied", "no")])
    async def test_the_error_of_a_failed_diagnosis_is_returned(self, control, consumer, autojump_clock, failure):
        control.failure = failure
        assert await consumer.diagnose("shardId-0", NOT_FOUND) is failure

    async def test_a_cancelled_diagnosis_does_not_block_the_next_one(self, control, consumer, autojump_clock):
        control.consumer, control.delay = None, 50.0
        with trio.move_on_after(2) as scope:
            await consumer.diagnose("shardId-0", NOT_FOUND)
        assert scope.cancelled_caught
        control.shards = []
        control.delay = 0.0
        assert isinstance(await consumer.diagnose("shardId-0", NOT_FOUND), ConsumerReplacedError)


class TestGivenByArn:
    ARN = f"{STREAM_ARN}/consumer/app:0"

    async def test_it_is_used_as_it_is_without_the_stream_being_described(self, events, autojump_clock):
        control = FakeControlPlane("ACTIVE")
        assert (await Registration(control, "billing", events.append, self.ARN).ensure()).arn == self.ARN
        assert control.calls == ["describe_consumer"]

    async def test_it_is_waited_for_while_its_owner_creates_it(self, events, autojump_clock):
        control = FakeControlPlane("CREATING")
        control.registered_at, control.delay = 0.0, 2.5
        await Registration(control, "billing", events.append, self.ARN).ensure()
        assert "register_consumer" not in control.calls

    @pytest.mark.parametrize("status", [None, "ACTIVE"])
    async def test_one_that_is_gone_or_replaced_is_never_registered(self, events, autojump_clock, status):
        control = FakeControlPlane(status)
        if control.consumer is not None:
            control.consumer = replace(control.consumer, arn=f"{STREAM_ARN}/consumer/app:7")
        with pytest.raises(ConsumerNotFoundError, match="efo does not register one whose ARN is given: ask its owner"):
            await Registration(control, "billing", events.append, self.ARN).ensure()
        assert "register_consumer" not in control.calls

    async def test_one_that_disappears_later_is_reported_so(self, events, autojump_clock):
        control = FakeControlPlane("ACTIVE")
        registration = Registration(control, "billing", events.append, self.ARN)
        await registration.ensure()
        control.consumer = None
        error = await registration.diagnose(SHARD.shard_id, NOT_FOUND)
        assert isinstance(error, ConsumerNotFoundError)
        assert "register_consumer" not in control.calls


# --- the end of an ephemeral consumer ------------------------------------------------------------------------


class Ending(FakeControlPlane):
    """A control plane whose consumer can be deregistered, once the errors in `refusals` are used up."""

    def __init__(self, *refusals, **options):
        super().__init__(**options)
        self.refusals = list(refusals)

    async def deregister_consumer(self, consumer_arn):
        await self._called("deregister_consumer")
        if self.refusals:
            raise self.refusals.pop(0)
        assert consumer_arn == self.consumer.arn
        self.consumer = None


async def ended(plane, *, ensured=True):
    """Return what is reported of the end, and how long it took."""
    seen = []
    registration = Registration(plane, "app", seen.append)
    if ensured:
        await registration.ensure()
    began = trio.current_time()
    with trio.CancelScope() as scope:
        scope.cancel()  # as by Ctrl-C
        await registration.end()
    return [event for event in seen if isinstance(event, ConsumerDeregistered)], trio.current_time() - began


async def test_the_end_deregisters_though_it_is_cancelled(autojump_clock):
    plane = Ending()
    assert await ended(plane) == ([ConsumerDeregistered("app")], 0.0)
    assert plane.consumer is None


async def test_the_end_of_what_was_never_asked_for_calls_nothing(autojump_clock):
    plane = Ending(status="ACTIVE")
    assert await ended(plane, ensured=False) == ([], 0.0)
    assert plane.calls == []


async def test_the_end_waits_for_what_passes(autojump_clock):
    busy = ResourceInUseError("ResourceInUseException", "CREATING")
    plane = Ending(busy, ThrottledError("LimitExceededException", "rate"))
    assert await ended(plane) == ([ConsumerDeregistered("app")], 2 * POLL_INTERVAL)
    assert plane.consumer is None


@pytest.mark.parametrize(
    ("error", "kind", "seconds"),
    [
        (AccessDeniedError("AccessDeniedException", "no"), "AccessDeniedException", 0.0),
        (ResourceInUseError("ResourceInUseException", "CREATING"), "ResourceInUseException", DEREGISTER_TIMEOUT),
    ],
)
async def test_an_end_that_fails_is_reported_and_bounded(error, kind, seconds, autojump_clock):
    (event,), took = await ended(Ending(*[error] * 100))
    assert event.error_type == kind
    assert took == pytest.approx(seconds)
