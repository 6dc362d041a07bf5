"""The control plane of a start: what passes by itself is waited for, with its name; a mistake is reported at once."""

import random

import pytest
import trio

from efo.errors import (
    AccessDeniedError,
    ConfigurationError,
    InternalFailureError,
    NotHttp2Error,
    ProtocolError,
    ResourceNotFoundError,
    ServiceError,
    ThrottledError,
    TlsError,
    TransportError,
)
from efo.events import ShardsListed, StartDelayed
from efo.kinesis.start_retries import LONGEST, StartingControlPlane
from efo.model import FanOutConsumer, Position
from efo.protocol.denials import DOUBTS
from efo.testing import FakeKinesis

THROTTLED = ThrottledError("LimitExceededException", "Rate exceeded", status=400)
FAILED = InternalFailureError("InternalFailure", "", status=500)
ODD = ServiceError("HTTP400", "a page", status=400)
DAMAGED = ProtocolError("the response to ListShards is no JSON object")
DOWN = TransportError("cannot be reached")


class Inner:
    """A control plane whose calls raise what it is asked to, one after the other."""

    def __init__(self, *errors):
        self.errors = list(errors)
        self.calls = 0

    async def describe_stream(self):
        self.calls += 1
        await trio.lowlevel.checkpoint()
        if self.errors:
            raise self.errors.pop(0)
        return "described"

    list_shards = describe_stream

    async def describe_consumer(self, stream_arn, name):
        return await self.describe_stream()

    async def register_consumer(self, stream_arn, name, tags=None):
        return await self.describe_stream()

    async def shards_open_at(self, timestamp):
        return await self.describe_stream()


def starting(*errors):
    seen = []
    inner = Inner(*errors)
    return StartingControlPlane(inner, seen.append, random.Random(1)), inner, seen


CALLS = [
    (lambda plane: plane.describe_stream(), "DescribeStreamSummary"),
    (lambda plane: plane.list_shards(), "ListShards"),
    (lambda plane: plane.shards_open_at(0.0), "ListShards"),
    (lambda plane: plane.describe_consumer("arn", "x"), "DescribeStreamConsumer"),
    (lambda plane: plane.register_consumer("arn", "x"), "RegisterStreamConsumer"),
]


@pytest.mark.parametrize(("call", "name"), CALLS, ids=[name for _, name in CALLS])
@pytest.mark.parametrize("error", [ThrottledError("ThrottlingException", "Rate exceeded"), FAILED], ids=str)
async def test_a_throttle_and_a_failure_of_the_service_are_waited_for_however_long(call, name, error, autojump_clock):
    plane, inner, seen = starting(*[error] * 200)
    assert await call(plane) == "described"
    assert inner.calls == 201
    assert {type(event) for event in seen} == {StartDelayed}
    assert {(event.call, event.error_type) for event in seen} == {(name, error.error_type)}
    assert seen[0].detail == f"{name}: {error}"
    assert max(event.delay for event in seen) <= LONGEST
    assert len({round(event.delay, 3) for event in seen}) > 100  # a fleet does not come back together


@pytest.mark.parametrize("error", [ODD, DAMAGED], ids=str)
async def test_an_odd_answer_is_doubted_some_times(error, autojump_clock):
    plane, inner, _ = starting(*[error] * DOUBTS)
    assert await plane.list_shards() == "described"
    plane, inner, _ = starting(*[error] * 100)
    with pytest.raises(type(error)):
        await plane.list_shards()
    assert inner.calls == DOUBTS + 1


@pytest.mark.parametrize(
    "error",
    [
        ResourceNotFoundError("ResourceNotFoundException", "no stream"),
        AccessDeniedError("AccessDeniedException", "no"),
        ServiceError("InvalidArgumentException", "no"),
        ConfigurationError("no credentials"),
        DOWN,
        TlsError("not trusted"),
        NotHttp2Error("HTTP/1.1"),
    ],
    ids=str,
)
async def test_a_mistake_is_reported_at_once(error):
    plane, inner, seen = starting(error)
    with pytest.raises(type(error)):
        await plane.describe_stream()
    assert (inner.calls, seen) == (1, [])


async def test_an_endpoint_that_has_answered_is_waited_for_if_it_cannot_be_reached(autojump_clock):
    plane, inner, _ = starting(THROTTLED, *[DOWN] * 50)
    assert await plane.list_shards() == "described"
    inner.errors = [DOWN] * 50
    assert await plane.describe_stream() == "described"
    inner.errors = [TlsError("not trusted")]
    with pytest.raises(TlsError):
        await plane.describe_stream()


async def test_the_limit_of_consumers_is_not_waited_for_here():
    plane, inner, _ = starting(THROTTLED)
    with pytest.raises(ThrottledError):
        await plane.register_consumer("arn", "x")
    assert inner.calls == 1


async def test_after_the_start_calls_are_made_once():
    plane, inner, _ = starting(THROTTLED)
    assert plane.observes(ShardsListed)
    assert not plane.observes(StartDelayed)
    plane(ShardsListed(1))
    with pytest.raises(ThrottledError):
        await plane.list_shards()
    assert inner.calls == 1


async def test_the_other_calls_are_passed_on(autojump_clock):
    async with FakeKinesis() as fake:
        fake.create_stream("orders", shards=2)
        plane = StartingControlPlane(fake.kinesis("orders").control_plane, lambda _event: None, random.Random(1))
        arn = (await plane.describe_stream()).arn
        found = await plane.register_consumer(arn, "billing")
        assert [one.name for one in await plane.list_consumers(arn)] == ["billing"]
        assert isinstance(await plane.describe_consumer(arn, "billing"), FanOutConsumer)
        shard = (await plane.list_shards())[0]
        iterator = await plane.get_shard_iterator(shard.shard_id, Position.trim_horizon())
        assert (await plane.get_records(iterator, 10)).records == ()
        assert await plane.behind_latest(shard.shard_id, Position.trim_horizon()) == 0
        await plane.deregister_consumer(found.arn)
